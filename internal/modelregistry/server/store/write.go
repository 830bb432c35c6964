// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/modelplane/modelplane/internal/modelregistry/server/entity"
)

// maxStored is how long the column for names is.
const maxStored = 255

// Tx is a transaction: what is written in it is there as a whole, or not at all.
type Tx struct {
	s  *Store
	tx *sql.Tx
}

// Write does something in a transaction.
func (s *Store) Write(ctx context.Context, do func(*Tx) error) error {
	if s.writes != nil {
		select {
		case s.writes <- struct{}{}:
			defer func() { <-s.writes }()
		case <-ctx.Done():
			return &Unavailable{Err: ctx.Err()}
		}
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return s.outcome(err)
	}
	if err := do(&Tx{s, tx}); err != nil {
		return s.outcome(errors.Join(err, ignoreDone(tx.Rollback())))
	}
	return s.outcome(tx.Commit())
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// Get finds the one entity that a query means, and keeps others from changing it until the transaction ends.
func (t *Tx) Get(ctx context.Context, q Query) (*entity.Record, error) {
	q.Limit = 2
	found, err := t.s.find(ctx, t.tx, q, t.s.lock)
	if err == nil && len(found) != 1 {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// Missing are the contexts, by what refers to them, that are not there or of another kind.
func (t *Tx) Missing(ctx context.Context, refs map[string]Reference) ([]string, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	ids := map[int64]bool{}
	for _, r := range refs {
		ids[r.ID] = true
	}
	b := t.s.query(entity.Contexts, "SELECT id, type_id FROM %s WHERE id ", t.s.table("Context"))
	b.add("%s", b.among(slices.Collect(maps.Keys(ids))))
	rows, err := t.tx.QueryContext(ctx, b.text.String(), b.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	types := map[int64]int64{}
	for rows.Next() {
		var id, typ int64
		if err := rows.Scan(&id, &typ); err != nil {
			return nil, err
		}
		types[id] = typ
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		if typ, there := types[refs[name].ID]; !there || typ != t.s.types[entity.ByName(refs[name].Kind)] {
			missing = append(missing, name)
		}
	}
	return missing, rows.Err()
}

// Reference is an entity that another refers to.
type Reference struct {
	Kind string
	ID   int64
}

// Insert writes a new entity that belongs to a context, or to nobody if that is 0, and completes the record.
func (t *Tx) Insert(ctx context.Context, r *entity.Record, parent int64) error {
	stored, err := t.storedName(r, parent)
	if err != nil {
		return err
	}
	now := t.s.now().UnixMilli()
	r.Created, r.Updated = now, now
	columns := []string{"type_id", "name", "external_id", "create_time_since_epoch", "last_update_time_since_epoch"}
	values := []any{t.s.types[r.Kind], stored, nullable(r.ExternalID), r.Created, r.Updated}
	for _, column := range families[r.Kind.Table].columns {
		columns = append(columns, column)
		values = append(values, columnValue(r, column))
	}
	b := t.s.query(r.Kind.Table, "INSERT INTO %s (%s) VALUES ", t.s.table(string(r.Kind.Table)), strings.Join(columns, ", "))
	b.add("%s", list(b, values))
	if r.ID, err = t.insertRow(ctx, b); err != nil {
		return err
	}
	if err := t.writeProperties(ctx, r, propertiesOf(r, true)); err != nil {
		return err
	}
	return t.Attach(ctx, r, parent)
}

// storedName puts before the name what makes it unique. An entity without a name gets one.
func (t *Tx) storedName(r *entity.Record, parent int64) (string, error) {
	if r.Name == nil || *r.Name == "" {
		name := uuid.NewString()
		r.Name = &name
	}
	stored := *r.Name
	switch {
	case !r.Kind.Prefixed():
	case parent > 0:
		stored = storedName(parent, stored)
	default:
		stored = uuid.NewString() + ":" + stored
	}
	if over := utf8.RuneCountInString(stored) - maxStored; over > 0 {
		return "", &entity.Invalid{Message: fmt.Sprintf("field name is too long by %d characters", over)}
	}
	return stored, nil
}

func nullable(s *string) any {
	if s == nil || *s == "" {
		return nil
	}
	return *s
}

// columnValue is what the record says of a column that only its family has.
func columnValue(r *entity.Record, column string) any {
	for _, f := range r.Kind.Fields {
		if f.At != entity.InColumn || f.Stored != column {
			continue
		}
		value, said := r.Values[f.Name]
		if !said {
			return nil
		}
		if f.Type == entity.Enum {
			return int64(slices.Index(f.Words, value.(string))) //nolint:forcetypeassert // words are text
		}
		return value
	}
	return nil
}

func (t *Tx) insertRow(ctx context.Context, b *builder) (id int64, err error) {
	if !b.returning {
		result, err := t.tx.ExecContext(ctx, b.text.String(), b.args...)
		if err != nil {
			return 0, err
		}
		return result.LastInsertId()
	}
	b.add(" RETURNING id")
	err = t.tx.QueryRowContext(ctx, b.text.String(), b.args...).Scan(&id)
	return id, err
}

// Attach ties an entity to a context. It may be tied already, and to others.
func (t *Tx) Attach(ctx context.Context, r *entity.Record, parent int64) error {
	if parent == 0 {
		return nil
	}
	f := families[r.Kind.Table]
	b := t.s.query(r.Kind.Table, "INSERT%s INTO %s (%s, %s) VALUES ", t.s.ignore[0], t.s.table(f.links), f.child, f.above)
	b.add("%s%s", list(b, []any{r.ID, parent}), t.s.ignore[1])
	_, err := t.tx.ExecContext(ctx, b.text.String(), b.args...)
	return err
}

// Update writes a record that was read in this transaction. Properties of which nobody here knows stay; custom ones are
// those of the record, and no others, if they are given anew.
func (t *Tx) Update(ctx context.Context, r *entity.Record, custom bool) error {
	r.Updated = max(t.s.now().UnixMilli(), r.Updated+1) // so that no two states of an entity have the same
	b := t.s.query(r.Kind.Table, "UPDATE %s SET external_id = ", t.s.table(string(r.Kind.Table)))
	b.add("%s", b.arg(nullable(r.ExternalID)))
	b.add(", last_update_time_since_epoch = %s", b.arg(r.Updated))
	for _, column := range families[r.Kind.Table].columns {
		b.add(", %s = %s", column, b.arg(columnValue(r, column)))
	}
	b.add(" WHERE id = %s", b.arg(r.ID))
	if _, err := t.tx.ExecContext(ctx, b.text.String(), b.args...); err != nil {
		return err
	}
	rows := propertiesOf(r, custom)
	if err := t.removeProperties(ctx, r, rows, custom); err != nil {
		return err
	}
	return t.writeProperties(ctx, r, rows)
}

// removeProperties makes room for those that are written anew.
func (t *Tx) removeProperties(ctx context.Context, r *entity.Record, rows []property, custom bool) error {
	f := families[r.Kind.Table]
	names := []string{""} // a list must not be empty
	for _, p := range rows {
		if !p.custom {
			names = append(names, p.name)
		}
	}
	b := t.s.query(r.Kind.Table, "DELETE FROM %s WHERE %s = ", t.s.table(f.properties), f.owner)
	b.add("%s", b.arg(r.ID))
	b.add(" AND (is_custom_property = %s", b.arg(false))
	b.add(" AND name IN %s", list(b, names))
	if custom {
		b.add(" OR is_custom_property = %s", b.arg(true))
	}
	b.add(")")
	_, err := t.tx.ExecContext(ctx, b.text.String(), b.args...)
	return err
}

// propertiesOf are the rows that a record has; custom ones if they are wanted.
func propertiesOf(r *entity.Record, custom bool) []property {
	var out []property
	if r.Description != nil {
		out = append(out, property{name: "description", text: sql.NullString{String: *r.Description, Valid: true}})
	}
	for _, f := range r.Kind.Fields {
		value, said := r.Values[f.Name]
		if f.At == entity.InColumn || !said || f.At == entity.InPath && !custom {
			continue
		}
		out = append(out, stored(f, value))
	}
	if custom {
		for _, name := range slices.Sorted(maps.Keys(r.Custom)) {
			if slices.ContainsFunc(r.Kind.Fields, func(f entity.Field) bool { return f.At == entity.InPath && f.Stored == name }) {
				continue // clients read those as fields, and do not decide them
			}
			p := property{name: name, custom: true}
			p.set(r.Custom[name])
			out = append(out, p)
		}
	}
	return out
}

// stored is the row for a field.
func stored(f entity.Field, value any) property {
	p := property{name: f.Stored, custom: f.At == entity.InPath}
	switch v := value.(type) {
	case int64:
		if f.Type == entity.Number { // as servers have always written it
			value = strconv.FormatInt(v, 10)
		}
	case []string:
		text, err := entity.StoreTexts(f.Stored, v)
		if err == nil { // texts are checked when they are read
			value = text
		}
	}
	p.set(value)
	return p
}

func (p *property) set(value any) {
	switch v := value.(type) {
	case string:
		p.text = sql.NullString{String: v, Valid: true}
	case int64:
		p.whole = sql.NullInt64{Int64: v, Valid: true}
	case float64:
		p.double = sql.NullFloat64{Float64: v, Valid: true}
	case bool:
		p.truth = sql.NullBool{Bool: v, Valid: true}
	case entity.Struct:
		if text, err := entity.StoreStruct(v); err == nil { // it is an object since it was read
			p.text = sql.NullString{String: text, Valid: true}
		}
	}
}

// writeProperties inserts all rows at once.
func (t *Tx) writeProperties(ctx context.Context, r *entity.Record, rows []property) error {
	if len(rows) == 0 {
		return nil
	}
	f := families[r.Kind.Table]
	b := t.s.query(r.Kind.Table, "INSERT INTO %s (%s, name, is_custom_property, int_value, double_value, string_value, bool_value) VALUES ",
		t.s.table(f.properties), f.owner)
	for i, p := range rows {
		if i > 0 {
			b.add(", ")
		}
		b.add("%s", list(b, []any{r.ID, p.name, p.custom, p.whole, p.double, p.text, p.truth}))
	}
	_, err := t.tx.ExecContext(ctx, b.text.String(), b.args...)
	return err
}
