// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Session keeps records that live only as long as this process does. When its lease is lost, because etcd was away for
// longer, it takes another one and writes its records again.
type Session struct {
	store *Store
	ttl   time.Duration

	mu    sync.Mutex
	lease clientv3.LeaseID // 0 while there is none
	bound map[string]Write // by key
	wake  chan struct{}
}

// NewSession prepares a session whose lease ends after ttl without a sign of life.
func NewSession(s *Store, ttl time.Duration) *Session {
	return &Session{store: s, ttl: ttl, bound: map[string]Write{}, wake: make(chan struct{}, 1)}
}

// Run keeps the lease until the context ends, then gives it back.
func (s *Session) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.hold(ctx); err != nil && ctx.Err() == nil {
			s.store.log.Warn("The lease in etcd is lost; another one is taken as soon as etcd answers", "err", err.Error())
			wait(ctx, s.ttl/20)
		}
	}
	s.end()
}

// hold takes a lease and keeps it alive until it is lost.
func (s *Session) hold(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, s.ttl)
	granted, err := s.store.client.Grant(asked, int64(max(s.ttl/time.Second, 1)))
	cancel()
	if err != nil {
		return fmt.Errorf("take a lease: %w", err)
	}
	alive, err := s.store.client.KeepAlive(ctx, granted.ID)
	if err != nil {
		return fmt.Errorf("keep the lease: %w", err)
	}
	s.mu.Lock()
	s.lease = granted.ID
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.lease = 0
		s.mu.Unlock()
	}()
	for pending := true; ; {
		if pending {
			pending = s.flush(ctx) != nil
		}
		var again <-chan time.Time
		if pending {
			again = time.After(s.ttl / 20)
		}
		select {
		case _, ok := <-alive:
			if !ok {
				return fmt.Errorf("the lease has ended")
			}
		case <-s.wake:
			pending = true
		case <-again:
		}
	}
}

// flush writes all records with the present lease. They are few.
func (s *Session) flush(ctx context.Context) error {
	s.mu.Lock()
	lease, bound := s.lease, maps.Clone(s.bound)
	s.mu.Unlock()
	for key, write := range bound {
		if write.Lease == lease { // written with this lease already
			continue
		}
		if err := s.write(ctx, key, write, lease); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) write(ctx context.Context, key string, write Write, lease clientv3.LeaseID) error {
	asked, cancel := context.WithTimeout(ctx, s.ttl/2)
	defer cancel()
	put := write
	put.Lease, put.Revision = lease, Any
	if _, err := s.store.Commit(asked, put); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, ok := s.bound[key]; ok && string(now.Value) == string(write.Value) {
		now.Lease = lease
		s.bound[key] = now
	}
	return nil
}

// Keep writes a record that lives as long as the session. It returns at once; etcd has the record soon, and again whenever
// it lost it.
func (s *Session) Keep(table, id string, value []byte) {
	s.mu.Lock()
	s.bound[s.store.Key(table, id)] = Write{Table: table, ID: id, Value: value}
	s.mu.Unlock()
	s.poke()
}

// Renew writes a record again that somebody else has removed.
func (s *Session) Renew(table, id string) {
	s.mu.Lock()
	key := s.store.Key(table, id)
	if write, ok := s.bound[key]; ok {
		write.Lease = 0
		s.bound[key] = write
	}
	s.mu.Unlock()
	s.poke()
}

func (s *Session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Forget removes a record.
func (s *Session) Forget(ctx context.Context, table, id string) error {
	s.mu.Lock()
	delete(s.bound, s.store.Key(table, id))
	s.mu.Unlock()
	_, err := s.store.Commit(ctx, Write{Table: table, ID: id, Revision: Any})
	return err
}

// Lease is 0 while there is none.
func (s *Session) Lease() clientv3.LeaseID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

// end gives the lease back, so that nobody waits for it to run out.
func (s *Session) end() {
	s.mu.Lock()
	lease := s.lease
	s.mu.Unlock()
	if lease == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = s.store.client.Revoke(ctx, lease)
}
