// SPDX-License-Identifier: Apache-2.0

// Package store keeps entities in a database: PostgreSQL and MySQL in the tables that registries have had all along, and
// SQLite in the same ones. It turns questions into SQL, of which every one takes the same few queries however much it
// finds, and knows nothing of HTTP.
package store

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/server/entity"
)

// dialect is how one kind of database wants to be asked.
type dialect struct {
	name string
	// quote is what stands before and after the name of a table.
	quote string
	// numbered parameters are $1, $2; others are ?.
	numbered bool
	// exact compares text character by character, whatever the collation of the column is. equal is the same for
	// comparisons that only ask whether two texts are the same, and like for patterns.
	exact, equal, like string
	// parameter is exact for what a column is compared with.
	parameter string
	// escape says that a backslash takes the meaning from % and _, where that is not so by itself.
	escape string
	// behindColon is the text behind the first colon.
	behindColon string
	// whole is text as a whole number, or nothing where it is none.
	whole string
	// head is the part of a text that the index of properties holds: its first headLength characters. Where that is left to
	// the index, it is the text itself.
	head string
	// lock keeps a row that is read from changing until the transaction ends.
	lock string
	// ignore makes an insertion of what is there already do nothing: what stands before INTO, and at the end.
	ignore [2]string
	// returning gives back the id of a row that was inserted; others tell the last one.
	returning bool
	// types of columns, for the tables that are made where there are none.
	types *strings.Replacer
	// options of new tables.
	options string
	// upstream is the last migration of the known server whose tables these are.
	upstream int
}

// headLength is how many characters the index of properties holds of a text, which can be longer than an index may be.
const headLength = 128

// mysqlBytes compares text as bytes: collations of MySQL take trailing spaces for nothing.
const mysqlBytes = "CAST(CONVERT(%s USING utf8mb4) AS BINARY)"

var (
	postgres = &dialect{
		name: "postgres", quote: `"`, numbered: true, exact: `%s COLLATE "C"`, equal: "%s", like: "%s", parameter: "%s",
		behindColon: "substr(%[1]s, strpos(%[1]s, ':') + 1)",
		whole:       `CASE WHEN %[1]s ~ '^-?[0-9]{1,18}$' THEN CAST(%[1]s AS BIGINT) END`,
		head:        "left(%s, 128)",
		lock:        " FOR UPDATE", ignore: [2]string{"", " ON CONFLICT DO NOTHING"}, returning: true,
		types: strings.NewReplacer("{serial}", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "{int}", "BIGINT", "{small}", "SMALLINT",
			"{name}", "VARCHAR(255)", "{text}", "TEXT", "{long}", "TEXT", "{blob}", "BYTEA", "{bool}", "BOOLEAN", "{double}", "DOUBLE PRECISION"),
		upstream: 24, // the next one makes views for its catalog
	}
	mysql = &dialect{
		name: "mysql", quote: "`", exact: mysqlBytes, equal: mysqlBytes, parameter: mysqlBytes, like: "CONVERT(%s USING utf8mb4) COLLATE utf8mb4_bin",
		behindColon: "SUBSTRING(%[1]s, LOCATE(':', %[1]s) + 1)",
		whole:       `CASE WHEN %[1]s REGEXP '^-?[0-9]{1,18}$' THEN CAST(%[1]s AS SIGNED) END`,
		head:        "%s",
		lock:        " FOR UPDATE", ignore: [2]string{" IGNORE", ""},
		types: strings.NewReplacer("{serial}", "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY", "{int}", "BIGINT", "{small}", "SMALLINT",
			"{name}", "VARCHAR(255)", "{text}", "TEXT", "{long}", "MEDIUMTEXT", "{blob}", "MEDIUMBLOB", "{bool}", "TINYINT(1)", "{double}", "DOUBLE"),
		options:  " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
		upstream: 21,
	}
	sqlite = &dialect{
		name: "sqlite", quote: `"`, exact: "%s", equal: "%s", like: "%s", parameter: "%s", escape: ` ESCAPE '\'`,
		behindColon: "substr(%[1]s, instr(%[1]s, ':') + 1)",
		whole:       `CASE WHEN ltrim(%[1]s, '-') GLOB '[0-9]*' AND ltrim(%[1]s, '-') NOT GLOB '*[^0-9]*' THEN CAST(%[1]s AS INTEGER) END`,
		head:        "substr(%s, 1, 128)",
		ignore:      [2]string{"", " ON CONFLICT DO NOTHING"}, returning: true,
		types: strings.NewReplacer("{serial}", "INTEGER PRIMARY KEY AUTOINCREMENT", "{int}", "INTEGER", "{small}", "INTEGER",
			"{name}", "VARCHAR(255)", "{text}", "TEXT", "{long}", "TEXT", "{blob}", "BLOB", "{bool}", "BOOLEAN", "{double}", "DOUBLE"),
	}
)

// table is the name of a table as the database wants it: the case of its letters counts.
func (d *dialect) table(name string) string { return d.quote + name + d.quote }

// own rewrites a statement of ours, in which tables are in double quotes and types in braces.
func (d *dialect) own(statement string) string {
	return strings.ReplaceAll(d.types.Replace(statement), `"`, d.quote)
}

// builder puts a query together. What clients say becomes a parameter, and never a part of the text. Parameters without a
// number are counted in the order of the text, so that it is written from its beginning to its end.
type builder struct {
	*dialect
	// of is the family of tables that is asked.
	of   entity.Table
	text strings.Builder
	args []any
}

// family is what belongs to a main table: the properties of its entities with the column that names their owner, and the
// table that ties entities to a context which they belong to.
type family struct {
	properties, owner   string
	links, child, above string
	// columns that only this main table has.
	columns []string
}

var families = map[entity.Table]family{
	entity.Contexts:   {"ContextProperty", "context_id", "ParentContext", "context_id", "parent_context_id", nil},
	entity.Artifacts:  {"ArtifactProperty", "artifact_id", "Attribution", "artifact_id", "context_id", []string{"uri", "state"}},
	entity.Executions: {"ExecutionProperty", "execution_id", "Association", "execution_id", "context_id", []string{"last_known_state"}},
}

func (d *dialect) query(of entity.Table, format string, args ...any) *builder {
	b := &builder{dialect: d, of: of}
	b.add(format, args...)
	return b
}

// add appends to the text, of which all parts are ours.
func (b *builder) add(format string, args ...any) { fmt.Fprintf(&b.text, format, args...) }

// arg makes a value a parameter and returns what stands for it.
func (b *builder) arg(value any) string {
	b.args = append(b.args, value)
	if !b.numbered {
		return "?"
	}
	mark := "$" + strconv.Itoa(len(b.args))
	switch value.(type) { // else it would have to fit the column, which may be of 32 bits
	case int64:
		mark += "::bigint"
	case float64:
		mark += "::float8"
	case []int64:
		mark += "::bigint[]"
	}
	return mark
}

// among compares with one of some ids. PostgreSQL gets them as one parameter: it remembers each text that it is asked, and
// would have one for every length of a page.
func (b *builder) among(ids []int64) string {
	if b.numbered {
		return "= ANY(" + b.arg(ids) + ")"
	}
	return "IN " + list(b, ids)
}

// list is a parameter for each value, in parentheses.
func list[T any](b *builder, values []T) string {
	marks := make([]string, len(values))
	for i, v := range values {
		marks[i] = b.arg(v)
	}
	return "(" + strings.Join(marks, ", ") + ")"
}
