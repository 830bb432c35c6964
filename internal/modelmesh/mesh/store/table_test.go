// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit/freeport"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// etcd starts a real one and returns its endpoint.
func etcd(t *testing.T) string {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		assets = filepath.Join(cache, "modelplane", "local", "current")
	}
	var urls [2]string
	for i := range urls {
		urls[i] = fmt.Sprintf("http://127.0.0.1:%d", freeport.At(t, "127.0.0.1"))
	}
	cmd := exec.Command(filepath.Join(assets, "etcd"), "--name=one", "--data-dir="+t.TempDir(), "--listen-client-urls="+urls[0], "--advertise-client-urls="+urls[0],
		"--listen-peer-urls="+urls[1], "--initial-advertise-peer-urls="+urls[1], "--initial-cluster=one="+urls[1], "--log-level=error", "--unsafe-no-fsync")
	if err := guard.Start(cmd); err != nil {
		t.Fatalf("this test needs etcd: run `make test`, which builds it once: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = guard.Wait(cmd) })
	return urls[0]
}

func open(t *testing.T, endpoint string, readOnly bool) *Store {
	t.Helper()
	config, err := Parse("etcd:" + endpoint)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(config, Options{Prefix: "mm", Service: "svc", ReadOnly: readOnly, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	eventually(t, "etcd answers", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return s.Check(ctx)
	})
	return s
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		<-ticker.C
	}
}

// TestTable: a mirror sees what others write, page by page and as it happens, and is right again after a compaction that it
// has not seen; writes that have not seen the present are refused.
func TestTable(t *testing.T) {
	endpoint := etcd(t)
	writer, reader := open(t, endpoint, false), open(t, endpoint, false)
	ctx := t.Context()
	const many = page + page/2
	for i := range many {
		if i%100 == 0 {
			var writes []Write
			for n := range 100 {
				writes = append(writes, Write{Table: Registry, ID: fmt.Sprint("m", i+n), Value: []byte(`{"type":"t"}`)})
			}
			if _, err := writer.Commit(ctx, writes...); err != nil {
				t.Fatal(err)
			}
		}
	}
	table := NewTable(reader, Registry, ModelCodec, nil)
	first, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { table.Run(first); close(ended) }()
	<-table.Synced()
	if table.Len() != many {
		t.Fatalf("%d records, want %d", table.Len(), many)
	}
	stop()
	<-ended
	if _, err := writer.Commit(ctx, Write{Table: Registry, ID: "m0", Revision: Any}); err != nil {
		t.Fatal(err)
	}
	revision, err := writer.Commit(ctx, Write{Table: Registry, ID: "new", Value: []byte(`{"type":"t"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.client.Compact(ctx, revision); err != nil {
		t.Fatal(err)
	}
	if err := table.watch(ctx, 2); err == nil {
		t.Error("a watch from before a compaction goes on")
	}
	go table.Run(ctx)
	eventually(t, "the mirror is right again", func() error {
		_, old := table.Get("m0")
		_, fresh := table.Get("new")
		if old || !fresh || table.Len() != many {
			return fmt.Errorf("m0 %t, new %t, %d records", old, fresh, table.Len())
		}
		return nil
	})
	row, _ := table.Get("m1")
	if _, err := writer.Commit(ctx, Write{Table: Registry, ID: "m1", Revision: row.Revision, Value: []byte(`{"type":"u"}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Commit(ctx, Write{Table: Registry, ID: "m1", Revision: row.Revision, Value: []byte(`{"type":"v"}`)}); !errors.Is(err, ErrConflict) {
		t.Errorf("a write that has not seen the present: %v", err)
	}
	after, err := table.Update(ctx, "m1", func(now *Model) (*Model, bool, error) {
		next := now.Clone()
		next.Refs++
		return next, true, nil
	})
	if err != nil || after.Type() != "u" || after.Refs != 1 {
		t.Errorf("%+v, %v", after, err)
	}
	readOnly(t, endpoint)
}

// readOnly refuses models and lets instances announce themselves.
func readOnly(t *testing.T, endpoint string) {
	t.Helper()
	s := open(t, endpoint, true)
	if _, err := s.Commit(t.Context(), Write{Table: VModels, ID: "x", Value: []byte("{}")}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("a write to a store that is read-only: %v", err)
	}
	if _, err := s.Commit(t.Context(), Write{Table: Instances, ID: "x", Value: []byte("{}")}); err != nil {
		t.Error(err)
	}
}

// TestElection: one leads, and another takes over when it has gone. Each is told once that it does.
func TestElection(t *testing.T) {
	endpoint := etcd(t)
	var elections [2]*Election
	var stops [2]context.CancelFunc
	var led [2]atomic.Int32
	for i := range elections {
		s := open(t, endpoint, false)
		session := NewSession(s, 20*time.Second)
		ctx, stop := context.WithCancel(t.Context())
		elections[i], stops[i] = NewElection(s, session, fmt.Sprint("i", i), func() { led[i].Add(1) }), stop
		go session.Run(ctx)
		go elections[i].Run(ctx)
	}
	one := func() error {
		if elections[0].Leads() == elections[1].Leads() {
			return fmt.Errorf("both lead: %t", elections[0].Leads())
		}
		return nil
	}
	eventually(t, "one leads", one)
	leader, other := 0, 1
	if elections[1].Leads() {
		leader, other = 1, 0
	}
	stops[leader]()
	eventually(t, "the other takes over", func() error {
		if !elections[other].Leads() {
			return errors.New("nobody leads")
		}
		return nil
	})
	eventually(t, "each is told", func() error {
		if a, b := led[0].Load(), led[1].Load(); a != 1 || b != 1 {
			return fmt.Errorf("%d and %d times", a, b)
		}
		return nil
	})
	stops[other]()
}
