// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/server/entity"
)

// tables in which everything is. Where they exist they are left as they are: they may be those of the known server, which
// has 32 bits where ours have 64.
var tables = []string{
	`"Type" (id {serial}, name {name} NOT NULL, version {name}, type_kind {small} NOT NULL, description {text},
		input_type {text}, output_type {text}, external_id {name}, UNIQUE (external_id))`,
	`"TypeProperty" (type_id {int} NOT NULL, name {name} NOT NULL, data_type {int}, PRIMARY KEY (type_id, name))`,
	`"ParentType" (type_id {int} NOT NULL, parent_type_id {int} NOT NULL, PRIMARY KEY (type_id, parent_type_id))`,
	`"Context" (id {serial}, type_id {int} NOT NULL, name {name} NOT NULL, external_id {name},
		create_time_since_epoch {int} NOT NULL DEFAULT 0, last_update_time_since_epoch {int} NOT NULL DEFAULT 0,
		UNIQUE (type_id, name), UNIQUE (external_id))`,
	`"Artifact" (id {serial}, type_id {int} NOT NULL, uri {text}, state {int}, name {name}, external_id {name},
		create_time_since_epoch {int} NOT NULL DEFAULT 0, last_update_time_since_epoch {int} NOT NULL DEFAULT 0,
		UNIQUE (type_id, name), UNIQUE (external_id))`,
	`"Execution" (id {serial}, type_id {int} NOT NULL, last_known_state {int}, name {name}, external_id {name},
		create_time_since_epoch {int} NOT NULL DEFAULT 0, last_update_time_since_epoch {int} NOT NULL DEFAULT 0,
		UNIQUE (type_id, name), UNIQUE (external_id))`,
	`"ContextProperty" (context_id {int} NOT NULL, ` + propertyColumns + `, PRIMARY KEY (context_id, name, is_custom_property))`,
	`"ArtifactProperty" (artifact_id {int} NOT NULL, ` + propertyColumns + `, PRIMARY KEY (artifact_id, name, is_custom_property))`,
	`"ExecutionProperty" (execution_id {int} NOT NULL, ` + propertyColumns + `, PRIMARY KEY (execution_id, name, is_custom_property))`,
	`"ParentContext" (context_id {int} NOT NULL, parent_context_id {int} NOT NULL, PRIMARY KEY (context_id, parent_context_id))`,
	`"Attribution" (id {serial}, context_id {int} NOT NULL, artifact_id {int} NOT NULL, UNIQUE (context_id, artifact_id))`,
	`"Association" (id {serial}, context_id {int} NOT NULL, execution_id {int} NOT NULL, UNIQUE (context_id, execution_id))`,
	`"Event" (id {serial}, artifact_id {int} NOT NULL, execution_id {int} NOT NULL, type {int} NOT NULL,
		milliseconds_since_epoch {int}, UNIQUE (artifact_id, execution_id, type))`,
	`"EventPath" (event_id {int} NOT NULL, is_index_step {bool} NOT NULL, step_index {int}, step_key {text})`,
	`"MLMDEnv" (schema_version {int} NOT NULL PRIMARY KEY)`,
	`schema_migrations (version {int} NOT NULL PRIMARY KEY, dirty {bool} NOT NULL)`,
}

const propertyColumns = `name {name} NOT NULL, is_custom_property {bool} NOT NULL, int_value {int}, double_value {double},
		string_value {long}, byte_value {blob}, proto_value {blob}, bool_value {bool}`

// indexes beyond those that tables have by themselves, by name.
var indexes = map[string]string{
	"idx_type_name":                         `"Type" (name)`,
	"idx_context_create_time_since_epoch":   `"Context" (create_time_since_epoch)`,
	"idx_artifact_create_time_since_epoch":  `"Artifact" (create_time_since_epoch)`,
	"idx_execution_create_time_since_epoch": `"Execution" (create_time_since_epoch)`,

	"idx_context_last_update_time_since_epoch":   `"Context" (last_update_time_since_epoch)`,
	"idx_artifact_last_update_time_since_epoch":  `"Artifact" (last_update_time_since_epoch)`,
	"idx_execution_last_update_time_since_epoch": `"Execution" (last_update_time_since_epoch)`,

	"idx_context_property_int":      `"ContextProperty" (name, is_custom_property, int_value)`,
	"idx_context_property_double":   `"ContextProperty" (name, is_custom_property, double_value)`,
	"idx_artifact_property_int":     `"ArtifactProperty" (name, is_custom_property, int_value)`,
	"idx_artifact_property_double":  `"ArtifactProperty" (name, is_custom_property, double_value)`,
	"idx_execution_property_int":    `"ExecutionProperty" (name, is_custom_property, int_value)`,
	"idx_execution_property_double": `"ExecutionProperty" (name, is_custom_property, double_value)`,

	"idx_parentcontext_parent_context_id": `"ParentContext" (parent_context_id)`,
	"idx_attribution_artifact_id":         `"Attribution" (artifact_id)`,
	"idx_association_execution_id":        `"Association" (execution_id)`,
	"idx_event_execution_id":              `"Event" (execution_id)`,
	"idx_eventpath_event_id":              `"EventPath" (event_id)`,
}

