// SPDX-License-Identifier: Apache-2.0

package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/modelplane/modelplane/internal/maas/keys"
)

// query is put together from parts of ours. What clients say becomes a parameter, and never a part of the text.
type query struct {
	numbered bool
	text     strings.Builder
	args     []any
}

func (d *dialect) query(text string) *query {
	q := &query{numbered: d.postgres}
	q.add(text)
	return q
}

func (q *query) add(parts ...string) {
	for _, p := range parts {
		q.text.WriteString(p)
	}
}

// arg makes a value a parameter and returns what stands for it.
func (q *query) arg(v any) string {
	q.args = append(q.args, v)
	if q.numbered {
		return "$" + strconv.Itoa(len(q.args))
	}
	return "?"
}

var postgres = &dialect{
	postgres: true,
	time: func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t
	},
	list: func(v []string) (any, error) {
		if v == nil {
			v = []string{}
		}
		return v, nil
	},
}

var sqlite = &dialect{
	time: func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t.UnixMicro()
	},
	list: func(v []string) (any, error) {
		if v == nil {
			v = []string{}
		}
		text, err := json.Marshal(v)
		return string(text), err
	},
}

// labelsParameter is JSON, or nothing.
func labelsParameter(labels map[string]string) (any, error) {
	if len(labels) == 0 {
		return nil, nil //nolint:nilnil // NULL is the parameter
	}
	text, err := json.Marshal(labels)
	return string(text), err
}

// stamp reads a time of either kind.
type stamp struct{ time.Time }

func (s *stamp) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		s.Time = time.Time{}
	case time.Time:
		s.Time = v.UTC()
	case int64:
		s.Time = time.UnixMicro(v).UTC()
	default:
		return fmt.Errorf("a time is stored as %T", v)
	}
	return nil
}

var pgTypes = pgtype.NewMap()

func (s *Store) scan(rows *sql.Rows) (*keys.Record, error) {
	var (
		r                      keys.Record
		description, labels    sql.NullString
		groupsText             string
		created, expires, used stamp
		status                 string
		groups                 any = &groupsText
	)
	if s.postgres {
		groups = pgTypes.SQLScanner(&r.Groups)
	}
	if err := rows.Scan(&r.ID, &r.Tenant, &r.Username, &r.Name, &description, groups, &r.Subscription, &labels, &r.Ephemeral, &status, &created, &expires, &used, &r.Digest); err != nil {
		return nil, fmt.Errorf("read a key: %w", s.outcome(err))
	}
	if !s.postgres {
		if err := json.Unmarshal([]byte(groupsText), &r.Groups); err != nil {
			return nil, fmt.Errorf("read the groups of key %s: %w", r.ID, err)
		}
	}
	if labels.Valid {
		if err := json.Unmarshal([]byte(labels.String), &r.Labels); err != nil {
			return nil, fmt.Errorf("read the labels of key %s: %w", r.ID, err)
		}
	}
	r.Description, r.Stored = description.String, keys.Status(status)
	r.Created, r.Expires, r.LastUsed = created.Time, expires.Time, used.Time
	return &r, nil
}
