// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Uses collects when keys were used and writes them together, because a write for each would cost more than the check.
type Uses struct {
	store interface {
		Used(ctx context.Context, uses map[string]time.Time) error
	}
	every time.Duration
	log   *slog.Logger

	mu      sync.Mutex
	waiting map[string]time.Time
	lost    uint64
}

const (
	// maxWaiting bounds what waits for a database that is away; what is more is lost, and counted.
	maxWaiting = 100_000
	flushTime  = 5 * time.Second
)

// NewUses writes to a store every so often.
func NewUses(s *Store, every time.Duration, log *slog.Logger) *Uses {
	return &Uses{store: s, every: every, log: log, waiting: map[string]time.Time{}}
}

// Note that a key was used. It never blocks for long.
func (u *Uses) Note(id string, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if before, ok := u.waiting[id]; !ok && len(u.waiting) >= maxWaiting {
		u.lost++
	} else if at.After(before) {
		u.waiting[id] = at
	}
}

// Run writes until the context ends, and then once more.
func (u *Uses) Run(ctx context.Context) error {
	tick := time.NewTicker(u.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			u.Flush(ctx)
		case <-ctx.Done():
			u.last(context.WithoutCancel(ctx))
			return nil
		}
	}
}

func (u *Uses) last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	u.Flush(ctx)
}

// Flush writes what waits; what cannot be written waits on.
func (u *Uses) Flush(ctx context.Context) {
	u.mu.Lock()
	taken, lost := u.waiting, u.lost
	u.waiting, u.lost = map[string]time.Time{}, 0
	u.mu.Unlock()
	if lost > 0 {
		u.log.Warn("Times of use were lost: the database was away for too long", "keys", lost)
	}
	if err := u.store.Used(ctx, taken); err != nil {
		u.log.Warn("Times of use cannot be written; they are kept", "keys", len(taken), "err", err.Error())
		for id, at := range taken {
			u.Note(id, at)
		}
	}
}
