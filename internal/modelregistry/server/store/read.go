// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/server/entity"
	"github.com/modelplane/modelplane/internal/modelregistry/server/filter"
)

// Order is what a list is sorted by. Entities that are equal in it are sorted by their ids.
type Order string

// What lists can be sorted by.
const (
	ByID      Order = "id"
	ByCreated Order = "create_time_since_epoch"
	ByUpdated Order = "last_update_time_since_epoch"
)

// Cursor is the last entity of a page: the next page begins behind it, whatever is written meanwhile.
type Cursor struct{ ID, Value int64 }

// Query asks for entities. What is not set does not narrow it.
type Query struct {
	// Kinds, all of one family of tables.
	Kinds []*entity.Kind
	ID    int64
	// Name as clients know it.
	Name       *string
	ExternalID *string
	// Parent is a context that they belong to.
	Parent int64
	Filter filter.Expr
	// Steps of metrics, and the name of the metric whose history is asked for.
	Steps     []int64
	HistoryOf string

	Order Order
	Desc  bool
	After *Cursor
	// Limit is the most that are found; it must be set.
	Limit int
}

// asker is a database or a transaction in it.
type asker interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// List finds entities, in two questions however many there are.
func (s *Store) List(ctx context.Context, q Query) ([]*entity.Record, error) {
	found, err := s.find(ctx, s.db, q, "")
	return found, s.outcome(err)
}

