// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/fetch"
	"github.com/modelplane/modelplane/internal/fetch/fetchtest"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// modelServer remembers what it was asked for.
type modelServer struct {
	address string
	server  *http.Server
	dir     string

	mu     sync.Mutex
	calls  []string
	loaded map[string]string // by name what is in its file "weights"
	refuse map[string]int    // by call how often it is refused
}

func newModelServer(t *testing.T, dir string) *modelServer {
	t.Helper()
	s := &modelServer{dir: dir, loaded: map[string]string{}, refuse: map[string]int{}}
	s.start(t, "127.0.0.1:0")
	t.Cleanup(func() { _ = s.server.Close() })
	return s
}

func (s *modelServer) start(t *testing.T, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	s.server = server
	go func() { _ = server.Serve(listener) }()
}

// stop is what a kill does: everything is forgotten.
func (s *modelServer) stop() {
	_ = s.server.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = map[string]string{}
}

func (s *modelServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	parts := strings.Split(strings.TrimPrefix(req.URL.Path, "/v2/repository/models/"), "/")
	if len(parts) != 2 || req.Method != http.MethodPost || req.Header.Get("Content-Type") != "application/json" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	call := parts[1] + " " + parts[0]
	s.calls = append(s.calls, call)
	if s.refuse[call] > 0 {
		s.refuse[call]--
		http.Error(w, "not now", http.StatusInternalServerError)
		return
	}
	if parts[1] == "unload" {
		delete(s.loaded, parts[0])
		return
	}
	weights, err := os.ReadFile(filepath.Join(s.dir, parts[0], "weights"))
	if err != nil {
		http.Error(w, "no such model", http.StatusNotFound)
		return
	}
	s.loaded[parts[0]] = string(weights)
}

func (s *modelServer) has() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for name, weights := range s.loaded {
		out[name] = weights
	}
	return out
}

