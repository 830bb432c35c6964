// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SQL keeps rows in two tables of its own, maas_usage and maas_usage_batches, in PostgreSQL or SQLite.
type SQL struct {
	db       *sql.DB
	postgres bool
	now      func() time.Time
}

var _ Rows = (*SQL)(nil)

// NewSQL uses an open database.
func NewSQL(db *sql.DB, postgres bool) *SQL { return &SQL{db: db, postgres: postgres, now: time.Now} }

// Rows are found by tenant and hour. Who used what is of any length, so that a digest of it is in the key.
var tables = []string{
	`CREATE TABLE IF NOT EXISTS maas_usage (
		tenant TEXT NOT NULL, hour BIGINT NOT NULL, digest TEXT NOT NULL,
		subscription TEXT NOT NULL, model TEXT NOT NULL, key_id TEXT NOT NULL, username TEXT NOT NULL, organization_id TEXT NOT NULL, cost_center TEXT NOT NULL,
		requests BIGINT NOT NULL, failed_requests BIGINT NOT NULL, estimated_requests BIGINT NOT NULL,
		prompt_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL, total_tokens BIGINT NOT NULL,
		PRIMARY KEY (tenant, hour, digest))`,
	`CREATE TABLE IF NOT EXISTS maas_usage_batches (id TEXT NOT NULL PRIMARY KEY, at BIGINT NOT NULL)`,
	`CREATE INDEX IF NOT EXISTS maas_usage_batches_at ON maas_usage_batches (at)`,
}

// remembered is how long the name of a batch is: nobody tries again after that.
const remembered = 48 * time.Hour

// lockOfTables is the number of the lock under which tables are made: PostgreSQL fails where two make one at a time.
const lockOfTables = 7239810573

// Prepare makes the tables that are missing. It may be called by several at a time, and again.
func (s *SQL) Prepare(ctx context.Context) error {
	err := s.transact(ctx, func(tx *sql.Tx) error {
		if s.postgres {
			if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock("+strconv.Itoa(lockOfTables)+")"); err != nil {
				return err
			}
		}
		for _, table := range tables {
			if _, err := tx.ExecContext(ctx, table); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("make the tables of usage: %w", err)
	}
	return nil
}

func (s *SQL) transact(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback() // the first error says why
		return err
	}
	return tx.Commit()
}

var (
	// identity columns, in order.
	identity = []string{"tenant", "hour", "digest", "subscription", "model", "key_id", "username", "organization_id", "cost_center"}
	// atOnce is how many rows one statement has: databases have a limit for parameters.
	atOnce = 500
)

