// SPDX-License-Identifier: Apache-2.0

// Package store keeps API keys in a database: PostgreSQL, also one that the known server of this API has filled, or for one
// machine an SQLite file. It tells whoever listens of every change, and knows nothing of HTTP, of who may do what, or of
// the keys themselves: it sees digests only.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/maas/keys"
)

// Config says where the database is, and how many connections to it are kept. Zero numbers take the defaults.
type Config struct {
	// URL begins with postgres:// or postgresql://, or is sqlite:// and the path of a file.
	URL string
	// MaxOpen connections (25) of which MaxIdle (as many) stay open when nobody asks, each for Lifetime (5 minutes).
	MaxOpen, MaxIdle int
	Lifetime         time.Duration
	// Within is how long one question may take (5 seconds).
	Within time.Duration
	Log    *slog.Logger
}

// Store is a database that is ready to be asked. Every question is bounded in time; an error of type *Unavailable means that it may
// be asked again later.
type Store struct {
	*dialect
	db     *sql.DB
	within time.Duration
	log    *slog.Logger
	// listen connects for Watch; nil where nobody else can change anything.
	listen func(context.Context) (listener, error)
	lock   io.Closer // of a file

	mu    sync.Mutex
	sinks map[Sink]bool
}

// Sink hears of changes; keys.Cache is one.
type Sink interface {
	// Forget what is known of a key; ForgetAll of all keys.
	Forget(id string)
	ForgetAll()
	// Trust says until when no change can have been missed.
	Trust(until time.Time)
}

// dialect is how one kind of database wants to be asked.
type dialect struct {
	postgres bool
	// time and list turn values into parameters.
	time func(time.Time) any
	list func([]string) (any, error)
}

const columns = "id, tenant, username, name, description, user_groups, subscription, labels, ephemeral, status, created_at, expires_at, last_used_at, key_hash"

// Create keeps a new key.
func (s *Store) Create(ctx context.Context, r *keys.Record) error {
	q := s.query("INSERT INTO api_keys (" + columns + ") VALUES (")
	groups, err := s.list(r.Groups)
	if err != nil {
		return err
	}
	labels, err := labelsParameter(r.Labels)
	if err != nil {
		return err
	}
	description := sql.NullString{String: r.Description, Valid: r.Description != ""}
	for i, v := range []any{
		r.ID, r.Tenant, r.Username, r.Name, description, groups, r.Subscription, labels, r.Ephemeral, string(r.Stored), s.time(r.Created), s.time(r.Expires), s.time(r.LastUsed), r.Digest,
	} {
		if i > 0 {
			q.add(", ")
		}
		q.add(q.arg(v))
	}
	q.add(")")
	_, err = s.exec(ctx, q)
	return wrap("keep a key", err)
}

// Find is the key of one of some digests; keys.ErrNotFound if there is none.
func (s *Store) Find(ctx context.Context, tenant string, digests []string) (*keys.Record, error) {
	q := s.query("SELECT " + columns + " FROM api_keys WHERE tenant = ")
	q.add(q.arg(tenant), " AND key_hash IN (")
	for i, d := range digests {
		if i > 0 {
			q.add(", ")
		}
		q.add(q.arg(d))
	}
	q.add(")")
	return s.one(ctx, q)
}

// Get is a key by its id.
func (s *Store) Get(ctx context.Context, tenant, id string) (*keys.Record, error) {
	q := s.query("SELECT " + columns + " FROM api_keys WHERE tenant = ")
	q.add(q.arg(tenant), " AND id = ", q.arg(id))
	return s.one(ctx, q)
}

// Revoke ends an active key and gives it as it is then; keys.ErrNotFound if it is not there or not active.
func (s *Store) Revoke(ctx context.Context, tenant, id string, now time.Time) (*keys.Record, error) {
	q := s.query("UPDATE api_keys SET status = 'revoked' WHERE tenant = ")
	q.add(q.arg(tenant), " AND id = ", q.arg(id))
	s.live(q, now)
	q.add(" RETURNING " + columns)
	r, err := s.one(ctx, q)
	if err == nil {
		s.tell(func(sink Sink) { sink.Forget(id) })
	}
	return r, err
}

// Scope is which keys are meant: those of a user, of a subscription, or of both at once; without either, of the tenant.
type Scope struct{ Tenant, Username, Subscription string }

func (s *Store) scoped(q *query, scope Scope, now time.Time) {
	q.add(" WHERE tenant = ", q.arg(scope.Tenant))
	if scope.Username != "" {
		q.add(" AND username = ", q.arg(scope.Username))
	}
	if scope.Subscription != "" {
		q.add(" AND subscription = ", q.arg(scope.Subscription))
	}
	s.live(q, now)
}

