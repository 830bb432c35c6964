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

// timed is a test with a deadline, however much time the test itself has.
type timed struct {
	testing.TB
	deadline time.Time
}

func (t timed) Deadline() (time.Time, bool) { return t.deadline, !t.deadline.IsZero() }

func TestPatience(t *testing.T) {
	for _, test := range []struct{ wanted, left, want time.Duration }{
		{wanted: time.Minute, left: time.Hour, want: time.Minute},
		{wanted: time.Minute, left: 90 * time.Second, want: time.Minute},
		{wanted: time.Minute, left: 80 * time.Second, want: 50 * time.Second},
		{wanted: time.Minute, left: time.Minute, want: 30 * time.Second},
		{wanted: time.Minute, left: 30 * time.Second, want: 15 * time.Second}, // a clean-up waits as well
		{wanted: time.Second, left: 3 * time.Second, want: time.Second},
		{wanted: time.Minute, left: -time.Second, want: 0},
	} {
		if got := patienceOf(test.wanted, test.left); got != test.want {
			t.Errorf("who would wait %s with %s left waits %s, want %s", test.wanted, test.left, got, test.want)
		}
	}
	if got := patience(timed{TB: t}, time.Hour); got != time.Hour {
		t.Errorf("without a deadline a test waits %s", got)
	}
	if got := patience(timed{TB: t, deadline: time.Now().Add(time.Minute)}, time.Hour); got > 30*time.Second || got < 20*time.Second {
		t.Errorf("a test with a minute left waits %s", got)
	}
	mustFail(t, "for a miracle, in vain, and not 1h0m0s because the tests have to end then: still nothing", func(r testing.TB) {
		Eventually(timed{TB: r, deadline: time.Now().Add(100 * time.Millisecond)}, time.Hour, "a miracle", func() error { return errors.New("still nothing") })
	})
	mustFail(t, "whether silence lasts for 1h0m0s cannot be seen", func(r testing.TB) {
		Quiet(timed{TB: r, deadline: time.Now().Add(time.Minute)}, time.Hour, "silence", func() error { return nil })
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