// Get finds the one entity that a query means. Several are as good as none.
func (s *Store) Get(ctx context.Context, q Query) (*entity.Record, error) {
	q.Limit = 2
	found, err := s.List(ctx, q)
	if err == nil && len(found) != 1 {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// find reads the main rows, then the properties of all of them.
func (s *Store) find(ctx context.Context, db asker, q Query, lock string) ([]*entity.Record, error) {
	b, err := s.selection(q)
	if err != nil {
		return nil, err
	}
	b.add("%s", lock)
	records, err := s.rows(ctx, db, b)
	if err != nil || len(records) == 0 {
		return records, err
	}
	return records, s.readProperties(ctx, db, b.of, records)
}

// selection writes the question for the main rows.
func (s *Store) selection(q Query) (*builder, error) {
	of := families[q.Kinds[0].Table]
	b := s.query(q.Kinds[0].Table, "SELECT e.id, e.type_id, e.name, e.external_id, e.create_time_since_epoch, e.last_update_time_since_epoch")
	for _, column := range of.columns {
		b.add(", e.%s", column)
	}
	b.add(" FROM %s e", b.table(string(b.of)))
	if q.Parent > 0 {
		b.add(" JOIN %s l ON l.%s = e.id AND l.%s = %s", b.table(of.links), of.child, of.above, b.arg(q.Parent))
	}
	types := make([]string, len(q.Kinds))
	for i, k := range q.Kinds {
		types[i] = strconv.FormatInt(s.types[k], 10)
	}
	b.add(" WHERE e.type_id IN (%s)", strings.Join(types, ", "))
	if err := b.narrow(q); err != nil {
		return nil, err
	}
	order, direction := cmp.Or(q.Order, ByID), map[bool]string{false: "ASC", true: "DESC"}[q.Desc]
	if order != ByID {
		b.add(" ORDER BY e.%s %s, e.id %s", order, direction, direction)
	} else {
		b.add(" ORDER BY e.id %s", direction)
	}
	b.add(" LIMIT %d", q.Limit)
	return b, nil
}

// narrow adds the conditions.
func (b *builder) narrow(q Query) error {
	if q.ID > 0 {
		b.add(" AND e.id = %s", b.arg(q.ID))
	}
	if q.Name != nil {
		b.withName(q.Kinds[0], *q.Name, q.Parent)
	}
	if q.ExternalID != nil {
		b.add(" AND e.external_id = %s", b.arg(*q.ExternalID))
		b.add(" AND %s = %s", fmt.Sprintf(b.equal, "e.external_id"), fmt.Sprintf(b.parameter, b.arg(*q.ExternalID)))
	}
	if q.HistoryOf != "" {
		b.historyOf(q.Kinds[0], q.HistoryOf)
	}
	if q.Steps != nil {
		condition, err := b.exists("step", false, func() (string, error) { return "p.int_value IN " + list(b, q.Steps), nil })
		if err != nil {
			return err
		}
		b.add(" AND %s", condition)
	}
	if q.Filter != nil {
		condition, err := b.where(q.Filter, q.Kinds)
		if err != nil {
			return err
		}
		b.add(" AND %s", condition)
	}
	if q.After != nil {
		b.behind(q)
	}
	return nil
}

// withName compares the name: with an index where the whole of what is stored is known.
func (b *builder) withName(k *entity.Kind, name string, parent int64) {
	switch {
	case !k.Prefixed():
		b.add(" AND e.name = %s", b.arg(name))
		b.add(" AND %s = %s", fmt.Sprintf(b.equal, "e.name"), fmt.Sprintf(b.parameter, b.arg(name)))
	case k.Parent != nil && parent > 0:
		b.add(" AND e.name = %s", b.arg(storedName(parent, name)))
		b.add(" AND %s = %s", fmt.Sprintf(b.equal, "e.name"), fmt.Sprintf(b.parameter, b.arg(storedName(parent, name))))
	default:
		b.add(" AND %s = %s", fmt.Sprintf(b.equal, b.nameOf(k)), fmt.Sprintf(b.parameter, b.arg(name)))
	}
}

// HistorySign stands between the name of a metric and the moment in which it was written.
const HistorySign = "__"

// historyOf finds the history of a metric: its name with a number behind the sign, and not that of another metric whose name
// begins alike.
func (b *builder) historyOf(k *entity.Kind, metric string) {
	literal := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)
	begin := literal.Replace(metric + HistorySign)
	name := fmt.Sprintf(b.like, b.nameOf(k))
	b.add(" AND %s LIKE %s%s", name, b.arg(begin+"%"), b.escape)
	b.add(" AND %s NOT LIKE %s%s", name, b.arg(begin+"%"+literal.Replace(HistorySign)+"%"), b.escape)
}

func storedName(parent int64, name string) string { return strconv.FormatInt(parent, 10) + ":" + name }

// behind begins after the last entity of the page before.
func (b *builder) behind(q Query) {
	sign := map[bool]string{false: ">", true: "<"}[q.Desc]
	order := cmp.Or(q.Order, ByID)
	if order == ByID {
		b.add(" AND e.id %s %s", sign, b.arg(q.After.ID))
		return
	}
	b.add(" AND e.%s %s= %s", order, sign, b.arg(q.After.Value)) // an index begins there
	b.add(" AND (e.%s %s %s", order, sign, b.arg(q.After.Value))
	b.add(" OR e.id %s %s)", sign, b.arg(q.After.ID))
}

// rows reads the main rows.
func (s *Store) rows(ctx context.Context, db asker, b *builder) ([]*entity.Record, error) {
	rows, err := db.QueryContext(ctx, b.text.String(), b.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []*entity.Record
	for rows.Next() {
		r, err := s.scan(rows, b.of)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

func (s *Store) scan(rows *sql.Rows, of entity.Table) (*entity.Record, error) {
	var (
		typ              int64
		name, externalID sql.NullString
		uri              sql.NullString
		state            sql.NullInt64
	)
	r := &entity.Record{Values: map[string]any{}, Custom: map[string]entity.Value{}}
	into := []any{&r.ID, &typ, &name, &externalID, &r.Created, &r.Updated}
	switch of {
	case entity.Artifacts:
		into = append(into, &uri, &state)
	case entity.Executions:
		into = append(into, &state)
	}
	if err := rows.Scan(into...); err != nil {
		return nil, err
	}
	if r.Kind = s.kinds[typ]; r.Kind == nil {
		return nil, fmt.Errorf("entity %d is of a type that nobody knows", r.ID)
	}
	if externalID.Valid {
		r.ExternalID = &externalID.String
	}
	named(r, name.String)
	for _, f := range r.Kind.Fields {
		switch {
		case f.At != entity.InColumn:
		case f.Type == entity.Enum && state.Valid && state.Int64 >= 0 && state.Int64 < int64(len(f.Words)):
			r.Values[f.Name] = f.Words[state.Int64]
		case f.Type != entity.Enum && uri.Valid:
			r.Values[f.Name] = uri.String
		}
	}
	return r, nil
}

// named takes the stored name apart: what clients call it, and to whom it belongs, which not every server has written down
// elsewhere as well.
func named(r *entity.Record, stored string) {
	if !r.Kind.Prefixed() {
		r.Name = &stored
		return
	}
	before, name, found := strings.Cut(stored, ":")
	if !found {
		before, name = "", stored
	}
	r.Name = &name
	if p := r.Kind.Parent; p != nil && p.Field != "" {
		if id, err := strconv.ParseInt(before, 10, 64); err == nil {
			r.Values[p.Field] = id
		}
	}
}

// readProperties reads those of all records at once.
func (s *Store) readProperties(ctx context.Context, db asker, of entity.Table, records []*entity.Record) error {
	byID := make(map[int64]*entity.Record, len(records))
	for _, r := range records {
		byID[r.ID] = r
	}
	f := families[of]
	b := s.query(of, "SELECT %s, name, is_custom_property, int_value, double_value, string_value, bool_value FROM %s WHERE %s ",
		f.owner, s.table(f.properties), f.owner)
	b.add("%s", b.among(slices.Collect(maps.Keys(byID))))
	rows, err := db.QueryContext(ctx, b.text.String(), b.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var p property
		if err := rows.Scan(&id, &p.name, &p.custom, &p.whole, &p.double, &p.text, &p.truth); err != nil {
			return err
		}
		p.into(byID[id])
	}
	return rows.Err()
}

// property is one row of a property table.
type property struct {
	name   string
	custom bool
	whole  sql.NullInt64
	double sql.NullFloat64
	text   sql.NullString
	truth  sql.NullBool
}

// value is what the row holds; nil if that is nothing which clients can be told.
func (p property) value() entity.Value {
	switch {
	case p.whole.Valid:
		return p.whole.Int64
	case p.double.Valid:
		return p.double.Float64
	case p.truth.Valid:
		return p.truth.Bool
	case p.text.Valid:
		return entity.LoadString(p.text.String)
	}
	return nil
}

// into puts the property where it belongs: a field, the description or a custom property.
func (p property) into(r *entity.Record) {
	for _, f := range r.Kind.Fields {
		if f.Stored == p.name && f.At != entity.InColumn && p.custom == (f.At == entity.InPath) {
			if value := p.field(f); value != nil {
				r.Values[f.Name] = value
			}
			return
		}
	}
	switch value := p.value(); {
	case value == nil:
	case p.custom:
		r.Custom[p.name] = value
	case p.name == "description" && p.text.Valid:
		r.Description = &p.text.String
	}
}

// field reads a value of a field, in whichever column it is: numbers have been stored as text, too.
func (p property) field(f entity.Field) any {
	switch f.Type {
	case entity.ID, entity.Number, entity.Step:
		if p.whole.Valid {
			return p.whole.Int64
		}
		if n, err := strconv.ParseInt(p.text.String, 10, 64); p.text.Valid && err == nil {
			return n
		}
	case entity.Double:
		if p.double.Valid {
			return p.double.Float64
		}
	case entity.Texts:
		if texts, ok := entity.LoadTexts(f.Stored, p.text.String); p.text.Valid && ok {
			return texts
		}
	default:
		if p.text.Valid {
			return p.text.String
		}
	}
	return nil
}
