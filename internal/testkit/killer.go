// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
)

// Killer cuts a process off from the API server after a number of calls, which
// is all that the server can see of a process that was killed at that line.
//
// The last call is carried out by the server, and its answer is lost. Calls for
// Leases are cut off like all others but do not count: they follow the clock,
// and the place of the cut should not.
type Killer struct {
	limit   int
	counted func(Call) bool // which calls the limit is about
	dead    context.Context
	cut     context.CancelFunc

	mu     sync.Mutex
	calls  int
	writes int
	passed int // of those that the limit is about
}

// NewKiller returns a killer that lets n calls pass. A negative n lets all pass,
// for counting.
func NewKiller(n int) *Killer { return newKiller(n, func(Call) bool { return true }) }

// NewWriteKiller returns a killer that lets n calls pass that change something,
// and any number of others until the last of them.
func NewWriteKiller(n int) *Killer { return newKiller(n, Call.Mutating) }

func newKiller(n int, counted func(Call) bool) *Killer {
	k := &Killer{limit: n, counted: counted}
	k.dead, k.cut = context.WithCancel(context.Background())
	if n == 0 {
		k.cut()
	}
	return k
}

// Killed is closed when the cut is made.
func (k *Killer) Killed() <-chan struct{} { return k.dead.Done() }

func (k *Killer) killed() bool { return k.dead.Err() != nil }

// Calls is the number of calls that passed, each watch counted once.
func (k *Killer) Calls() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls
}

// Writes is the number of calls that passed and change something.
func (k *Killer) Writes() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.writes
}

// Wrap returns a copy of cfg whose requests pass through the killer. All clients
// of one process are to be wrapped by the same killer.
func (k *Killer) Wrap(cfg *rest.Config) *rest.Config {
	return wrap(cfg, func(call Call, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		last, ok := k.admit(call)
		if !ok {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, k.err()
		}
		resp, err := k.pass(call, req, next)
		if last {
			k.cut()
		}
		if k.dead.Err() == nil || err != nil {
			return resp, err
		}
		_ = resp.Body.Close()
		return nil, k.err()
	})
}

// admit counts a call that may pass, and tells whether it is the last one.
func (k *Killer) admit(call Call) (last, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.dead.Err() != nil:
		return false, false
	case call.lease():
		return false, true
	case k.passed == k.limit:
		// The last call is still on its way; the process tries one more.
		k.cut()
		return false, false
	}
	k.calls++
	if call.Mutating() {
		k.writes++
	}
	if !k.counted(call) {
		return false, true
	}
	k.passed++
	return k.passed == k.limit, true
}

// pass lets a request through; a watch ends with the cut. Other requests on
// their way are not called back: the server has them already.
func (k *Killer) pass(call Call, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if call.Verb != "watch" {
		return next.RoundTrip(req)
	}
	ctx, cancel := context.WithCancel(req.Context())
	detach := context.AfterFunc(k.dead, cancel)
	end := func() { detach(); cancel() }
	resp, err := next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = &stream{ReadCloser: resp.Body, end: end}
	return resp, nil
}

// stream is a body that tells when it is closed.
type stream struct {
	io.ReadCloser
	end func()
}

func (s *stream) Close() error {
	s.end()
	return s.ReadCloser.Close()
}

func (k *Killer) err() error {
	return fmt.Errorf("cut off by the test after %d calls: %w", k.Calls(), syscall.ECONNREFUSED)
}

// Insist runs a manager for the rest of the test and starts it again when it
// ends, as a kubelet would.
func Insist(t testing.TB, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = run(ctx) // that it ends is what is tried
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// Manage runs a manager for the rest of the test; stop ends it earlier. That it
// was ended is no failure, anything else is.
func Manage(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the manager ended with: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}
