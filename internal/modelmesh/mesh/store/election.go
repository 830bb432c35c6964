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
	leads   atomic.Bool
	led     func()
	moved   chan struct{}
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
func (e *Election) Leads() bool { return e.leads.Load() }

func (e *Election) become(leads bool) {
	if e.leads.Swap(leads) != leads && leads {
		e.led()
	}
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
	e.leads.Store(false)
}

// campaign takes the record when nobody has it.
func (e *Election) campaign(ctx context.Context) error {
	row, taken := e.table.Get(leader)
	lease := e.session.Lease()
	if taken {
		mine := *row.Value == e.self
		if mine && !e.leads.Load() && lease != 0 {
			// The record is of a former life of this process, or was written and the answer lost: make it this session's.
			return e.take(ctx, row.Revision)
		}
		e.become(mine && lease != 0)
		return nil
	}
	if lease == 0 {
		e.leads.Store(false)
		return errors.New("there is no lease")
	}
	return e.take(ctx, 0)
}

func (e *Election) take(ctx context.Context, revision int64) error {
	asked, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	lease := e.session.Lease()
	now, err := e.session.store.Commit(asked, Write{Table: latch, ID: leader, Revision: revision, Value: []byte(e.self), Lease: lease})
	if err != nil {
		e.leads.Store(false)
		if errors.Is(err, ErrConflict) {
			_, _, err = e.table.Refresh(asked, leader)
		}
		return err
	}
	e.table.set(leader, &e.self, now)
	e.become(true)
	return nil
}
