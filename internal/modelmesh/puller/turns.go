// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"context"
	"sync"
)

// turns has what is done to one model happen one after the other. It remembers only models to which something is being done.
type turns struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	free  chan struct{} // has one entry while nobody has it
	users int           // those who have it or wait for it
}

// take waits until nobody else is at the model. The returned function gives the turn back.
func (t *turns) take(ctx context.Context, name string) (func(), error) {
	mine := t.join(name)
	select {
	case <-mine.free:
		return func() {
			mine.free <- struct{}{}
			t.leave(name, mine)
		}, nil
	case <-ctx.Done():
		t.leave(name, mine)
		return nil, context.Cause(ctx)
	}
}

func (t *turns) join(name string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held == nil {
		t.held = map[string]*turn{}
	}
	mine := t.held[name]
	if mine == nil {
		mine = &turn{free: make(chan struct{}, 1)}
		mine.free <- struct{}{}
		t.held[name] = mine
	}
	mine.users++
	return mine
}

func (t *turns) leave(name string, mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine.users--; mine.users == 0 {
		delete(t.held, name)
	}
}
