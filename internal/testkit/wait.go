// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"testing"
	"time"
)

// Eventually polls until check returns nil and fails the test with the last
// error when that takes longer than timeout. The words of what complete the
// sentence "waited for …".
func Eventually(t testing.TB, timeout time.Duration, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var last error
	err := poll(ctx, func() (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waited %s for %s, in vain: %v", timeout, what, last)
	}
}

// Quiet watches for d that check keeps returning nil and fails the test at its
// first error. The words of what say what should stay as it is.
func Quiet(t testing.TB, d time.Duration, what string, check func() error) {
	t.Helper()
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
