// SPDX-License-Identifier: Apache-2.0

// Package postgres runs a real PostgreSQL server for a test, in a directory and
// on a port of its own, with a password. It is for tests only and knows nothing
// of what is kept in it.
package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/freeport"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// User of the server, who may do everything.
const User = "owner"

// Server is a running PostgreSQL.
type Server struct {
	// Host and Port where it listens.
	Host string
	Port int
	// Password of User; it has characters that an address must encode.
	Password string

	bin  string
	cred *syscall.Credential
	mode string // how its own clients come: PGSSLMODE
	data string
	end  func()
}

// Start runs a server until the test ends, for this machine alone. Where
// PostgreSQL is not installed the test is skipped, unless nobody would read that.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartAt(t, "127.0.0.1")
}

// StartAt runs a server at an address of this machine, for everybody who reaches
// it and has the password.
func StartAt(t testing.TB, host string) *Server {
	t.Helper()
	return start(t, host, "disable", "host all all all scram-sha-256\n", nil)
}

// StartTLS is StartAt for those alone who come over TLS. Certificate and key are in PEM.
func StartTLS(t testing.TB, host string, certificate, key []byte) *Server {
	t.Helper()
	return start(t, host, "require", "hostssl all all all scram-sha-256\n", map[string][]byte{"server.crt": certificate, "server.key": key})
}

// start runs a server with a rule for those who come from elsewhere, and files
// that only its user may read.
func start(t testing.TB, host, mode, rule string, files map[string][]byte) *Server {
	t.Helper()
	bin, err := find()
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	s := &Server{Host: host, Port: freeport.At(t, host), Password: "s3cr:t/p@ss%w", bin: bin, mode: mode}
	dir := t.TempDir()
	if s.cred, err = testkit.Unprivileged(dir, "postgres", "nobody"); err != nil {
		t.Fatal(err)
	}
	secret, data := filepath.Join(dir, "password"), filepath.Join(dir, "data")
	if err := os.WriteFile(secret, []byte(s.Password), 0o644); err != nil {
		t.Fatal(err)
	}
	s.run(t, "initdb", "--pgdata="+data, "--username="+User, "--pwfile="+secret, "--auth=scram-sha-256", "--no-sync", "--encoding=UTF8", "--locale=C")
	rules, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = rules.WriteString(rule)
	if err := errors.Join(err, rules.Close()); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := s.keep(filepath.Join(data, name), content); err != nil {
			t.Fatal(err)
		}
	}
	var settings []string
	if len(files) > 0 {
		settings = []string{"-c", "ssl=on"}
	}
	s.serve(t, data, settings...)
	return s
}

func (s *Server) keep(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil || s.cred == nil {
		return err
	}
	return os.Chown(path, int(s.cred.Uid), int(s.cred.Gid))
}

// find looks for the newest server on this machine.
func find() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", errors.New("PostgreSQL is not installed (no initdb on the PATH or in /usr/lib/postgresql); `make parts` installs it")
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

func (s *Server) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, program), args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "PGPASSWORD="+s.Password, "PGHOST="+s.Host, fmt.Sprintf("PGPORT=%d", s.Port), "PGUSER="+User, "PGSSLMODE="+s.mode,
		"HOME=/") // the caller's own may be closed to the user, and has certificates for others
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	return cmd
}

func (s *Server) run(t testing.TB, program string, args ...string) string {
	t.Helper()
	out, err := s.command(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}

func (s *Server) serve(t testing.TB, data string, settings ...string) {
	t.Helper()
	settings = append(settings, "-D", data, "-p", strconv.Itoa(s.Port),
		"-c", "listen_addresses="+s.Host, "-c", "unix_socket_directories=", "-c", "fsync=off")
	cmd := s.command(context.Background(), "postgres", settings...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := guard.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- guard.Wait(cmd) }()
	stopped := false
	s.data, s.end = data, func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Signal(syscall.SIGQUIT) // at once: what was committed is in its log
			<-ended
		}
	}
	t.Cleanup(s.end)
	testkit.Eventually(t, time.Minute, "PostgreSQL to answer", func() error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("PostgreSQL ended at once: %v\n%s", err, log.String())
		default:
		}
		out, err := s.command(t.Context(), "psql", "-Atc", "select 1", "postgres").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// Stop ends the server without letting anybody finish, and Again starts it on the same data.
func (s *Server) Stop() { s.end() }

// Again starts the server that was stopped, where it was.
func (s *Server) Again(t testing.TB) {
	t.Helper()
	s.serve(t, s.data)
}

// URI of a database, as SQLAlchemy and others write it.
func (s *Server) URI(database string) string {
	u := url.URL{Scheme: "postgresql", User: url.UserPassword(User, s.Password), Host: net.JoinHostPort(s.Host, strconv.Itoa(s.Port)), Path: database}
	return u.String()
}

// Database makes an empty one.
func (s *Server) Database(t testing.TB, name string) {
	t.Helper()
	s.run(t, "psql", "-c", `CREATE DATABASE "`+name+`"`, "postgres")
}

// Query runs a statement and gives what it answers, one line for each row.
func (s *Server) Query(t testing.TB, database, statement string) string {
	t.Helper()
	return s.run(t, "psql", "-Atc", statement, database)
}
