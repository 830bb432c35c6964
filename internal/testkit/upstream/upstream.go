// SPDX-License-Identifier: Apache-2.0

// Package upstream runs the known model registry for a test: its server, from a Go module of its own, and the store of ML
// Metadata that this version of it needs, from a Python package. It is for tests and benches only, and knows nothing of
// our server.
package upstream

import (
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
	"github.com/modelplane/modelplane/internal/testkit/mariadb"
)

// Version of the server.
const Version = "v0.2.19"

// Server is a running registry.
type Server struct {
	// URL where it listens, without a path.
	URL string
	// Processes are those of the server and of its store.
	Processes []*testkit.Program
}

// Parts are the programs of which a registry is made.
type Parts struct{ server, python string }

// Find builds or fetches the programs. A test that cannot have them is skipped, but not in CI, where they can be had.
func Find(t testing.TB) Parts {
	t.Helper()
	root, err := checkout.Dir()
	if err != nil {
		t.Fatal(err)
	}
	var p Parts
	if p.server, err = output("go", "tool", "-C", filepath.Join(root, "internal", "testkit", "upstream", "modelregistry"), "-n", "model-registry"); err == nil {
		p.python, err = output("go", "-C", root, "run", "./test/e2e/parts", "mlmd")
	}
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatalf("the known registry cannot be had: %v", err)
	case err != nil:
		t.Skipf("the known registry cannot be had: %v", err)
	}
	return p
}

func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

//go:embed mlmd.py
var store string

// Start runs a registry on a database until the test ends. The database may be reached at another address than its own.
func (p Parts) Start(t testing.TB, db *mariadb.Server, host string, port int, database string) *Server {
	t.Helper()
	connection, err := json.Marshal(map[string]any{"host": host, "port": port, "database": database, "user": mariadb.User, "password": db.Password})
	if err != nil {
		t.Fatal(err)
	}
	storePort, serverPort := testkit.FreePort(t), testkit.FreePort(t)
	metadata := exec.Command(p.python, "-c", store, strconv.Itoa(storePort))
	metadata.Stdin = strings.NewReader(string(connection))
	s := &Server{URL: "http://127.0.0.1:" + strconv.Itoa(serverPort)}
	s.Processes = append(s.Processes, testkit.RunProgram(t, "mlmd", metadata),
		testkit.RunProgram(t, "model-registry", exec.Command(p.server, "proxy", "--hostname=127.0.0.1", "--port="+strconv.Itoa(serverPort),
			"--mlmd-hostname=127.0.0.1", "--mlmd-port="+strconv.Itoa(storePort))))
	testkit.Eventually(t, time.Minute, "the known registry to answer", func() error {
		for _, program := range s.Processes {
			select {
			case <-program.Ended():
				t.Fatalf("%s ended at once:\n%s", program.Name, program.Output())
			default:
			}
		}
		return s.ready(t)
	})
	return s
}

// lastMigration is that of this version.
const lastMigration = 19

// Migrate lets the server make its tables by its own migrations, as its later versions do, which need no other store. This
// version can do no more with them, and ends.
func (p Parts) Migrate(t testing.TB, server *mariadb.Server, database string) {
	t.Helper()
	cmd := exec.Command(p.server, "proxy", "--hostname=127.0.0.1", "--port="+strconv.Itoa(testkit.FreePort(t)), "--datastore-type=embedmd")
	cmd.Env = append(os.Environ(), "MR_EMBEDMD_DATABASE_DSN="+server.DSN(database))
	program := testkit.RunProgram(t, "migrations", cmd)
	defer program.Kill()
	db, err := sql.Open("mysql", server.DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	testkit.Eventually(t, time.Minute, "the migrations of the known registry", func() error {
		var version int
		var dirty bool
		err := db.QueryRowContext(t.Context(), "SELECT version, dirty FROM schema_migrations").Scan(&version, &dirty)
		if err == nil && (version != lastMigration || dirty) {
			err = fmt.Errorf("it is at %d", version)
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, program.Output())
		}
		return err
	})
}

func (s *Server) ready(t testing.TB) error {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/model_registry/v1alpha3/registered_models?pageSize=1", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}
