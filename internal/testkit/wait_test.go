// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"errors"
	"testing"
	"time"
)

func TestEventually(t *testing.T) {
	calls := 0
	Eventually(t, 5*time.Second, "the third call", func() error {
		if calls++; calls < 3 {
			return errors.New("too early")
		}
		return nil
	})
	if calls != 3 {
		t.Errorf("check was called %d times, want 3", calls)
	}
	mustFail(t, "waited 50ms for a miracle, in vain: still nothing", func(t testing.TB) {
		Eventually(t, 50*time.Millisecond, "a miracle", func() error { return errors.New("still nothing") })
	})
}

func TestQuiet(t *testing.T) {
	begin := time.Now()
	Quiet(t, 60*time.Millisecond, "silence", func() error { return nil })
	if took := time.Since(begin); took < 60*time.Millisecond {
		t.Errorf("Quiet returned after %s, before its time", took)
	}
	for name, quiet := range map[string]func(testing.TB, time.Duration, string, func() error){"Quiet": Quiet, "Never": Never} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			mustFail(t, "silence did not last for 1m0s", func(t testing.TB) {
				quiet(t, time.Minute, "silence", func() error {
					if calls++; calls > 2 {
						return errors.New("a shout")
					}
					return nil
				})
			})
		})
	}
}

func TestRest(t *testing.T) {
	calls, begin := 0, time.Now()
	rest := Rest(t, 300*time.Millisecond, "the last step", func() int {
		calls++
		return min(calls, 4)
	})
	if took := time.Since(begin); rest != 4 || took < 300*time.Millisecond {
		t.Errorf("at rest with %d after %s", rest, took)
	}
}
