// SPDX-License-Identifier: Apache-2.0

// Package mariadb runs a real MariaDB server for a test, in a directory and on a port of its own, with a password. It is
// for tests only and knows nothing of what is kept in it.
package mariadb

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// User of the server, who may do everything.
const User = "owner"

// Server is a running MariaDB.
type Server struct {
	// Host and Port where it listens.
	Host string
	Port int
	// Password of User; it has characters that an address must encode.
	Password string

	dir  string
	cred *syscall.Credential
	end  func()
}

// Start runs a server until the test ends, for this machine alone. Where MariaDB is not installed it is installed if that
// is possible; else the test is skipped. In CI, where nobody would read that, it fails instead, and installs nothing.
func Start(t testing.TB) *Server {
	t.Helper()
	err := install(t.Context())
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	s := &Server{Host: "127.0.0.1", Password: "s3cr:t/p@ss%w?", dir: t.TempDir(), Port: testkit.FreePort(t)}
	if s.cred, err = testkit.Unprivileged(s.dir, "mysql", "nobody"); err != nil {
		t.Fatal(err)
	}
	out, err := s.command("mariadb-install-db", "--no-defaults", "--datadir="+s.data(), "--tmpdir="+s.dir, "--skip-test-db", "--auth-root-authentication-method=normal").CombinedOutput()
	if err != nil {
		t.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}
	users := fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO '%s'@'%%' WITH GRANT OPTION;\n", User, s.Password, User)
	if err := os.WriteFile(filepath.Join(s.dir, "users.sql"), []byte(users), 0o644); err != nil {
		t.Fatal(err)
	}
	s.serve(t, "--init-file="+filepath.Join(s.dir, "users.sql"))
	return s
}

// packages are Debian's: the server, and what its set-up program asks for the defaults. Neither starts a service.
var packages = []string{"mariadb-server-core", "mariadb-client-core"}

// install asks Debian's package manager for what is missing.
func install(ctx context.Context) error {
	if installed() {
		return nil
	}
	if os.Getenv("CI") != "" { // what is installed beside tests changes what they measure
		return fmt.Errorf("MariaDB is not installed; run `make parts` before the tests, which installs %s", strings.Join(packages, " and "))
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("MariaDB is not installed; install it with: apt-get install --no-install-recommends %s", strings.Join(packages, " "))
	}
	get := func(args ...string) ([]byte, error) {
		return exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...).CombinedOutput()
	}
	wanted := append([]string{"install", "--yes", "--no-install-recommends"}, packages...)
	out, err := get(wanted...)
	if err != nil {
		// The lists of a new machine may be missing, or older than what they lead to.
		_, _ = get("update")
		out, err = get(wanted...)
	}
	if err == nil && !installed() {
		err = errors.New("it is not there afterwards")
	}
	if err != nil {
		return fmt.Errorf("MariaDB is not installed, and apt-get cannot install %s: %w\n%s", strings.Join(packages, " and "), err, out)
	}
	return nil
}

func installed() bool {
	_, err := exec.LookPath("my_print_defaults")
	return err == nil && program() != ""
}

// servers are where one is that is not in everybody's PATH.
var servers = []string{"/usr/sbin/mariadbd", "/usr/bin/mariadbd"}

// program is where the server is; empty if nowhere.
func program() string {
	for _, path := range servers {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	path, _ := exec.LookPath("mariadbd") // empty says the same
	return path
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	return cmd
}

func (s *Server) serve(t testing.TB, settings ...string) {
	t.Helper()
	cmd := s.command(program(), append([]string{
		"--no-defaults", "--datadir=" + s.data(), "--port=" + strconv.Itoa(s.Port), "--bind-address=" + s.Host, "--socket=" + filepath.Join(s.dir, "socket"),
		"--pid-file=" + filepath.Join(s.dir, "pid"), "--tmpdir=" + s.dir, "--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=32M", "--skip-log-bin", "--skip-name-resolve", "--performance-schema=OFF",
	}, settings...)...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := guard.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- guard.Wait(cmd) }()
	stopped := false
	s.end = func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Signal(syscall.SIGKILL) // at once: a test that kept something finds it in the log of the tables
			<-ended
		}
	}
	t.Cleanup(s.end)
	testkit.Eventually(t, time.Minute, "MariaDB to answer", func() error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("MariaDB ended at once: %v\n%s", err, log.String())
		default:
		}
		db, err := sql.Open("mysql", s.DSN(""))
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		return db.PingContext(t.Context())
	})
}

// Stop ends the server as a power cut does, and Again starts it on the same data.
func (s *Server) Stop() { s.end() }

// Again starts the server that was stopped.
func (s *Server) Again(t testing.TB) {
	t.Helper()
	s.serve(t)
}

// DSN is the address of a database in the form of Go's driver.
func (s *Server) DSN(database string) string {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DBName = User, s.Password, "tcp", net.JoinHostPort(s.Host, strconv.Itoa(s.Port)), database
	return c.FormatDSN()
}

// Database makes an empty one.
func (s *Server) Database(t testing.TB, name string) {
	t.Helper()
	db, err := sql.Open("mysql", s.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE `"+name+"`"); err != nil {
		t.Fatal(err)
	}
}
