// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/modelregistry/server/store"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/mariadb"
	"github.com/modelplane/modelplane/internal/testkit/postgres"
)

// TestDatabaseAway: while the database is away clients are told so, and what was confirmed before is there afterwards.
func TestDatabaseAway(t *testing.T) {
	type database interface {
		Stop()
		Again(t testing.TB)
	}
	start := map[string]func(*testing.T) (database, store.Config){
		"postgres": func(t *testing.T) (database, store.Config) {
			s := postgres.Start(t)
			return s, store.Config{Type: "postgres", DSN: s.URI("postgres") + "?sslmode=disable"}
		},
		"mysql": func(t *testing.T) (database, store.Config) {
			s := mariadb.Start(t)
			s.Database(t, "registry")
			return s, store.Config{Type: "mysql", DSN: s.DSN("registry")}
		},
	}
	for name, start := range start {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, config := start(t)
			r := open(t, config)
			var confirmed atomic.Int64
			stop, ended := make(chan struct{}), make(chan map[int]int, 1)
			go func() {
				codes := map[int]int{}
				defer func() { ended <- codes }()
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					answer, err := http.Post(r.url+"/registered_models", "application/json", strings.NewReader(fmt.Sprintf(`{"name":"m%d"}`, i))) //nolint:noctx // a plain client
					if err != nil {
						t.Error(err)
						return
					}
					_ = answer.Body.Close()
					codes[answer.StatusCode]++
					if answer.StatusCode == http.StatusCreated {
						confirmed.Add(1)
					}
				}
			}()
			grows := func(what string) {
				t.Helper()
				before := confirmed.Load()
				testkit.Eventually(t, time.Minute, what, func() error {
					if confirmed.Load() < before+5 {
						return fmt.Errorf("%d are confirmed", confirmed.Load())
					}
					return nil
				})
			}
			grows("models to be made")
			db.Stop()
			if code, _ := get(t, strings.TrimSuffix(r.url, Base)+"/readyz/health"); code != http.StatusServiceUnavailable {
				t.Errorf("without a database, health is %d", code)
			}
			r.call("GET", "/registered_models", "", http.StatusServiceUnavailable)
			r.shows("modelplane_registry_database_up 0", `modelplane_registry_request_duration_seconds_count{code="503",method="GET",path="health"} 1`)
			db.Again(t)
			grows("models to be made again")
			close(stop)
			codes := <-ended
			if codes[503] == 0 || len(codes) != 2 {
				t.Errorf("clients were told %v; they should hear of 201 and 503 alone", codes)
			}
			if list := r.call("GET", "/registered_models?pageSize=1000", "", http.StatusOK); list["size"] != float64(min(confirmed.Load(), 1000)) && confirmed.Load() < 1000 {
				// One whose confirmation was lost may be there as well.
				if size, _ := list["size"].(float64); int64(size) < confirmed.Load() {
					t.Errorf("%v models are there; %d were confirmed", size, confirmed.Load())
				}
			}
		})
	}
}

// TestDiskFull: a database without room is told of, what is there is read all the same, and with room it goes on.
func TestDiskFull(t *testing.T) {
	r := open(t, store.Config{Type: "sqlite", DSN: filepath.Join(t.TempDir(), "db")})
	made := r.call("POST", "/registered_models", `{"name":"before"}`, http.StatusCreated)
	room := func(pages int) {
		t.Helper()
		r.store.DB().SetMaxOpenConns(1) // the limit is that of a connection
		if _, err := r.store.DB().ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
			t.Fatal(err)
		}
	}
	room(1) // which means as many as there are
	large := `{"name":"large","readme":"` + strings.Repeat("x", 1<<20) + `"}`
	if got := r.call("POST", "/registered_models", large, http.StatusInsufficientStorage); !strings.Contains(fmt.Sprint(got["message"]), "no room left") {
		t.Errorf("the message is %v", got["message"])
	}
	r.has(r.call("GET", "/registered_models/"+made.id(), "", http.StatusOK), map[string]any{"name": "before"})
	r.call("GET", "/registered_model?name=large", "", http.StatusNotFound)
	r.shows("modelplane_registry_database_up 1", `modelplane_registry_request_duration_seconds_count{code="507",method="POST",path="POST /api/model_registry/v1alpha3/registered_models"} 1`)
	room(1 << 20)
	r.call("POST", "/registered_models", large, http.StatusCreated)
}

// TestNobodyAnswers: a host that takes connections or swallows them, and never says a word, is told of in time.
func TestNobodyAnswers(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // until the test ends
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for kind, dsn := range map[string]string{"postgres": "postgresql://me:s3cret@%s/registry?sslmode=disable", "mysql": "me:s3cret@tcp(%s)/registry"} {
		_, err := store.Open(t.Context(), store.Config{Type: kind, DSN: fmt.Sprintf(dsn, silent.Addr()), Within: 100 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), "does not answer within 100ms; check its address") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: opening it says %v", kind, err)
		}
		if store.Refused(err) {
			t.Errorf("%s: waiting is thought not to help", kind)
		}
	}
}

// TestHalfMigrated: a database of which a migration ended half-way is not touched.
func TestHalfMigrated(t *testing.T) {
	s := postgres.Start(t)
	s.Query(t, "postgres", `CREATE TABLE schema_migrations (version bigint primary key, dirty boolean); INSERT INTO schema_migrations VALUES (17, true)`)
	_, err := store.Open(t.Context(), store.Config{Type: "postgres", DSN: s.URI("postgres") + "?sslmode=disable"})
	if err == nil || !strings.Contains(err.Error(), "half-way") {
		t.Errorf("opening it says %v", err)
	}
	if tables := s.Query(t, "postgres", `SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'`); strings.TrimSpace(tables) != "1" {
		t.Errorf("%s tables are there", tables)
	}
	_, err = store.Open(t.Context(), store.Config{Type: "postgres", DSN: strings.Replace(s.URI("postgres"), "owner", "nobody", 1) + "?sslmode=disable"})
	if err == nil || strings.Contains(err.Error(), s.Password) || strings.Contains(err.Error(), "s3cr") {
		t.Errorf("a wrong user is told: %v", err)
	}
	if !store.Refused(err) {
		t.Errorf("waiting is thought to help against: %v", err)
	}
}

// TestLastWords: a server that its database refuses ends, and leaves the reason where the kubelet reads it.
func TestLastWords(t *testing.T) {
	s := postgres.Start(t)
	words := filepath.Join(t.TempDir(), "words")
	if err := os.WriteFile(words, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGPASSWORD", "a secret that is wrong")
	c := New("proxy")
	c.SetArgs([]string{
		"--port", strconv.Itoa(testkit.FreePort(t)), "--hostname=127.0.0.1", "--termination-log", words, "--log-level=error", "--embedmd-database-type=postgres",
		"--embedmd-database-dsn", fmt.Sprintf("postgresql://owner@%s:%d/postgres?sslmode=disable", s.Host, s.Port),
	})
	err := c.ExecuteContext(t.Context())
	text, _ := os.ReadFile(words) // empty says enough
	if err == nil || !strings.Contains(err.Error(), "{{ALERT}} error connecting to datastore") {
		t.Errorf("it ends with %v", err)
	}
	if !strings.Contains(string(text), "The database cannot be used: ") || !strings.Contains(string(text), "password authentication failed") || strings.Contains(string(text), "secret") {
		t.Errorf("its last words are %q", text)
	}
}
