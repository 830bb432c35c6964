// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// latch is the table with the one record that its owner leads by.
const (
	latch  = "leaderLatch"
	leader = "leader"
)

// Election makes one process of all the leader. Two may believe for a moment that they are it, so whatever a leader writes
// is compared first like everything else.
type Election struct {
	session *Session
	table   *Table[string]
	self    string
	// held is the lease that the record was written with, 0 when that was somebody else's: whoever has lost it leads no more,
	// also before he has heard who does.
	held  atomic.Int64
	led   func()
	moved chan struct{}
}

// NewElection prepares a candidate. led is called whenever it becomes the leader: what nobody did while there was none is
// to be done then.
func NewElection(s *Store, session *Session, self string, led func()) *Election {
	e := &Election{session: session, self: self, led: led, moved: make(chan struct{}, 1)}
	e.table = NewTable(s, latch, Codec[string]{
		Decode: func(raw []byte) (*string, error) { name := string(raw); return &name, nil },
		Encode: func(name *string) ([]byte, error) { return []byte(*name), nil },
	}, func(string, *string, *string) { e.poke() })
	return e
}

func (e *Election) poke() {
	select {
	case e.moved <- struct{}{}:
	default:
	}
}

// Leads tells whether this process is the leader.
func (e *Election) Leads() bool {
	held := e.held.Load()
	return held != 0 && held == int64(e.session.Lease())
}

// Run is a candidate until the context ends.
func (e *Election) Run(ctx context.Context) {
	go e.table.Run(ctx)
	select {
	case <-e.table.Synced():
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		err := e.campaign(ctx)
		pause := time.Minute
		if err != nil {
			pause = time.Second
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-e.moved:
		case <-timer.C:
		}
		timer.Stop()
	}
	e.held.Store(0)
}

// campaign takes the record when nobody has it.
func (e *Election) campaign(ctx context.Context) error {
	row, taken := e.table.Get(leader)
	lease := e.session.Lease()
	switch {
	case taken && *row.Value != e.self:
		e.held.Store(0)
		return nil
	case taken && e.Leads():
		return nil
	case lease == 0:
		e.held.Store(0)
		return errors.New("there is no lease")
	case taken: // it is of a former life of this process, or of a lease that it lost, or the answer was lost: make it this lease's
		return e.take(ctx, row.Revision)
	}
	return e.take(ctx, 0)
}

func (e *Election) take(ctx context.Context, revision int64) error {
	asked, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	lease := e.session.Lease()
	now, err := e.session.store.Commit(asked, Write{Table: latch, ID: leader, Revision: revision, Value: []byte(e.self), Lease: lease})
	if err != nil {
		e.held.Store(0)
		if errors.Is(err, ErrConflict) {
			_, _, err = e.table.Refresh(asked, leader)
		}
		return err
	}
	e.table.set(leader, &e.self, now)
	e.held.Store(int64(lease))
	e.led()
	return nil
}
