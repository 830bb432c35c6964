// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestMain(m *testing.M) { Main(m) }

// recorder stands in for a test that is expected to fail.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// try runs a piece of test on the side, with its clean-ups, and returns what it
// complained about.
func try(t *testing.T, f func(t testing.TB)) []string {
	t.Helper()
	r := &recorder{TB: t}
	inGoroutine(func() { f(r) })
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		inGoroutine(r.cleanups[i])
	}
	return r.failures
}

func inGoroutine(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// mustFail fails the test unless f fails with a complaint that contains want.
func mustFail(t *testing.T, want string, f func(t testing.TB)) {
	t.Helper()
	got := strings.Join(try(t, f), "\n")
	if got == "" || !strings.Contains(got, want) {
		t.Errorf("complaints = %q, want one with %q", got, want)
	}
}

func clientKey(namespace, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: name}
}

func inNamespace(namespace string) client.ListOption { return client.InNamespace(namespace) }
