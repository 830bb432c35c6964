// SPDX-License-Identifier: Apache-2.0

package member

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/modelplane/modelplane/runtimes/etcd/internal/connection"
	"github.com/modelplane/modelplane/runtimes/etcd/internal/keys"
	"github.com/modelplane/modelplane/runtimes/etcd/internal/secrets"
)

const patience = 60 * time.Second

// world is a namespace with its API server, and a machine on which members have ports of their own.
type world struct {
	*testing.T
	mu      sync.Mutex
	stored  map[string]map[string][]byte
	version map[string]int
	refused map[string]bool // Secrets that may not be read or changed
	client  *secrets.Client
	ports   [most][3]string
	dirs    [most]string
	now     func() time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, now: time.Now, version: map[string]int{}, refused: map[string]bool{},
		stored: map[string]map[string][]byte{"certificates": {}, "model-serving-etcd": {}}}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.client = &secrets.Client{URL: server.URL, Namespace: "models", HTTP: server.Client(), Token: func() (string, error) { return "token", nil }}
	var held []net.Listener // until all ports are known, so that none is taken twice
	for i := range most {
		w.dirs[i] = filepath.Join(t.TempDir(), "data")
		for j := range w.ports[i] {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, listener)
			_, w.ports[i][j], _ = net.SplitHostPort(listener.Addr().String())
		}
	}
	for _, listener := range held {
		listener.Close()
	}
	return w
}

// ServeHTTP does what the API server does with Secrets.
func (w *world) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := strings.TrimPrefix(request.URL.Path, "/api/v1/namespaces/models/secrets/")
	data, found := w.stored[name]
	if !found || w.refused[name] || request.Header.Get("Authorization") != "Bearer token" {
		answer.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(answer, `{"message": "not for you"}`)
		return
	}
	if request.Method == http.MethodPatch {
		var patch struct {
			Metadata struct{ ResourceVersion string }
			Data     map[string][]byte
		}
		if err := json.NewDecoder(request.Body).Decode(&patch); err != nil {
			w.Error(err)
		}
		if patch.Metadata.ResourceVersion != fmt.Sprint(w.version[name]) {
			answer.WriteHeader(http.StatusConflict)
			return
		}
		for key, value := range patch.Data {
			data[key] = value
		}
		w.version[name]++
	}
	_ = json.NewEncoder(answer).Encode(map[string]any{"metadata": map[string]any{"resourceVersion": fmt.Sprint(w.version[name])}, "data": data})
}

func (w *world) secret(name, key string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.stored[name][key])
}

func (w *world) options(ordinal, replicas int) Options {
	return Options{
		Name: fmt.Sprintf("etcd-%d", ordinal), Namespace: "models", Service: "etcd", Peers: "etcd-peers", Replicas: replicas,
		Dir: w.dirs[ordinal], Run: filepath.Join(w.TempDir(), "run"), Secret: "certificates", Connection: "model-serving-etcd",
		RootPrefix: "root", TLS: true, Quota: 1 << 30, LogLevel: "fatal", secrets: w.client, now: w.now,
		pause: 50 * time.Millisecond, look: 50 * time.Millisecond, careless: true, metricsPort: w.ports[ordinal][2],
		address: func(i int) endpoints {
			return endpoints{listen: "127.0.0.1", host: "127.0.0.1", client: w.ports[i][0], peer: w.ports[i][1]}
		},
	}
}

// running member.
type running struct {
	stop  func() error
	ready chan struct{}
	ended chan error
}

func (w *world) start(o Options) running {
	ctx, cancel := context.WithCancel(context.Background())
	r := running{ready: make(chan struct{}), ended: make(chan error, 1)}
	go func() { r.ended <- Run(ctx, o, func() { close(r.ready) }) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-r.ended
	})
	w.Cleanup(func() { _ = r.stop() })
	return r
}

func (w *world) isReady(members ...running) {
	w.Helper()
	for i, r := range members {
		select {
		case <-r.ready:
		case err := <-r.ended:
			w.Fatalf("member %d ended: %v", i, err)
		case <-time.After(patience):
			w.Fatalf("member %d is not ready", i)
		}
	}
}

