// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// cleanup is the time that clean-ups have before `go test` ends the process.
const cleanup = 30 * time.Second

// patience is how long a test may wait that would wait for so long. When the
// deadline of `go test` passes, all tests of the package panic, none says what it
// waited for, and nothing is cleaned up: a wait ends with time left for that. Of the
// last minute it may have half, for clean-ups wait as well, and for who gave
// the tests less than a minute.
func patience(t testing.TB, wanted time.Duration) time.Duration {
	if t, ok := t.(interface{ Deadline() (time.Time, bool) }); ok { // benches have none
		if deadline, ok := t.Deadline(); ok {
			return patienceOf(wanted, time.Until(deadline))
		}
	}
	return wanted
}

func patienceOf(wanted, left time.Duration) time.Duration {
	return max(0, min(wanted, max(left-cleanup, left/2)))
}

// Eventually polls until check returns nil and fails the test with the last
// error when that takes longer than timeout, or when the tests have to end. The
// words of what complete the sentence "waited for …".
func Eventually(t testing.TB, timeout time.Duration, what string, check func() error) {
	t.Helper()
	wanted := timeout
	timeout = patience(t, wanted)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var last error
	err := poll(ctx, func() (bool, error) {
		last = check()
		return last == nil, nil
	})
	switch {
	case err == nil:
	case timeout < wanted:
		t.Fatalf("waited %s for %s, in vain, and not %s because the tests have to end then: %v", timeout.Round(time.Millisecond), what, wanted, last)
	default:
		t.Fatalf("waited %s for %s, in vain: %v", timeout, what, last)
	}
}

// Quiet watches for d that check keeps returning nil and fails the test at its
// first error, or at once if the tests have to end before. The words of what say
// what should stay as it is.
func Quiet(t testing.TB, d time.Duration, what string, check func() error) {
	t.Helper()
	if left := patience(t, d); left < d {
		t.Fatalf("whether %s lasts for %s cannot be seen: the tests have to end in %s", what, d, left.Round(time.Millisecond))
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var broken error
	err := poll(ctx, func() (bool, error) {
		broken = check()
		return broken != nil, nil
	})
	if err != nil {
		broken = check()
	}
	if broken != nil {
		t.Fatalf("%s did not last for %s, after %s: %v", what, d, time.Since(begin).Round(time.Millisecond), broken)
	}
}

// Never is Quiet by the name that reads better for some checks: check returns an
// error once the thing that must never happen has happened.
func Never(t testing.TB, d time.Duration, what string, check func() error) {
	t.Helper()
	Quiet(t, d, what, check)
}

// Rest returns what a number is, say that of requests so far, when it has not changed
// for d. A test that counts what happens afterwards calls it where more than one
// look may be on its way, and nothing else tells that the last is over.
func Rest(t testing.TB, d time.Duration, what string, number func() int) int {
	t.Helper()
	last, since := number(), time.Now()
	Eventually(t, d+time.Minute, what, func() error {
		if now := number(); now != last {
			last, since = now, time.Now()
		}
		if still := time.Since(since); still < d {
			return fmt.Errorf("it was %s ago", still.Round(time.Millisecond))
		}
		return nil
	})
	return last
}

// NoWrites fails the test if anything but leases and events is written for d.
// Events are sent in the background and may come after the status that they go
// with, so the time begins with the last of them.
func NoWrites(t testing.TB, c *Counter, d time.Duration, when string) {
	t.Helper()
	before, said, still := c.Snapshot(), 0, time.Now()
	Eventually(t, d+30*time.Second, "no write "+when, func() error {
		since := c.Since(before)
		events := since.Of("create", "events.k8s.io/events") + since.Of("patch", "events.k8s.io/events")
		if since.Writes() > events {
			t.Fatalf("there were writes %s:\n%s", when, since)
		}
		if events > said {
			said, still = events, time.Now()
		}
		if time.Since(still) < d {
			return fmt.Errorf("%d events, the last %s ago", events, time.Since(still).Round(time.Millisecond))
		}
		return nil
	})
}
