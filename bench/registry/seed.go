// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// versions that each model has.
const versions = 3

// content is what a registry was filled with: models called prefix and six digits, each with versions v1 to v3.
type content struct {
	prefix string
	ids    []string
}

func (c *content) name(i int) string { return fmt.Sprintf("%s%06d", c.prefix, i) }

// seedByAPI makes n more models as clients do.
func seedByAPI(ctx context.Context, c *client, into *content, n int) error {
	for range n {
		i := len(into.ids)
		id, err := c.createModel(ctx, into.name(i), i)
		if err != nil {
			return err
		}
		for v := range versions {
			if err := c.createVersion(ctx, id, "v"+strconv.Itoa(v+1)); err != nil {
				return err
			}
		}
		into.ids = append(into.ids, id)
	}
	return nil
}

// seedStatements write models from one number up to another with everything that the API would write for them. {series}
// is a table of numbers called i.
var seedStatements = []string{
	`INSERT INTO "Context" (type_id, name, create_time_since_epoch, last_update_time_since_epoch)
		SELECT t.id, concat('{prefix}', lpad(concat('', i), 6, '0')), 1700000000000 + i, 1700000000000 + i FROM {series}, "Type" t WHERE t.name = 'kf.RegisteredModel'`,
	`INSERT INTO "ContextProperty" (context_id, name, is_custom_property, string_value)
		SELECT c.id, 'owner', false, concat('owner-', i % 100) FROM {models}
		UNION ALL SELECT c.id, 'description', false, concat('model number ', i) FROM {models}
		UNION ALL SELECT c.id, 'state', false, CASE WHEN i % 10 = 0 THEN 'ARCHIVED' ELSE 'LIVE' END FROM {models}
		UNION ALL SELECT c.id, 'team', true, concat('team-', i % 1000) FROM {models}`,
	`INSERT INTO "ContextProperty" (context_id, name, is_custom_property, double_value)
		SELECT c.id, 'score', true, i % 1000 / 1000.0 FROM {models}`,
	`INSERT INTO "Context" (type_id, name, create_time_since_epoch, last_update_time_since_epoch)
		SELECT t.id, concat(c.id, ':v', v), 1700000000000 + i, 1700000000000 + i FROM {models}, (SELECT 1 AS v UNION ALL SELECT 2 UNION ALL SELECT 3) vs, "Type" t
		WHERE t.name = 'kf.ModelVersion'`,
	`INSERT INTO "ParentContext" (context_id, parent_context_id) SELECT w.id, c.id FROM {versions}`,
	`INSERT INTO "ContextProperty" (context_id, name, is_custom_property, int_value)
		SELECT w.id, 'registered_model_id', false, c.id FROM {versions}`,
	`INSERT INTO "ContextProperty" (context_id, name, is_custom_property, string_value)
		SELECT w.id, 'author', false, concat('owner-', i % 100) FROM {versions} UNION ALL SELECT w.id, 'state', false, 'LIVE' FROM {versions}`,
}

// seedByStatements makes n more models by the database itself, which takes a small part of the time.
func seedByStatements(ctx context.Context, db *sql.DB, kind string, into *content, n int) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it goes back to the others
	from, to := len(into.ids), len(into.ids)+n-1
	series := fmt.Sprintf("generate_series(%d, %d) AS s(i)", from, to)
	analyze := []string{`ANALYZE "Context"`, `ANALYZE "ContextProperty"`, `ANALYZE "ParentContext"`}
	if kind == "mysql" {
		series = fmt.Sprintf("(SELECT seq AS i FROM seq_%d_to_%d) s", from, to)
		analyze = []string{`ANALYZE TABLE "Context", "ContextProperty", "ParentContext"`}
		if _, err := conn.ExecContext(ctx, "SET sql_mode = 'ANSI_QUOTES'"); err != nil {
			return err
		}
	}
	models := series + ` JOIN "Context" c ON c.name = concat('{prefix}', lpad(concat('', i), 6, '0'))
		AND c.type_id = (SELECT id FROM "Type" WHERE name = 'kf.RegisteredModel')`
	ofModels := models + `, (SELECT 1 AS v UNION ALL SELECT 2 UNION ALL SELECT 3) vs, "Context" w
		WHERE w.name = concat(c.id, ':v', v) AND w.type_id = (SELECT id FROM "Type" WHERE name = 'kf.ModelVersion')`
	replace := func(s string) string {
		s = strings.NewReplacer("{versions}", ofModels, "{models}", models, "{series}", series).Replace(s)
		return strings.ReplaceAll(s, "{prefix}", into.prefix)
	}
	for _, s := range seedStatements {
		// The database is told how much there is now, so that the next statement finds it by indexes.
		for _, s := range append([]string{s}, analyze...) {
			if _, err := conn.ExecContext(ctx, replace(s)); err != nil {
				return fmt.Errorf("%s: %w", replace(s), err)
			}
		}
	}
	rows, err := conn.QueryContext(ctx, replace("SELECT c.id FROM {models} ORDER BY i"))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		into.ids = append(into.ids, id)
	}
	return rows.Err()
}