// RevokeAll ends all active keys of a scope and tells how many they were.
func (s *Store) RevokeAll(ctx context.Context, scope Scope, now time.Time) (int64, error) {
	q := s.query("UPDATE api_keys SET status = 'revoked'")
	s.scoped(q, scope, now)
	n, err := s.exec(ctx, q)
	if n > 0 {
		s.tell(Sink.ForgetAll)
	}
	return n, wrap("revoke keys", err)
}

// CountActive keys of a scope.
func (s *Store) CountActive(ctx context.Context, scope Scope, now time.Time) (int64, error) {
	q := s.query("SELECT count(*) FROM api_keys")
	s.scoped(q, scope, now)
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	var n int64
	err := s.db.QueryRowContext(ctx, q.text.String(), q.args...).Scan(&n)
	return n, wrap("count keys", s.outcome(err))
}

// CleanUp forgets ephemeral keys that expired before a time.
func (s *Store) CleanUp(ctx context.Context, tenant string, before time.Time) (int64, error) {
	q := s.query("DELETE FROM api_keys WHERE ephemeral AND tenant = ")
	q.add(q.arg(tenant), " AND expires_at < ", q.arg(s.time(before)))
	n, err := s.exec(ctx, q)
	if n > 0 {
		s.tell(Sink.ForgetAll)
	}
	return n, wrap("remove expired keys", err)
}

// usesAtOnce is how many uses one statement notes: it holds their rows, and whoever revokes one of these keys waits for its end.
const usesAtOnce = 1000

// Used notes when keys were used last.
func (s *Store) Used(ctx context.Context, uses map[string]time.Time) error {
	// In order, so that replicas that note the same keys do not wait for each other.
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(uses)), usesAtOnce) {
		if err := s.usedAtOnce(ctx, ids, uses); err != nil {
			return wrap("note the use of keys", s.outcome(err))
		}
	}
	return nil
}

func (s *Store) usedAtOnce(ctx context.Context, ids []string, uses map[string]time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	if !s.postgres {
		return s.usedOneByOne(ctx, ids, uses)
	}
	times := make([]time.Time, 0, len(ids))
	for _, id := range ids {
		times = append(times, uses[id])
	}
	_, err := s.db.ExecContext(ctx, `UPDATE api_keys SET last_used_at = u.at FROM unnest($1::text[], $2::timestamptz[]) AS u(id, at)
		WHERE api_keys.id = u.id AND (last_used_at IS NULL OR last_used_at < u.at)`, ids, times)
	return err
}

func (s *Store) usedOneByOne(ctx context.Context, ids []string, uses map[string]time.Time) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing is left to roll back once it is committed
	for _, id := range ids {
		at := s.time(uses[id])
		if _, err := tx.ExecContext(ctx, "UPDATE api_keys SET last_used_at = ? WHERE id = ? AND (last_used_at IS NULL OR last_used_at < ?)", at, id, at); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Check asks whether the database answers and has the table.
func (s *Store) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	rows, err := s.db.QueryContext(ctx, "SELECT id FROM api_keys LIMIT 1")
	if err != nil {
		return s.outcome(err)
	}
	defer rows.Close()
	rows.Next()
	return s.outcome(rows.Err())
}

// Close ends all connections.
func (s *Store) Close() error {
	err := s.db.Close()
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// Postgres tells that the database is one that several servers may share.
func (s *Store) Postgres() bool { return s.postgres }

// DB is for those who count its connections, and for tables of others.
func (s *Store) DB() *sql.DB { return s.db }

// live limits a statement to keys that can be used.
func (s *Store) live(q *query, now time.Time) {
	q.add(" AND status = 'active' AND (expires_at IS NULL OR expires_at > ", q.arg(s.time(now)), ")")
}

// tell everybody in this process; those in others hear of it from the database.
func (s *Store) tell(what func(Sink)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sink := range s.sinks {
		what(sink)
	}
}

func (s *Store) exec(ctx context.Context, q *query) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	result, err := s.db.ExecContext(ctx, q.text.String(), q.args...)
	if err != nil {
		return 0, s.outcome(err)
	}
	return result.RowsAffected()
}

func (s *Store) one(ctx context.Context, q *query) (*keys.Record, error) {
	found, err := s.all(ctx, q)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, keys.ErrNotFound
	}
	return found[0], nil
}

func (s *Store) all(ctx context.Context, q *query) ([]*keys.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	rows, err := s.db.QueryContext(ctx, q.text.String(), q.args...)
	if err != nil {
		return nil, s.outcome(err)
	}
	defer rows.Close()
	out := []*keys.Record{}
	for rows.Next() {
		r, err := s.scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, s.outcome(rows.Err())
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