// connect goes the way that the Secret tells, to one member.
func (w *world) connect(ordinal int) *clientv3.Client {
	w.Helper()
	file := filepath.Join(w.TempDir(), connection.Key)
	var way connection.Config
	if err := json.Unmarshal([]byte(w.secret("model-serving-etcd", connection.Key)), &way); err != nil {
		w.Fatal(err)
	}
	if want := "https://etcd.models.svc:2379"; way.Endpoints != want || way.RootPrefix != "root" {
		w.Errorf("the Secret leads to %s below %s", way.Endpoints, way.RootPrefix)
	}
	way.Endpoints = "https://127.0.0.1:" + w.ports[ordinal][0]
	raw, err := way.Encode()
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		w.Fatal(err)
	}
	client, _, err := connection.Open(file)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = client.Close() })
	return client
}

func (w *world) put(client *clientv3.Client, key, value string, options ...clientv3.OpOption) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := client.Put(ctx, key, value, options...); err != nil {
		w.Fatal(err)
	}
}

func (w *world) all(client *clientv3.Client) map[string]string {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got, err := client.Get(ctx, "", clientv3.WithPrefix())
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range got.Kvs {
		out[string(kv.Key)] = string(kv.Value)
	}
	return out
}

// TestOneMember: it keeps its data over a restart, lets nobody in without a certificate, and tells how it is.
func TestOneMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start(w.options(0, 1))
	w.isReady(first)
	w.put(w.connect(0), "/root/mm/a", "1")
	answer, err := http.Get("http://127.0.0.1:" + w.ports[0][2] + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("ready: %s", answer.Status)
	}
	w.refusesStrangers()
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	w.isReady(w.start(w.options(0, 1)))
	if diff := cmp.Diff(map[string]string{"/root/mm/a": "1"}, w.all(w.connect(0))); diff != "" {
		t.Errorf("after a restart:\n%s", diff)
	}
}

func (w *world) refusesStrangers() {
	w.Helper()
	file := filepath.Join(w.TempDir(), "stranger")
	raw, err := connection.Config{Endpoints: "https://127.0.0.1:" + w.ports[0][0], Certificate: w.secret("certificates", "ca.crt")}.Encode()
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		w.Fatal(err)
	}
	client, _, err := connection.Open(file)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := client.Get(ctx, "a"); err == nil {
		w.Error("somebody without a certificate was let in")
	}
}

// TestThreeMembers found a cluster together; one that lost its disk takes its place again, and nothing is lost.
func TestThreeMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var members []running
	for i := range most {
		members = append(members, w.start(w.options(i, 3)))
	}
	w.isReady(members...)
	w.put(w.connect(0), "/root/mm/a", "1")
	w.eventually("all members are written down", func() error {
		var known record
		if err := json.Unmarshal([]byte(w.secret("certificates", membersKey)), &known); err != nil || len(known.Joined) != 3 {
			return fmt.Errorf("%+v %w", known, err)
		}
		return nil
	})
	if err := members[1].stop(); err != nil {
		t.Fatal(err)
	}
	w.put(w.connect(0), "/root/mm/b", "2")
	if err := os.RemoveAll(w.dirs[1]); err != nil {
		t.Fatal(err)
	}
	w.isReady(w.start(w.options(1, 3)))
	if diff := cmp.Diff(map[string]string{"/root/mm/a": "1", "/root/mm/b": "2"}, w.all(w.connect(1))); diff != "" {
		t.Errorf("after the loss of a disk:\n%s", diff)
	}
}

