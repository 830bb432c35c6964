// SPDX-License-Identifier: Apache-2.0

// Package redis runs a real Redis or Valkey server for a test, on a port of its own, with a password. It is for tests only
// and knows nothing of what is kept in it.
package redis

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// Server is a running one.
type Server struct {
	Host     string
	Port     int
	Password string

	dir string
	end func()
}

// Start runs a server until the test ends, for this machine alone. Where none is installed it is installed if that is possible;
// else the test is skipped. In CI, where nobody would read that, it fails instead, and installs nothing.
func Start(t testing.TB) *Server {
	t.Helper()
	err := install(t.Context())
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	s := &Server{Host: "127.0.0.1", Port: testkit.FreePort(t), Password: "s3cr:t/p@ss%w?", dir: t.TempDir()}
	s.Again(t)
	return s
}

// debian is the package that has the program. It is not the one that also starts a service.
const debian = "redis-tools"

// tools are Debian's, each of which is a server, too.
var tools = []string{"/usr/bin/valkey-check-rdb", "/usr/bin/redis-check-rdb"}

// program is where a server is, and the name by which it is told that it is one: Debian has one program for all tools.
func program() (path, name string) {
	for _, known := range []string{"valkey-server", "redis-server"} {
		if path, err := exec.LookPath(known); err == nil {
			return path, known
		}
	}
	for _, tool := range tools {
		if _, err := os.Stat(tool); err == nil {
			return tool, strings.Replace(filepath.Base(tool), "check-rdb", "server", 1)
		}
	}
	return "", ""
}

func install(ctx context.Context) error {
	if path, _ := program(); path != "" {
		return nil
	}
	if os.Getenv("CI") != "" { // what is installed beside tests changes what they measure
		return fmt.Errorf("neither Valkey nor Redis is installed; run `make parts` before the tests, which installs %s", debian)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("neither Valkey nor Redis is installed; install one with: apt-get install --no-install-recommends %s", debian)
	}
	get := func(args ...string) ([]byte, error) {
		return exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...).CombinedOutput()
	}
	out, err := get("install", "--yes", "--no-install-recommends", debian)
	if err != nil {
		// The lists of a new machine may be missing, or older than what they lead to.
		_, _ = get("update")
		out, err = get("install", "--yes", "--no-install-recommends", debian)
	}
	if path, _ := program(); err == nil && path == "" {
		err = errors.New("it is not there afterwards")
	}
	if err != nil {
		return fmt.Errorf("neither Valkey nor Redis is installed, and apt-get cannot install %s: %w\n%s", debian, err, out)
	}
	return nil
}

// Again starts the server that was stopped, where it was and with nothing in it.
func (s *Server) Again(t testing.TB) {
	t.Helper()
	path, name := program()
	config := filepath.Join(s.dir, "config")
	text := fmt.Sprintf("bind %s\nport %d\nrequirepass %s\nsave \"\"\nappendonly no\ndir %s\n", s.Host, s.Port, s.Password, s.dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, config)
	cmd.Args[0] = name
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
			_ = cmd.Process.Signal(syscall.SIGKILL)
			<-ended
		}
	}
	t.Cleanup(s.end)
	testkit.Eventually(t, time.Minute, "the server to answer", func() error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended at once: %v\n%s", name, err, log.String())
		default:
		}
		return s.ping()
	})
}

func (s *Server) address() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

func (s *Server) ping() error {
	conn, err := net.DialTimeout("tcp", s.address(), time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\nPING\r\n", s.Password); err != nil {
		return err
	}
	answers := bufio.NewScanner(conn)
	for _, want := range []string{"+OK", "+PONG"} {
		if !answers.Scan() || answers.Text() != want {
			return fmt.Errorf("got %q, want %s", answers.Text(), want)
		}
	}
	return nil
}

// Stop ends the server as a power cut does.
func (s *Server) Stop() { s.end() }

// URL of a database of the server.
func (s *Server) URL(number int) string {
	u := url.URL{Scheme: "redis", User: url.UserPassword("", s.Password), Host: s.address(), Path: strconv.Itoa(number)}
	return u.String()
}