// digest tells rows of one tenant and hour apart.
func (k Key) digest() string {
	h := sha256.New()
	for _, part := range []string{k.Subscription, k.Model, k.KeyID, k.Username, k.OrganizationID, k.CostCenter} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Add is of Rows.
func (s *SQL) Add(ctx context.Context, batch string, rows []Row) error {
	rows = Aggregate(clean(rows), hourly) // each once, and in one order for all who write, so that none waits for the other in a circle
	err := s.transact(ctx, func(tx *sql.Tx) error {
		if fresh, err := s.remember(ctx, tx, batch); err != nil || !fresh {
			return err
		}
		for chunk := range slices.Chunk(rows, atOnce) {
			if err := s.upsert(ctx, tx, chunk); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	return nil
}

// remember tells whether a batch is a new one.
func (s *SQL) remember(ctx context.Context, tx *sql.Tx, batch string) (bool, error) {
	now := s.now().Unix()
	q := builder{postgres: s.postgres}
	q.add("INSERT INTO maas_usage_batches (id, at) VALUES (", q.arg(batch), ", ", q.arg(now), ") ON CONFLICT DO NOTHING")
	done, err := tx.ExecContext(ctx, q.text.String(), q.args...)
	if err != nil {
		return false, err
	}
	n, err := done.RowsAffected()
	if err != nil || n == 0 {
		return false, err
	}
	q = builder{postgres: s.postgres}
	q.add("DELETE FROM maas_usage_batches WHERE at < ", q.arg(now-int64(remembered.Seconds())))
	_, err = tx.ExecContext(ctx, q.text.String(), q.args...)
	return true, err
}

func (s *SQL) upsert(ctx context.Context, tx *sql.Tx, rows []Row) error {
	q := builder{postgres: s.postgres}
	q.add("INSERT INTO maas_usage (", strings.Join(identity, ", "), ", ", strings.Join(columns, ", "), ") VALUES ")
	for i, r := range rows {
		if i > 0 {
			q.add(", ")
		}
		q.add("(")
		for j, v := range []any{r.Tenant, r.Hour.Unix(), r.Key.digest(), r.Subscription, r.Model, r.KeyID, r.Username, r.OrganizationID, r.CostCenter} {
			if j > 0 {
				q.add(", ")
			}
			q.add(q.arg(v))
		}
		for _, n := range r.values() {
			q.add(", ", q.arg(n))
		}
		q.add(")")
	}
	q.add(" ON CONFLICT (tenant, hour, digest) DO UPDATE SET ")
	for i, c := range columns {
		if i > 0 {
			q.add(", ")
		}
		q.add(c, " = maas_usage.", c, " + excluded.", c)
	}
	_, err := tx.ExecContext(ctx, q.text.String(), q.args...)
	return err
}

// column of a dimension.
var column = map[Dimension]string{
	ByHour: "hour", ByDay: "hour / 86400 * 86400", ByTenant: "tenant", BySubscription: "subscription", ByModel: "model", ByKey: "key_id", ByUser: "username",
	ByOrganization: "organization_id", ByCostCenter: "cost_center",
}

// Sum is of Rows.
func (s *SQL) Sum(ctx context.Context, query Query) ([]Row, error) {
	q, err := s.question(query)
	if err != nil {
		return nil, err
	}
	found, err := s.db.QueryContext(ctx, q.text.String(), q.args...)
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	defer func() { _ = found.Close() }()
	var out []Row
	for found.Next() {
		if query.Limit > 0 && len(out) == query.Limit {
			return nil, ErrTooMany
		}
		var r Row
		var hour int64
		to := make([]any, 0, len(query.By)+len(columns))
		for _, d := range query.By {
			to = append(to, d.field(&r.Key, &hour))
		}
		to = append(to, &r.Requests, &r.Failed, &r.Estimated, &r.Prompt, &r.Completion, &r.Total)
		if err := found.Scan(to...); err != nil {
			return nil, fmt.Errorf("read usage: %w", err)
		}
		if hour != 0 {
			r.Hour = time.Unix(hour, 0).UTC()
		}
		out = append(out, r)
	}
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	return out, nil
}

// field is where a dimension goes.
func (d Dimension) field(k *Key, hour *int64) any {
	return map[Dimension]any{
		ByHour: hour, ByDay: hour, ByTenant: &k.Tenant, BySubscription: &k.Subscription, ByModel: &k.Model, ByKey: &k.KeyID, ByUser: &k.Username,
		ByOrganization: &k.OrganizationID, ByCostCenter: &k.CostCenter,
	}[d]
}

// question is a query in SQL. What the caller says becomes a parameter, and never a part of the text.
func (s *SQL) question(query Query) (*builder, error) {
	q := &builder{postgres: s.postgres}
	q.add("SELECT ")
	var group, order []string
	for _, d := range query.By {
		text := column[d]
		if text == "" {
			return nil, fmt.Errorf("there is no dimension %.32q", d)
		}
		q.add(text, ", ")
		group = append(group, text)
		if s.postgres && d != ByHour && d != ByDay {
			text += ` COLLATE "C"` // as everybody else sorts
		}
		order = append(order, text)
	}
	for i, c := range columns {
		if i > 0 {
			q.add(", ")
		}
		q.add("CAST(SUM(", c, ") AS BIGINT)")
	}
	q.add(" FROM maas_usage WHERE tenant = ", q.arg(query.Tenant))
	q.add(" AND hour >= ", q.arg(query.From.Unix()), " AND hour < ", q.arg(query.To.Unix()))
	for _, f := range []struct{ column, value string }{
		{"subscription", query.Subscription}, {"model", query.Model}, {"key_id", query.KeyID}, {"username", query.Username},
		{"organization_id", query.OrganizationID}, {"cost_center", query.CostCenter},
	} {
		if f.value != "" {
			q.add(" AND ", f.column, " = ", q.arg(plain(f.value)))
		}
	}
	if len(order) > 0 {
		q.add(" GROUP BY ", strings.Join(group, ", "), " ORDER BY ", strings.Join(order, ", "))
	} else {
		q.add(" HAVING COUNT(*) > 0")
	}
	if query.Limit > 0 {
		q.add(" LIMIT ", q.arg(int64(query.Limit)+1))
	}
	return q, nil
}

// Forget removes rows of a tenant that are older, for those who may not keep them.
func (s *SQL) Forget(ctx context.Context, tenant string, before time.Time) (int64, error) {
	q := builder{postgres: s.postgres}
	q.add("DELETE FROM maas_usage WHERE tenant = ", q.arg(tenant), " AND hour < ", q.arg(before.Unix()))
	done, err := s.db.ExecContext(ctx, q.text.String(), q.args...)
	if err != nil {
		return 0, fmt.Errorf("forget usage: %w", err)
	}
	return done.RowsAffected()
}

// builder puts a statement together.
type builder struct {
	postgres bool
	text     strings.Builder
	args     []any
}

func (b *builder) add(parts ...string) {
	for _, p := range parts {
		b.text.WriteString(p)
	}
}

// arg makes a value a parameter and returns what stands for it.
func (b *builder) arg(v any) string {
	b.args = append(b.args, v)
	if b.postgres {
		return "$" + strconv.Itoa(len(b.args))
	}
	return "?"
}

// plain is a text that every database takes. One that none does would keep its batch from being written for ever.
func plain(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

func clean(rows []Row) []Row {
	out := slices.Clone(rows)
	for i := range out {
		k := &out[i].Key
		for _, text := range []*string{&k.Tenant, &k.Subscription, &k.Model, &k.KeyID, &k.Username, &k.OrganizationID, &k.CostCenter} {
			*text = plain(*text)
		}
	}
	return out
}
