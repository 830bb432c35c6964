// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/maas/keys"
	pgserver "github.com/modelplane/modelplane/internal/testkit/postgres"
)

// known are the steps by which the known server of this API makes its table.
var known = []string{
	`CREATE TABLE api_keys (id TEXT PRIMARY KEY, username TEXT NOT NULL, name TEXT NOT NULL, description TEXT, key_hash TEXT NOT NULL,
		status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active','revoked','expired')), user_groups TEXT[] NOT NULL,
		created_at TIMESTAMPTZ NOT NULL DEFAULT now(), expires_at TIMESTAMPTZ, last_used_at TIMESTAMPTZ);
	CREATE INDEX one ON api_keys (username, created_at DESC); CREATE UNIQUE INDEX two ON api_keys (key_hash);
	CREATE INDEX three ON api_keys (last_used_at) WHERE last_used_at IS NOT NULL; CREATE INDEX four ON api_keys USING GIN (user_groups)`,
	`ALTER TABLE api_keys ADD COLUMN ephemeral BOOLEAN NOT NULL DEFAULT false; CREATE INDEX five ON api_keys (status, expires_at) WHERE ephemeral`,
	`ALTER TABLE api_keys ADD COLUMN subscription TEXT NOT NULL`,
	`ALTER TABLE api_keys ADD COLUMN tenant TEXT NOT NULL DEFAULT 'models-as-a-service'; CREATE INDEX six ON api_keys (tenant, username, created_at DESC)`,
	`DROP INDEX two; CREATE UNIQUE INDEX seven ON api_keys (key_hash, tenant)`,
	`ALTER TABLE api_keys ADD COLUMN labels JSONB CHECK (labels IS NULL OR jsonb_typeof(labels) = 'object'); CREATE INDEX eight ON api_keys USING GIN (labels jsonb_path_ops)`,
}

// TestKnownDatabase: a database that the known server left at any of its versions is opened in place, its keys are valid,
// and what hurt there is gone.
func TestKnownDatabase(t *testing.T) {
	server := pgserver.Start(t)
	key, err := keys.Parse("sk-oai-abc_def")
	if err != nil {
		t.Fatal(err)
	}
	digester, err := keys.NewDigester(nil)
	if err != nil {
		t.Fatal(err)
	}
	for version := range len(known) + 1 {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			name := fmt.Sprint("known", version)
			server.Database(t, name)
			for _, step := range known[:version] {
				server.Query(t, name, step)
			}
			if version > 0 {
				server.Query(t, name, fmt.Sprintf(`CREATE TABLE schema_migrations (version BIGINT PRIMARY KEY, dirty BOOLEAN NOT NULL); INSERT INTO schema_migrations VALUES (%d, false)`, version))
				columns, values := "id, username, name, key_hash, user_groups", fmt.Sprintf(`'1', 'ann', 'mine', '%s', '{team,"a b"}'`, digester.Digest(key))
				if version >= 3 {
					columns, values = columns+", subscription", values+", 'gold'"
				}
				server.Query(t, name, fmt.Sprintf("INSERT INTO api_keys (%s) VALUES (%s)", columns, values))
			}
			url := server.URI(name) + "?sslmode=disable"
			for range 2 { // a second start finds nothing to do
				s := open(t, url)
				if version > 0 {
					takenOver(t, s, digester, key, version)
				}
				keep(t, s, record(fmt.Sprint("new", s.lifetime(t)), "bob", "gold", 0))
			}
			if got := server.Query(t, name, `SELECT count(*) FROM pg_index WHERE indrelid = 'api_keys'::regclass`); strings.TrimSpace(got) != "7" {
				t.Errorf("there are %s indexes: %s", got, server.Query(t, name, `SELECT indexdef FROM pg_indexes WHERE tablename = 'api_keys'`))
			}
			if version == 0 {
				return
			}
			if got := server.Query(t, name, "SELECT version FROM schema_migrations"); strings.TrimSpace(got) != "6" {
				t.Errorf("the known server finds version %s", got)
			}
		})
	}
	t.Run("half-way", func(t *testing.T) {
		server.Database(t, "dirty")
		server.Query(t, "dirty", `CREATE TABLE schema_migrations (version BIGINT PRIMARY KEY, dirty BOOLEAN NOT NULL); INSERT INTO schema_migrations VALUES (3, true)`)
		if _, err := Open(t.Context(), Config{URL: server.URI("dirty") + "?sslmode=disable"}); !errors.Is(err, ErrDirty) || !Refused(err) {
			t.Errorf("opening it says %v", err)
		}
		if got := server.Query(t, "dirty", `SELECT to_regclass('api_keys') IS NULL`); strings.TrimSpace(got) != "t" {
			t.Error("it was changed")
		}
	})
}

// lifetime tells one start from the next.
func (s *Store) lifetime(t *testing.T) int64 {
	t.Helper()
	var n int64
	if err := s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM api_keys").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func takenOver(t *testing.T, s *Store, digester *keys.Digester, key keys.Key, version int) {
	t.Helper()
	r, err := s.Find(t.Context(), "models-as-a-service", digester.Candidates(key))
	if err != nil {
		t.Fatal(err)
	}
	want := "gold"
	if version < 3 {
		want = ""
	}
	if r.Username != "ann" || strings.Join(r.Groups, "|") != "team|a b" || r.Subscription != want || r.Stored != keys.Active {
		t.Errorf("the key is %+v", r)
	}
}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}
