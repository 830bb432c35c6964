// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/modelplane/modelplane/internal/maas/keys"
)

// Sort is a column by which keys can be listed.
type Sort string

// Every one.
const (
	ByCreated  Sort = "created_at"
	ByExpires  Sort = "expires_at"
	ByLastUsed Sort = "last_used_at"
	ByName     Sort = "name"
)

// Query asks for keys of a tenant. Zero fields limit nothing, except that ephemeral keys are left out unless they are asked for.
type Query struct {
	Tenant, Username, Subscription string
	// Statuses at Now, of which one must fit.
	Statuses         []keys.Status
	Now              time.Time
	IncludeEphemeral bool
	// Labels must all be there.
	Labels map[string]string

	CreatedAfter, CreatedBefore, ExpiresAfter, ExpiresBefore, LastUsedAfter time.Time
	NameContains, DescriptionContains                                       string
	HasExpiration, HasBeenUsed                                              *bool

	// Sort is ByCreated if empty. What has no value comes last in either direction.
	Sort      Sort
	Ascending bool
	Limit     int
	Offset    int
	// After continues behind a key of the same question, which costs the same however far one has come.
	After *Position
}

// Position of a key in a list.
type Position struct {
	// Name is for ByName; Time for the others, zero for none.
	Name string    `json:"n,omitempty"`
	Time time.Time `json:"t,omitzero"`
	ID   string    `json:"i"`
}

// PositionOf a key in a list that is sorted by a column.
func PositionOf(r *keys.Record, by Sort) Position {
	p := Position{ID: r.ID}
	switch by {
	case ByName:
		p.Name = r.Name
	case ByExpires:
		p.Time = r.Expires
	case ByLastUsed:
		p.Time = r.LastUsed
	default:
		p.Time = r.Created
	}
	return p
}

// Search lists keys, and tells whether there are more behind them.
func (s *Store) Search(ctx context.Context, ask Query) (found []*keys.Record, more bool, err error) {
	q := s.query("SELECT " + columns + " FROM api_keys WHERE tenant = ")
	q.add(q.arg(ask.Tenant))
	if err := s.filter(q, ask); err != nil {
		return nil, false, err
	}
	s.order(q, ask)
	q.add(" LIMIT ", q.arg(ask.Limit+1))
	if ask.Offset > 0 {
		q.add(" OFFSET ", q.arg(ask.Offset))
	}
	found, err = s.all(ctx, q)
	if err != nil {
		return nil, false, wrap("list keys", err)
	}
	if len(found) > ask.Limit {
		return found[:ask.Limit], true, nil
	}
	return found, false, nil
}

func (s *Store) filter(q *query, ask Query) error {
	for column, value := range map[string]string{"username": ask.Username, "subscription": ask.Subscription} {
		if value != "" {
			q.add(" AND ", column, " = ", q.arg(value))
		}
	}
	if !ask.IncludeEphemeral {
		q.add(" AND NOT ephemeral")
	}
	s.statuses(q, ask)
	for _, t := range []struct {
		compare string
		time    time.Time
	}{
		{"created_at > ", ask.CreatedAfter}, {"created_at < ", ask.CreatedBefore}, {"expires_at > ", ask.ExpiresAfter},
		{"expires_at < ", ask.ExpiresBefore}, {"last_used_at > ", ask.LastUsedAfter},
	} {
		if !t.time.IsZero() {
			q.add(" AND ", t.compare, q.arg(s.time(t.time)))
		}
	}
	for column, wanted := range map[string]*bool{"expires_at": ask.HasExpiration, "last_used_at": ask.HasBeenUsed} {
		switch {
		case wanted == nil:
		case *wanted:
			q.add(" AND ", column, " IS NOT NULL")
		default:
			q.add(" AND ", column, " IS NULL")
		}
	}
	for column, part := range map[string]string{"name": ask.NameContains, "description": ask.DescriptionContains} {
		if part != "" {
			within := "instr"
			if s.postgres {
				within = "strpos"
			}
			q.add(" AND ", within, "(lower(", column, "), lower(", q.arg(part), ")) > 0")
		}
	}
	return s.labels(q, ask.Labels)
}

func (s *Store) statuses(q *query, ask Query) {
	if len(ask.Statuses) == 0 {
		return
	}
	q.add(" AND (FALSE")
	for _, status := range ask.Statuses {
		switch status {
		case keys.Active:
			q.add(" OR status = 'active' AND (expires_at IS NULL OR expires_at > ", q.arg(s.time(ask.Now)), ")")
		case keys.Expired:
			q.add(" OR status = 'expired' OR status = 'active' AND expires_at <= ", q.arg(s.time(ask.Now)))
		case keys.Revoked:
			q.add(" OR status = 'revoked'")
		}
	}
	q.add(")")
}

func (s *Store) labels(q *query, labels map[string]string) error {
	if len(labels) == 0 {
		return nil
	}
	if s.postgres {
		text, err := json.Marshal(labels)
		if err != nil {
			return err
		}
		q.add(" AND labels @> ", q.arg(string(text)), "::jsonb")
		return nil
	}
	for key, value := range labels {
		q.add(" AND EXISTS (SELECT 1 FROM json_each(labels) WHERE key = ", q.arg(key), " AND value = ", q.arg(value), ")")
	}
	return nil
}

// order sorts, and begins behind a position.
func (s *Store) order(q *query, ask Query) {
	by := ask.Sort
	if by == "" {
		by = ByCreated
	}
	direction, beyond, ids, idsBeyond := " DESC", " < ", " ASC", " > "
	if ask.Ascending {
		direction, beyond, ids, idsBeyond = " ASC", " > ", " DESC", " < "
	}
	column, nullable := string(by), by == ByExpires || by == ByLastUsed
	if p := ask.After; p != nil {
		var value any = p.Name
		if by != ByName {
			value = s.time(p.Time)
		}
		if value == nil {
			q.add(" AND ", column, " IS NULL AND id", idsBeyond, q.arg(p.ID))
		} else {
			q.add(" AND (", column, beyond, q.arg(value), " OR ", column, " = ", q.arg(value), " AND id", idsBeyond, q.arg(p.ID))
			if nullable {
				q.add(" OR ", column, " IS NULL")
			}
			q.add(")")
		}
	}
	q.add(" ORDER BY ")
	if nullable {
		q.add(column, " IS NULL, ")
	}
	q.add(column, direction, ", id", ids)
}