// ownIndexes are those of ours, in any database: what is not there is made. They find properties by their text, and
// entities by the name that clients know. The entity comes last, so that what is found is in the order of lists already.
// Tables of MySQL have had the first all along, which have the entity by themselves; for the second it has no means.
var ownIndexes = map[string]map[string]string{
	"mysql": {
		"idx_context_property_string":   `"ContextProperty" (name, is_custom_property, string_value(255))`,
		"idx_artifact_property_string":  `"ArtifactProperty" (name, is_custom_property, string_value(255))`,
		"idx_execution_property_string": `"ExecutionProperty" (name, is_custom_property, string_value(255))`,
	},
	"postgres": indexesOf(postgres),
	"sqlite":   indexesOf(sqlite),
}

func indexesOf(d *dialect) map[string]string {
	out := map[string]string{}
	for table, f := range families {
		prefix := "modelplane_" + strings.ToLower(string(table))
		out[prefix+"_property_text"] = fmt.Sprintf(`%q (name, is_custom_property, %s, %s)`, f.properties, fmt.Sprintf(d.head, "string_value"), f.owner)
		if table != entity.Executions { // which are only listed below whom they belong to
			out[prefix+"_short_name"] = fmt.Sprintf(`%q (type_id, %s, id)`, string(table), fmt.Sprintf(d.behindColon, "name"))
		}
	}
	return out
}

// kindOf is the number that types of a family have.
var kindOf = map[entity.Table]int{entity.Executions: 0, entity.Artifacts: 1, entity.Contexts: 2}

// dataType is the number of what a property holds.
var dataType = map[entity.FieldType]int{
	entity.Text: 3, entity.Enum: 3, entity.Number: 1, entity.ID: 1, entity.Step: 1, entity.Double: 5, entity.Texts: 4,
}

// ErrDirty is a database in which a migration of another server ended half-way.
var ErrDirty = errors.New("a migration of the database ended half-way (schema_migrations says dirty); restore a backup or finish it with the server that began it")

// prepare makes what is missing: tables, where there are none, and the types of all kinds. Those of the known server are
// used as they are. Several replicas may do it at once, and one that was killed in the middle is carried on.
func (s *Store) prepare(ctx context.Context) error {
	unlock, err := s.alone(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.checkClean(ctx); err != nil {
		return err
	}
	for _, t := range tables {
		if _, err := s.db.ExecContext(ctx, s.own("CREATE TABLE IF NOT EXISTS "+t)+s.options); err != nil {
			return fmt.Errorf("make the tables: %w", err)
		}
	}
	if err := s.finish(ctx); err != nil {
		return err
	}
	if err := s.ensureIndexes(ctx); err != nil {
		return err
	}
	return s.ensureTypes(ctx)
}

// finish makes the indexes of new tables, and notes as what the known server would find them. That note is the last thing
// to be written: tables that have it are finished, by whomever.
func (s *Store) finish(ctx context.Context) error {
	var versions int
	err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+s.table("MLMDEnv")).Scan(&versions)
	if err != nil || versions > 0 {
		return err
	}
	if err := s.makeIndexes(ctx, indexes); err != nil {
		return err
	}
	if s.upstream > 0 {
		b := s.query("", "INSERT%s INTO schema_migrations (version, dirty) VALUES ", s.ignore[0])
		b.add("%s%s", list(b, []any{s.upstream, false}), s.ignore[1])
		if _, err := s.db.ExecContext(ctx, b.text.String(), b.args...); err != nil {
			return fmt.Errorf("note the version of the tables: %w", err)
		}
	}
	_, err = s.db.ExecContext(ctx, "INSERT INTO "+s.table("MLMDEnv")+" (schema_version) VALUES (10)")
	return err
}

func (s *Store) makeIndexes(ctx context.Context, indexes map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(indexes)) {
		if _, err := s.db.ExecContext(ctx, s.own("CREATE INDEX "+name+" ON "+indexes[name])); err != nil && !isThere(err) {
			return fmt.Errorf("make the index %s: %w", name, err)
		}
	}
	return nil
}

