// SPDX-License-Identifier: Apache-2.0

// Package terminal stands in for a test when a person runs a benchmark, so that both measure by the same code on the same
// test kit. It is for programs below bench.
package terminal

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

type terminal struct {
	testing.TB
	name string
	ctx  context.Context

	mu       sync.Mutex
	cleanups []func()
	failed   bool
}

// Run runs f to its end, or to its first failure or a signal to stop,
// cleans up and tells whether all went well.
func Run(name string, f func(t testing.TB)) bool {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t := &terminal{name: name, ctx: ctx}
	inGoroutine(func() { f(t) })
	for len(t.cleanups) > 0 {
		last := t.cleanups[len(t.cleanups)-1]
		t.cleanups = t.cleanups[:len(t.cleanups)-1]
		inGoroutine(last)
	}
	return !t.failed
}

// inGoroutine waits for f, which may end its goroutine as Fatal does.
func inGoroutine(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (t *terminal) Helper()                  {}
func (t *terminal) Name() string             { return t.name }
func (t *terminal) Context() context.Context { return t.ctx }

func (t *terminal) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// TempDir is below a directory of its own, as that of a test is: what makes it accessible to another user changes the one
// above as well.
func (t *terminal) TempDir() string {
	above, err := os.MkdirTemp("", "modelplane-bench-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(above) })
	dir := filepath.Join(above, "001")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (t *terminal) Log(args ...any)                 { fmt.Fprintln(os.Stderr, args...) }
func (t *terminal) Logf(format string, args ...any) { t.Log(fmt.Sprintf(format, args...)) }

func (t *terminal) Error(args ...any) {
	t.Log(args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = true
}

func (t *terminal) Errorf(format string, args ...any) { t.Error(fmt.Sprintf(format, args...)) }

func (t *terminal) Fatal(args ...any) {
	t.Error(args...)
	runtime.Goexit()
}

func (t *terminal) Fatalf(format string, args ...any) { t.Fatal(fmt.Sprintf(format, args...)) }

// Skip is a failure: a person who wants figures gets none.
func (t *terminal) Skip(args ...any) { t.Fatal(args...) }

func (t *terminal) Skipf(format string, args ...any) { t.Fatalf(format, args...) }

func (t *terminal) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}