// TestGrows from one to three. Newcomers wait for the one that has the data, also when it is away at first: another cluster
// beside it would be the end of both.
func TestGrows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start(w.options(0, 1))
	w.isReady(first)
	w.put(w.connect(0), "/root/mm/a", "1")
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	second, third := w.start(w.options(1, 3)), w.start(w.options(2, 3))
	w.eventually("both have looked for the first", func() error {
		if entries, _ := os.ReadDir(w.dirs[1]); len(entries) > 0 {
			t.Fatal("a newcomer has founded a cluster of its own")
		}
		select {
		case <-time.After(time.Second):
			return nil
		case <-second.ready:
			t.Fatal("a newcomer answers before it has joined")
		}
		return errors.New("not yet")
	})
	w.isReady(w.start(w.options(0, 3)), second, third)
	for i := range most {
		if diff := cmp.Diff(map[string]string{"/root/mm/a": "1"}, w.all(w.connect(i))); diff != "" {
			t.Errorf("member %d:\n%s", i, diff)
		}
	}
}

// TestBackup goes from one etcd into another: what lives as long as a process is left out, what is there stays.
func TestBackup(t *testing.T) {
	t.Parallel()
	from, to := newWorld(t), newWorld(t)
	from.isReady(from.start(from.options(0, 1)))
	to.isReady(to.start(to.options(0, 1)))
	source, target := from.connect(0), to.connect(0)
	want := map[string]string{}
	for i := range 1203 {
		key := fmt.Sprintf("/root/mm/modelmesh-serving/registry/m%04d", i)
		want[key] = strings.Repeat("x", i)
		from.put(source, key, want[key])
	}
	lease, err := source.Grant(context.Background(), 600)
	if err != nil {
		t.Fatal(err)
	}
	from.put(source, "/root/mm/modelmesh-serving/instances/i", "lives", clientv3.WithLease(lease.ID))
	from.put(source, "/elsewhere/a", "of somebody else")
	var file bytes.Buffer
	if n, err := keys.Backup(context.Background(), source, keys.Under("root"), &file); err != nil || n != len(want) {
		t.Fatalf("%d keys: %v", n, err)
	}
	half := io.LimitReader(bytes.NewReader(file.Bytes()), int64(file.Len()/2))
	if _, err := keys.Restore(context.Background(), target, half, false); err == nil || len(to.all(target)) > 0 {
		t.Errorf("half a file: %v", err)
	}
	const kept = "/root/mm/modelmesh-serving/registry/m0001"
	to.put(target, kept, "newer")
	done, err := keys.Restore(context.Background(), target, bytes.NewReader(file.Bytes()), false)
	if err != nil || done != (keys.Result{Written: len(want) - 1, Kept: 1}) {
		t.Errorf("%+v: %v", done, err)
	}
	want[kept] = "newer"
	if diff := cmp.Diff(want, to.all(target)); diff != "" {
		t.Error(diff)
	}
	if _, err := keys.Restore(context.Background(), target, bytes.NewReader(file.Bytes()), true); err != nil || to.all(target)[kept] != "x" {
		t.Errorf("overwritten: %v", err)
	}
}

// TestRenewal: certificates are made anew while etcd runs, and those who connect see the new ones.
func TestRenewal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	offset := -300 * 24 * time.Hour
	w.now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(offset)
	}
	w.isReady(w.start(w.options(0, 1)))
	before := w.secret("certificates", "server.crt")
	told := w.secret("model-serving-etcd", connection.Key)
	mu.Lock()
	offset = 0
	mu.Unlock()
	w.eventually("other certificates", func() error {
		if w.secret("certificates", "server.crt") == before {
			return errors.New("the old ones")
		}
		return nil
	})
	if w.secret("model-serving-etcd", connection.Key) != told {
		t.Error("clients, who read it once, are told another way")
	}
	w.put(w.connect(0), "/root/mm/a", "1")
}

// TestAPIServerAway: nothing is made up while the Secret cannot be read.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.refused["certificates"] = true
	o := w.options(0, 1)
	r := w.start(o)
	w.eventually("it goes on trying", func() error {
		if _, err := os.Stat(o.Dir); err == nil {
			t.Fatal("etcd has begun without certificates")
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.refused["certificates"] = false
		return nil
	})
	w.isReady(r)
}

func (w *world) eventually(what string, try func() error) {
	w.Helper()
	end := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}
