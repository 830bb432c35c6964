// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var guest = schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Guest"}

// TestReadsEndWithTheirAPI: whoever reads is told that the API is gone, and its
// watches end only then.
func TestReadsEndWithTheirAPI(t *testing.T) {
	a := newAPIs(nil, nil)
	a.by[guest] = newTerm(true)
	reading, told, released := make(chan struct{}), make(chan error), make(chan struct{})
	go func() {
		told <- a.read(t.Context(), guest, func(ctx context.Context) error {
			close(reading)
			<-ctx.Done()
			<-released
			return ctx.Err()
		})
	}()
	<-reading
	left := make(chan struct{})
	go func() {
		defer close(left)
		a.leave(t.Context(), guest)
	}()
	for !a.absent(guest) {
		runtime.Gosched()
	}
	if err := a.read(t.Context(), guest, func(context.Context) error { return nil }); !meta.IsNoMatchError(err) {
		t.Errorf("a later read: %v", err)
	}
	select {
	case <-left:
		t.Error("the watches ended before the read")
	default:
	}
	close(released)
	if err := <-told; !meta.IsNoMatchError(err) {
		t.Errorf("the read: %v", err)
	}
	<-left
}

// TestAnAPIThatComesWhileItIsAskedFor is found, or else nobody would wake the
// object that asked.
func TestAnAPIThatComesWhileItIsAskedFor(t *testing.T) {
	s := &sources{apis: newAPIs(nil, nil)}
	s.apis.by[guest] = nil
	tr := newTracker()
	r := s.recorder(types.NamespacedName{Name: "one"}, tr)
	tr.mu.RLock() // so that the note has to wait
	found := make(chan error)
	go func() { found <- r.served(guest) }()
	for tr.mu.TryRLock() { // fails from when it waits
		tr.mu.RUnlock()
		runtime.Gosched()
	}
	s.apis.mu.Lock()
	s.apis.by[guest] = newTerm(true)
	s.apis.mu.Unlock()
	tr.mu.RUnlock()
	if err := <-found; err != nil {
		t.Errorf("it came before the note: %v", err)
	}
}