func (s *modelServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// bed is a puller between a storage and a model server.
type bed struct {
	t              *testing.T
	config, models string
	files          *fetchtest.Server
	server         *modelServer
	end            context.CancelFunc
	ended          chan error
	version        int
}

func newBed(t *testing.T, files map[string][]byte) *bed {
	t.Helper()
	b := &bed{t: t, config: t.TempDir(), models: filepath.Join(t.TempDir(), "models"), files: fetchtest.New(t, files)}
	b.server = newModelServer(t, b.models)
	return b
}

// list replaces the list as the kubelet does.
func (b *bed) list(models map[string]string) {
	b.t.Helper()
	entries := []map[string]any{}
	for name, path := range models {
		entries = append(entries, map[string]any{"modelName": name, "modelSpec": map[string]any{
			"storageUri": b.files.URL + path, "framework": "sklearn", "memory": "1Gi"}})
	}
	raw, err := json.Marshal(entries)
	if err != nil {
		b.t.Fatal(err)
	}
	b.write(raw)
}

func (b *bed) write(raw []byte) {
	b.t.Helper()
	b.version++
	dir := filepath.Join(b.config, fmt.Sprint("..v", b.version))
	must(b.t, os.Mkdir(dir, 0o755))
	must(b.t, os.WriteFile(filepath.Join(dir, listName), raw, 0o600))
	must(b.t, os.Symlink(filepath.Base(dir), filepath.Join(b.config, "..data_tmp")))
	must(b.t, os.Rename(filepath.Join(b.config, "..data_tmp"), filepath.Join(b.config, "..data")))
	if b.version == 1 {
		must(b.t, os.Symlink(filepath.Join("..data", listName), filepath.Join(b.config, listName)))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start runs a puller until stop or the end of the test.
func (b *bed) start() *Puller {
	b.t.Helper()
	at := "http://" + b.server.address
	p := New(Options{
		ConfigDir: b.config, ModelDir: b.models, Server: at, Pulls: 2, Log: slog.New(slog.DiscardHandler),
		Fetch: fetch.Options{Parallel: 2, Env: func(string) string { return "" }, Tune: func(c *transfer.Client) {
			c.Attempts, c.Pause = 1, func(context.Context, time.Duration) error { return nil }
		}},
		Every: 5 * time.Millisecond, Pauses: []time.Duration{10 * time.Millisecond}, Patience: 10 * time.Second,
	})
	ctx, cancel := context.WithCancel(context.Background())
	b.end, b.ended = cancel, make(chan error, 1)
	go func() { b.ended <- p.Run(ctx) }()
	b.t.Cleanup(b.stop)
	return p
}

func (b *bed) stop() {
	if b.end == nil {
		return
	}
	b.end()
	if err := <-b.ended; err != nil {
		b.t.Error(err)
	}
	b.end = nil
}

func (b *bed) settled(p *Puller) {
	b.t.Helper()
	select {
	case <-p.Settled():
	case <-time.After(2 * time.Minute):
		b.t.Fatal("the start did not end")
	}
}

func (b *bed) wait(want map[string]string) {
	b.t.Helper()
	b.until(func() string { return cmp.Diff(want, b.server.has()) })
}

func (b *bed) until(wrong func() string) {
	b.t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(2 * time.Minute); ; <-ticker.C {
		text := wrong()
		if text == "" {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatal(text)
		}
	}
}

// onDisk are the models that are complete.
func (b *bed) onDisk() []string {
	b.t.Helper()
	entries, err := os.ReadDir(b.models)
	must(b.t, err)
	var out []string
	for _, e := range entries {
		if e.Name() != aside {
			out = append(out, e.Name())
		}
	}
	return out
}

func packed(t *testing.T, weights string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	must(t, w.WriteHeader(&tar.Header{Name: "weights", Mode: 0o644, Size: int64(len(weights))}))
	_, err := w.Write([]byte(weights))
	must(t, err)
	must(t, w.Close())
	must(t, zip.Close())
	return out.Bytes()
}

// TestLife follows models from their start to their end.
func TestLife(t *testing.T) {
	b := newBed(t, map[string][]byte{"/a/weights": []byte("A"), "/a2/weights": []byte("A2"), "/b.tar.gz": packed(t, "B")})
	b.list(map[string]string{"a": "/a/weights", "b": "/b.tar.gz"})
	b.settled(b.start())
	b.wait(map[string]string{"a": "A", "b": "B"})
	marks, err := filepath.Glob(filepath.Join(b.models, "a", "SUCCESS.*"))
	if err != nil || len(marks) != 1 || len(filepath.Base(marks[0])) != len("SUCCESS.")+64 {
		t.Errorf("the marks are %v, %v", marks, err)
	}

	b.list(map[string]string{"a": "/a2/weights"}) // one changes, one goes
	b.wait(map[string]string{"a": "A2"})
	b.until(func() string { return cmp.Diff([]string{"a"}, b.onDisk()) })

	b.list(map[string]string{"a": "/a/weights", "b": "/b.tar.gz"}) // and back
	b.wait(map[string]string{"a": "A", "b": "B"})

	before := len(b.server.asked())
	b.write([]byte("nonsense"))
	b.list(map[string]string{"a": "/a/weights", "b": "/b.tar.gz"})
	b.list(map[string]string{})
	b.wait(map[string]string{})
	if calls := b.server.asked()[before:]; len(calls) != 2 {
		t.Errorf("a list that cannot be used, and one that says the same, led to %v", calls)
	}
}

// TestRestart: what is complete is not fetched again, what is not is, and what nobody wants goes.
func TestRestart(t *testing.T) {
	b := newBed(t, map[string][]byte{"/a/weights": []byte("A"), "/b/weights": []byte("B"), "/c/weights": []byte("C")})
	b.list(map[string]string{"a": "/a/weights", "b": "/b/weights"})
	b.settled(b.start())
	b.wait(map[string]string{"a": "A", "b": "B"})
	b.stop()
	// Killed in the middle: half a model, something on its way, and a mark deep below that is none.
	must(t, os.MkdirAll(filepath.Join(b.models, "c", "deep"), 0o755))
	must(t, os.WriteFile(filepath.Join(b.models, "c", "deep", "SUCCESS.0"), []byte(`{"storageUri":"x"}`), 0o600))
	must(t, os.WriteFile(filepath.Join(b.models, "c", "weights"), []byte("half"), 0o600))
	must(t, os.MkdirAll(filepath.Join(b.models, aside, "c"), 0o755))
	requests := len(b.files.Requests())
	b.list(map[string]string{"a": "/a/weights", "c": "/c/weights"})
	b.settled(b.start())
	b.wait(map[string]string{"a": "A", "c": "C"})
	if diff := cmp.Diff([]string{"a", "c"}, b.onDisk()); diff != "" {
		t.Error(diff)
	}
	for _, req := range b.files.Requests()[requests:] {
		if !strings.HasPrefix(req.URL.Path, "/c/") {
			t.Errorf("%s was fetched again", req.URL.Path)
		}
	}
}

// TestServerComesLate: the start waits for it.
func TestServerComesLate(t *testing.T) {
	b := newBed(t, map[string][]byte{"/a/weights": []byte("A")})
	b.server.stop()
	b.list(map[string]string{"a": "/a/weights"})
	p := b.start()
	b.until(func() string {
		if _, ok := p.folder.mark("a"); !ok {
			return "it is not fetched"
		}
		return ""
	})
	select {
	case <-p.Settled():
		t.Error("the start did not wait")
	default:
	}
	b.server.start(t, b.server.address)
	b.settled(p)
	b.wait(map[string]string{"a": "A"})
}

// TestServerRestarts: its models are loaded again.
func TestServerRestarts(t *testing.T) {
	b := newBed(t, map[string][]byte{"/a/weights": []byte("A"), "/b/weights": []byte("B")})
	b.list(map[string]string{"a": "/a/weights", "b": "/b/weights"})
	b.settled(b.start())
	b.wait(map[string]string{"a": "A", "b": "B"})
	requests := len(b.files.Requests())
	for range 5 { // at once: between two looks nobody sees it gone
		b.server.stop()
		b.server.start(t, b.server.address)
		b.wait(map[string]string{"a": "A", "b": "B"})
	}
	if n := len(b.files.Requests()); n != requests {
		t.Errorf("%d files were fetched again", n-requests)
	}
	calls := len(b.server.asked())
	second, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2"+b.server.address[strings.LastIndex(b.server.address, ":"):])
	must(t, err)
	defer second.Close() // another process of the same server
	for range 20 {
		<-time.After(5 * time.Millisecond)
	}
	if n := len(b.server.asked()); n != calls {
		t.Errorf("a server that was not started again was asked %d times", n-calls)
	}
}

// TestSockets: who listens is read from the tables of the kernel, of which the rest is left alone.
func TestSockets(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	line := func(address, state, inode string) string {
		return "   0: " + address + " 00000000:0000 " + state + " 00000000:00000000 00:00000000 00000000     0        0 " + inode + " 1 0 100 0 0 10 0\n"
	}
	for name, c := range map[string]struct {
		table string
		want  sockets
	}{
		"nothing":               {head, sockets{}},
		"another port":          {head + line("0100007F:1F91", "0A", "7"), sockets{}},
		"the port":              {head + line("0100007F:1F91", "0A", "7") + line("00000000:1F90", "0A", "8"), sockets{"8": true}},
		"several, as of IPv6":   {head + line("00000000000000000000000000000000:1F90", "0A", "7") + line("00000000:1F90", "0A", "8"), sockets{"7": true, "8": true}},
		"connections":           {head + line("00000000:1F90", "0A", "8") + line("0100007F:1F90", "01", "9") + line("0100007F:1F90", "0A", "10"), sockets{"8": true}},
		"a table that is none":  {"nonsense\n" + strings.Repeat("x ", 20) + "\n", sockets{}},
		"a line that is broken": {head + "   0: 00000000:1F90 00000000:0000 0A\n", sockets{}},
	} {
		got := sockets{}
		if got.read(strings.NewReader(c.table), 8080); !cmp.Equal(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestFailures are tried again, hold up nobody else, and leave the old version in its place.
func TestFailures(t *testing.T) {
	b := newBed(t, map[string][]byte{"/a/weights": []byte("A"), "/b/weights": []byte("B")})
	b.server.refuse["load b"] = 2
	b.list(map[string]string{"a": "/a/weights", "b": "/b/weights", "missing": "/missing/weights"})
	b.settled(b.start()) // in spite of what is missing
	b.wait(map[string]string{"a": "A", "b": "B"})
	b.list(map[string]string{"a": "/later/weights", "b": "/b/weights"})
	b.until(func() string {
		for _, req := range b.files.Requests() {
			if req.URL.Path == "/later/weights" {
				return ""
			}
		}
		return "the new version was not asked for"
	})
	if got := b.server.has()["a"]; got != "A" {
		t.Errorf("the old version is gone before the new one is there: %q", got)
	}
	b.files.Set("/later/weights", []byte("LATER"))
	b.wait(map[string]string{"a": "LATER", "b": "B"})
}

// TestHeldUp: an order that comes while an older one is being fetched replaces it.
func TestHeldUp(t *testing.T) {
	b := newBed(t, map[string][]byte{"/slow/weights": []byte("SLOW"), "/a/weights": []byte("A")})
	b.files.Spoil(fetchtest.Fault{Silent: true})
	b.list(map[string]string{"a": "/slow/weights"})
	p := b.start()
	b.until(func() string {
		if len(b.files.Requests()) == 0 {
			return "nothing is fetched"
		}
		return ""
	})
	b.list(map[string]string{"a": "/a/weights"})
	b.settled(p)
	b.wait(map[string]string{"a": "A"})
}

func TestWhatIsNotFetched(t *testing.T) {
	b := newBed(t, map[string][]byte{"/a/weights": []byte("A")})
	b.write([]byte(`[{"modelName":"../x","modelSpec":{"storageUri":"` + b.files.URL + `/a/weights"}},
		{"modelName":"secrets","modelSpec":{"storageUri":"file:///etc/passwd","memory":5}},
		{"modelName":"a","modelSpec":{"storageUri":"` + b.files.URL + `/a/weights"}}]`))
	b.settled(b.start())
	b.wait(map[string]string{"a": "A"})
	if diff := cmp.Diff([]string{"a"}, b.onDisk()); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`[]`, `[{"modelName":"a","modelSpec":{"storageUri":"s3://b/c","framework":"f","memory":"1Gi"}}]`, `{}`, `null`,
		`[{"modelName":"..","modelSpec":{}}]`, `[{"modelName":"a","modelSpec":{"memory":1e3}},{"modelName":"a"}]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, _, err := Parse(raw)
		if err != nil && list != nil {
			t.Error("a list that cannot be used is used")
		}
		for name := range list {
			if name != filepath.Base(name) || strings.HasPrefix(name, ".") || name == "" {
				t.Errorf("%q is no name of a directory", name)
			}
		}
	})
}

// TestNothingThere: a directory without a list is no reason to stop.
func TestNothingThere(t *testing.T) {
	b := newBed(t, map[string][]byte{"/a/weights": []byte("A")})
	p := b.start()
	b.settled(p)
	b.list(map[string]string{"a": "/a/weights"})
	b.wait(map[string]string{"a": "A"})
}

// TestCallsAtOnce: a server that is asked for many models is not asked for all of them at once, and who need not wait any
// longer does not.
func TestCallsAtOnce(t *testing.T) {
	var now atomic.Int64
	var over atomic.Bool
	reached, goOn := make(chan struct{}, 1000), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if now.Add(1) > callsAtOnce {
			over.Store(true)
		}
		defer now.Add(-1)
		reached <- struct{}{}
		<-goOn
	}))
	defer server.Close()
	p := New(Options{Server: server.URL})
	var all sync.WaitGroup
	for i := range 5 * callsAtOnce {
		all.Go(func() {
			if err := p.call(t.Context(), fmt.Sprint("m", i), "load"); err != nil {
				t.Error(err)
			}
		})
	}
	for range callsAtOnce {
		<-reached
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.call(gone, "late", "load"); !errors.Is(err, errGone) {
		t.Errorf("nobody wants it, and: %v", err)
	}
	close(goOn)
	all.Wait()
	if over.Load() {
		t.Errorf("there were more than %d calls at once", callsAtOnce)
	}
}
