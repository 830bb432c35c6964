// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/testkit/guard"
	"github.com/modelplane/modelplane/internal/testkit/postgres"
)

const testedVersion = "3.14.0"

// python finds an interpreter that has the MLflow that the script works with.
func python(t *testing.T) string {
	t.Helper()
	candidates := []string{"python3.12", "python3"}
	if own := os.Getenv("MODELPLANE_MLFLOW_PYTHON"); own != "" {
		candidates = []string{own}
	}
	for _, c := range candidates {
		out, err := exec.CommandContext(t.Context(), c, "-c", "from mlflow.version import VERSION; import psycopg2; print(VERSION)").Output()
		if err == nil && strings.TrimSpace(string(out)) == testedVersion {
			path, err := exec.LookPath(c)
			if err != nil {
				t.Fatal(err)
			}
			return path
		}
	}
	const missing = "no Python with mlflow==%s and psycopg2 among %s; name one in MODELPLANE_MLFLOW_PYTHON"
	if os.Getenv("MODELPLANE_MLFLOW_PYTHON") != "" {
		t.Fatalf(missing, testedVersion, strings.Join(candidates, ", "))
	}
	t.Skipf(missing, testedVersion, strings.Join(candidates, ", "))
	return ""
}

// script runs what the Jobs run.
type script struct {
	python, dir string
	secrets     []string
}

// run gives the exit code and the termination log, and looks for passwords in
// everything that was printed.
func (s *script) run(t *testing.T, step string, env ...string) (int, string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "termination-log")
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-ec", launch, "sh", database, step)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{
		"PATH=" + s.dir + ":/usr/bin:/bin", "HOME=" + cmd.Dir, "MIGRATION_TERMINATION_LOG=" + log,
		"SUPPORTED_MLFLOW_VERSION=v" + testedVersion, "PGCONNECT_TIMEOUT=5",
	}, env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, out)
	}
	said, err := os.ReadFile(log)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, secret := range s.secrets {
		if strings.Contains(string(out)+string(said), secret) {
			t.Errorf("the password %q was printed:\n%s\n%s", secret, out, said)
		}
	}
	if t.Failed() || testing.Verbose() {
		t.Logf("%s: %s\n%s", step, said, out)
	}
	return cmd.ProcessState.ExitCode(), string(said)
}

// expect runs a step and checks how it ended.
func (s *script) expect(t *testing.T, step string, code int, words string, env ...string) {
	t.Helper()
	got, said := s.run(t, step, env...)
	if got != code || !strings.Contains(said, words) {
		t.Errorf("%s ended with %d and said %q, want %d and %q", step, got, said, code, words)
	}
}

