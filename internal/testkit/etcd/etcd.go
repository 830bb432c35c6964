// SPDX-License-Identifier: Apache-2.0

// Package etcd runs a real etcd for tests, on an address of its own, and ends and begins it again with the same data.
package etcd

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/modelplane/modelplane/internal/testkit"
)

// Server is one etcd.
type Server struct {
	// Endpoint is where it answers.
	Endpoint string
	// Client is connected to it.
	Client *clientv3.Client

	path, dir, peer string
	running         *testkit.Program
}

// Start runs one until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	at := func() string { return fmt.Sprintf("http://127.0.0.1:%d", testkit.FreePort(t)) }
	s := &Server{Endpoint: at(), peer: at(), path: testkit.Asset(t, "etcd"), dir: t.TempDir()}
	var err error
	s.Client, err = clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Client.Close() })
	s.Begin(t)
	return s
}

// Begin runs it, again if it was ended, and waits until it answers.
func (s *Server) Begin(t testing.TB) {
	t.Helper()
	s.running = testkit.RunProgram(t, "etcd", exec.Command(s.path,
		"--data-dir", s.dir, "--listen-client-urls", s.Endpoint, "--advertise-client-urls", s.Endpoint,
		"--listen-peer-urls", s.peer, "--initial-advertise-peer-urls", s.peer, "--initial-cluster", "default="+s.peer,
		"--unsafe-no-fsync", "--log-level", "error"))
	testkit.Eventually(t, time.Minute, "etcd to answer", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.Client.Get(ctx, "/")
		return err
	})
}

// End kills it.
func (s *Server) End() { s.running.Kill() }

// Compact forgets all that is no longer so.
func (s *Server) Compact(t testing.TB) {
	t.Helper()
	now, err := s.Client.Get(t.Context(), "/")
	if err == nil {
		_, err = s.Client.Compact(t.Context(), now.Header.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Secret is what connects programs to it, with keys below a prefix.
func (s *Server) Secret(prefix string) map[string][]byte {
	return map[string][]byte{"etcd_connection": fmt.Appendf(nil, `{"endpoints":%q,"root_prefix":%q}`, s.Endpoint, prefix)}
}