// ensureIndexes makes those of ours that are missing. It asks first: to make one waits for everybody who writes.
func (s *Store) ensureIndexes(ctx context.Context) error {
	missing := maps.Clone(ownIndexes[s.name])
	for name := range ownIndexes[s.name] {
		switch found, err := s.exists(ctx, name); {
		case err != nil:
			return err
		case found:
			delete(missing, name)
		}
	}
	return s.makeIndexes(ctx, missing)
}

func (s *Store) checkClean(ctx context.Context) error {
	if found, err := s.exists(ctx, "schema_migrations"); err != nil || !found {
		return err
	}
	var dirty bool
	err := s.db.QueryRowContext(ctx, "SELECT dirty FROM schema_migrations ORDER BY version DESC LIMIT 1").Scan(&dirty)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err == nil && dirty:
		return ErrDirty
	}
	return err
}

// exists asks for a table or an index.
func (s *Store) exists(ctx context.Context, name string) (bool, error) {
	question := map[string]string{
		"postgres": "SELECT COUNT(*) FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND relname = $1",
		"mysql": `SELECT (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = database() AND table_name = ?) +
			(SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = database() AND index_name = ?)`,
		"sqlite": "SELECT COUNT(*) FROM sqlite_master WHERE name = ?",
	}[s.name]
	args := slices.Repeat([]any{name}, max(1, strings.Count(question, "?")))
	var n int
	err := s.db.QueryRowContext(ctx, question, args...).Scan(&n)
	return n > 0, err
}

// ensureTypes writes the types that are missing, and reads the number of each.
func (s *Store) ensureTypes(ctx context.Context) error {
	known, err := s.readTypes(ctx)
	if err != nil {
		return err
	}
	for _, k := range entity.Kinds {
		if _, there := known[k.Type]; there {
			continue
		}
		b := s.query("", "INSERT INTO %s (name, type_kind) VALUES ", s.table("Type"))
		b.add("%s", list(b, []any{k.Type, kindOf[k.Table]}))
		if _, err := s.db.ExecContext(ctx, b.text.String(), b.args...); err != nil {
			return fmt.Errorf("write the type %s: %w", k.Type, err)
		}
	}
	if known, err = s.readTypes(ctx); err != nil {
		return err
	}
	s.types, s.kinds = map[*entity.Kind]int64{}, map[int64]*entity.Kind{}
	for _, k := range entity.Kinds {
		s.types[k], s.kinds[known[k.Type]] = known[k.Type], k
	}
	return s.ensureProperties(ctx)
}

func (s *Store) readTypes(ctx context.Context) (map[string]int64, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT id, name FROM "+s.table("Type")+" WHERE version IS NULL ORDER BY id DESC")
	if err != nil {
		return nil, fmt.Errorf("read the types: %w", err)
	}
	defer rows.Close()
	known := map[string]int64{}
	for rows.Next() {
		var id int64
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			return nil, err
		}
		known[name] = id // of several, the oldest
	}
	return known, rows.Err()
}

// ensureProperties declares what entities of each type have. Nothing here reads it; other programs on the same tables do.
func (s *Store) ensureProperties(ctx context.Context) error {
	b := s.query("", "INSERT%s INTO %s (type_id, name, data_type) VALUES ", s.ignore[0], s.table("TypeProperty"))
	first := true
	add := func(k *entity.Kind, name string, typ int) {
		if !first {
			b.add(", ")
		}
		first = false
		b.add("%s", list(b, []any{s.types[k], name, typ}))
	}
	for _, k := range entity.Kinds {
		add(k, "description", 3)
		for _, f := range k.Fields {
			if f.At == entity.InProperty {
				add(k, f.Stored, dataType[f.Type])
			}
		}
	}
	b.add("%s", s.ignore[1])
	_, err := s.db.ExecContext(ctx, b.text.String(), b.args...)
	return err
}

// alone keeps other replicas from making the same tables at the same time.
func (s *Store) alone(ctx context.Context) (unlock func(), err error) {
	if s.dialect == sqlite {
		return func() {}, nil // its file has one user
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	lock, release := "SELECT pg_advisory_lock(7239810571)", "SELECT pg_advisory_unlock(7239810571)"
	if s.dialect == mysql {
		lock, release = "SELECT GET_LOCK('modelplane-registry', 60)", "SELECT RELEASE_LOCK('modelplane-registry')"
	}
	if _, err := conn.ExecContext(ctx, lock); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for other replicas: %w", err), conn.Close())
	}
	return func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), release) // it ends with the connection at the latest
		_ = conn.Close()
	}, nil
}