func newScript(t *testing.T) *script {
	t.Helper()
	s := &script{python: python(t), dir: t.TempDir()}
	// An interpreter without MLflow comes first, as in images that have several.
	if err := os.Symlink("/bin/false", filepath.Join(s.dir, "python3")); err != nil {
		t.Fatal(err)
	}
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %q \"$@\"\n", s.python)
	if err := os.WriteFile(filepath.Join(s.dir, "python3.12"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

// older makes a database as the revision before the newest left it.
func (s *script) older(t *testing.T, uri string) {
	t.Helper()
	const text = `
import sys
from alembic import command
from alembic.script import ScriptDirectory
from mlflow.store.db import utils
engine = utils.create_sqlalchemy_engine(sys.argv[1])
utils.InitialBase.metadata.create_all(engine)
config = utils._get_alembic_config(str(engine.url))
scripts = ScriptDirectory.from_config(config)
with engine.begin() as connection:
    config.attributes["connection"] = connection
    command.upgrade(config, scripts.get_revision(scripts.get_current_head()).down_revision)
`
	if out, err := exec.CommandContext(t.Context(), s.python, "-c", text, uri).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

const (
	backendURI  = "MLFLOW_BACKEND_STORE_URI="
	registryURI = "MLFLOW_REGISTRY_STORE_URI="
)

func TestDatabaseOnPostgreSQL(t *testing.T) {
	t.Parallel() // Python takes seconds to start
	s := newScript(t)
	server := postgres.Start(t)
	s.secrets = []string{server.Password, url.QueryEscape(server.Password), url.PathEscape(server.Password)}
	uri := func(password, database string) string {
		return backendURI + (&url.URL{Scheme: "postgresql+psycopg2", User: url.UserPassword(postgres.User, password),
			Host: fmt.Sprintf("127.0.0.1:%d", server.Port), Path: database}).String()
	}
	revision := func(t *testing.T, database string) string {
		return strings.TrimSpace(server.Query(t, database, "select version_num from alembic_version"))
	}
	for _, name := range []string{"empty", "old"} {
		server.Database(t, name)
	}
	s.older(t, strings.TrimPrefix(uri(server.Password, "old"), backendURI))
	before := revision(t, "old")
	clone := func(t *testing.T, name string) string {
		server.Query(t, "postgres", fmt.Sprintf("create database %q template old", name))
		return uri(server.Password, name)
	}

	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		at := uri(server.Password, "empty")
		s.expect(t, "preflight", 0, "To be migrated: the backend store has no schema of MLflow.", at)
		s.expect(t, "migrate", 0, "The database is at revision ", at)
		s.expect(t, "preflight", 0, nothingToMigrate, at)
		s.expect(t, "migrate", 0, "The database is at revision ", at)
	})
	t.Run("older", func(t *testing.T) {
		t.Parallel()
		at := clone(t, "older")
		s.expect(t, "preflight", 0, "is at revision "+before+" and must come to ", at, registryURI+strings.TrimPrefix(at, backendURI))
		if now := revision(t, "older"); now != before {
			t.Errorf("the preflight brought the database from %s to %s", before, now)
		}
		s.expect(t, "migrate", 0, "The database is at revision ", at)
		if now := revision(t, "older"); now == before {
			t.Errorf("the migration left the database at %s", before)
		}
	})
	t.Run("unknown revision", func(t *testing.T) {
		t.Parallel()
		at := clone(t, "unknown")
		server.Query(t, "unknown", "update alembic_version set version_num='ffffffffffff'")
		for _, step := range []string{"preflight", "migrate"} {
			s.expect(t, step, 14, "is at revision ffffffffffff, which the MLflow in this image does not know", at)
			s.expect(t, step, 14, unchanged, at)
		}
		if now := revision(t, "unknown"); now != "ffffffffffff" {
			t.Errorf("the database is now at %s", now)
		}
	})
	t.Run("the migration fails and is taken back", func(t *testing.T) {
		t.Parallel()
		at := clone(t, "refusing")
		server.Query(t, "postgres", "alter database refusing set default_transaction_read_only = on")
		s.expect(t, "preflight", 0, "To be migrated", at)
		s.expect(t, "migrate", 15, "read-only transaction. "+unchanged, at)
		if now := revision(t, "refusing"); now != before {
			t.Errorf("the database is now at %s", now)
		}
	})
	t.Run("wrong password", func(t *testing.T) {
		t.Parallel()
		s := &script{python: s.python, dir: s.dir, secrets: []string{"wr0ng%pass", "wr0ng%25pass"}}
		at := uri("wr0ng%pass", "empty")
		s.expect(t, "preflight", 15, "password authentication failed", at)
		s.expect(t, "migrate", 15, unchanged, at)
	})
	t.Run("unreachable", func(t *testing.T) {
		t.Parallel()
		at := backendURI + "postgresql+psycopg2://owner:hidden-word@127.0.0.1:1/empty"
		s := &script{python: s.python, dir: s.dir, secrets: []string{"hidden-word"}}
		s.expect(t, "preflight", 15, "Connection refused", at)
		s.expect(t, "migrate", 15, unchanged, at)
	})
}

func TestDatabaseOnSQLite(t *testing.T) {
	t.Parallel() // Python takes seconds to start
	s := newScript(t)
	file := filepath.Join(t.TempDir(), "below", "mlflow.db")
	at := backendURI + "sqlite:///" + file
	s.expect(t, "preflight", 0, "To be migrated: the backend store is empty.", at)
	if _, err := os.Stat(file); err == nil {
		t.Error("the preflight made the file")
	}
	s.expect(t, "migrate", 0, "The database is at revision ", at)
	s.expect(t, "preflight", 0, nothingToMigrate, at)

	old := "sqlite:///" + filepath.Join(t.TempDir(), "old.db")
	s.older(t, old)
	s.expect(t, "preflight", 0, "To be migrated: the registry store is at revision ", at, registryURI+old)
	t.Run("locked by somebody", func(t *testing.T) {
		lock(t, s.python, strings.TrimPrefix(old, "sqlite:///"))
		s.expect(t, "preflight", 0, "To be migrated", backendURI+old)
		s.expect(t, "migrate", 15, "database is locked. "+maybeChanged, backendURI+old)
	})
	s.expect(t, "migrate", 0, "The database is at revision ", at, registryURI+old)
	s.expect(t, "preflight", 0, nothingToMigrate, at, registryURI+old)
}

// lock holds the lock of a writer until the test ends; others may still read.
func lock(t *testing.T, python, file string) {
	t.Helper()
	const text = `import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute("BEGIN IMMEDIATE"); print("locked", flush=True); sys.stdin.read()`
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, python, "-c", text, file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := guard.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = guard.Wait(cmd)
		cancel()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "locked\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

func TestDatabaseRefusesBeforeItConnects(t *testing.T) {
	t.Parallel() // Python takes seconds to start
	s := newScript(t)
	const away = "postgresql+psycopg2://owner:hidden-word@127.0.0.1:1/empty"
	s.secrets = []string{"hidden-word", "p@ss:w", "ord@host"}
	for _, test := range []struct {
		name  string
		code  int
		words string
		env   []string
	}{
		{"version", 10, "The image has MLflow 3.14.0, but version 3.99.0 is needed.", []string{backendURI + away, "SUPPORTED_MLFLOW_VERSION=v3.99.0"}},
		{"backend", 11, "The backend store uses mssql", []string{backendURI + "mssql://owner:hidden-word@host/db"}},
		{"registry", 12, "The registry store uses oracle", []string{backendURI + away, registryURI + "oracle://owner:hidden-word@host/db"}},
		{"address", 15, "The address of the backend store cannot be read.", []string{backendURI + "postgresql://owner:p@ss:w/ord@host:port/db"}},
		{"nothing", 15, "The address of the backend store cannot be read.", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, step := range []string{"preflight", "migrate"} {
				s.expect(t, step, test.code, test.words, test.env...)
			}
		})
	}
}

// TestNoPythonWithMLflow needs no MLflow: it is the point.
func TestNoPythonWithMLflow(t *testing.T) {
	s := &script{dir: t.TempDir()}
	for _, name := range []string{"python3", "python3.12", "python"} {
		if err := os.Symlink("/bin/false", filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s.expect(t, "preflight", 10, "No Python of the image has MLflow. "+unchanged)
}
