// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelmesh/client/meshtest"
	"github.com/modelplane/modelplane/internal/modelmesh/model"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/etcd"
)

const patience = 2 * time.Minute

// bench is a client, an etcd and the meshes of two namespaces.
type bench struct {
	*Client
	etcd   *etcd.Server
	meshes map[string]*meshtest.Mesh

	mu    sync.Mutex
	woken map[string]int
}

const service = "modelmesh-serving"

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{Client: New(), etcd: etcd.Start(t), woken: map[string]int{}}
	b.meshes = map[string]*meshtest.Mesh{
		"home":  meshtest.Start(t, b.etcd.Client, "/root/mm/"+service),
		"other": meshtest.Start(t, b.etcd.Client, "/root/mm_ns/other/mm/"+service),
	}
	b.run(t, model.FromPredictor)
	b.run(t, model.FromService)
	return b
}

// run lets the client listen, until the test ends.
func (b *bench) run(t *testing.T, source model.Source) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.Source(source)(ctx, func(of types.NamespacedName) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.woken[string(source)+" "+of.String()]++
		})
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
}

func (b *bench) wakes(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.woken[key]
}

func (b *bench) mesh(t *testing.T, namespace string) Mesh {
	t.Helper()
	e, err := ReadEtcd(b.etcd.Secret("root"), "home", service)
	if err != nil {
		t.Fatal(err)
	}
	return Mesh{Namespace: namespace, Service: service, Addresses: []string{b.meshes[namespace].Address()}, Etcd: e}
}

// call asks once.
func (b *bench) call(t *testing.T, name string, source model.Source, q Question) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	_, err := b.Executor(source)(ctx, types.NamespacedName{Namespace: q.Mesh.Namespace, Name: q.Model.Name}, engine.Call{Name: name, Request: q})
	return err
}

func modelOf(name, path string, source model.Source) model.Model {
	return model.Model{Name: name, Source: source, ID: name + "__" + string(source) + "-0123456789", Type: "mt:onnx", Path: path, Key: "{}"}
}

func (b *bench) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testkit.Eventually(t, patience, what, func() error {
		if !holds() {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestLoad: a model is asked for once, and its records tell the rest.
func TestLoad(t *testing.T) {
	b := newBench(t)
	for namespace, source := range map[string]model.Source{"home": model.FromPredictor, "other": model.FromService} {
		q := Question{Mesh: b.mesh(t, namespace), Model: modelOf("iris", "a/"+meshtest.Held, source), Load: true}
		of := types.NamespacedName{Namespace: namespace, Name: "iris"}
		if err := b.call(t, CallSet, source, q); err != nil {
			t.Fatal(err)
		}
		a, ok := b.Last(source, of)
		if !ok || a.ID != q.Model.ID || a.Status.GetActiveModelStatus().GetStatus() != wire.ModelStatusInfo_LOADING {
			t.Fatalf("the answer is %+v", a)
		}
		b.eventually(t, "the record", func() bool { return b.View(source, of).Active == q.Model.ID })
		if v := b.View(source, of); !v.Fits(a.Status) || b.Told(namespace) {
			t.Errorf("while it loads, %+v does not fit %v, or it is told of", v, a.Status)
		}
		b.meshes[namespace].Release()
		b.eventually(t, "the end of the load", func() bool { return b.View(source, of).ActiveCopies.Loaded == 1 })
		if b.View(source, of).Fits(a.Status) || !b.Told(namespace) {
			t.Error("nobody would notice that it is loaded")
		}
		if b.wakes(string(source)+" "+of.String()) == 0 {
			t.Error("nobody was woken")
		}
		q.After = b.View(source, of).Revision
		if err := b.call(t, CallStatus, source, q); err != nil {
			t.Fatal(err)
		}
		if a, _ = b.Last(source, of); a.Status.GetActiveModelStatus().GetStatus() != wire.ModelStatusInfo_LOADED || !b.View(source, of).Fits(a.Status) {
			t.Errorf("%+v does not fit %v", b.View(source, of), a.Status)
		}
		if n := b.meshes[namespace].Total(); n != 2 {
			t.Errorf("%d calls: %v", n, b.meshes[namespace].Calls())
		}
		b.meshes[namespace].Evict(q.Model.ID)
		b.eventually(t, "the end of the copy", func() bool { return !b.View(source, of).Fits(a.Status) })
	}
}

// TestAnswers: what a mesh says in place of an answer, and in which words it is told.
func TestAnswers(t *testing.T) {
	b := newBench(t)
	q := Question{Mesh: b.mesh(t, "home"), Model: modelOf("iris", "a", model.FromPredictor)}
	of := types.NamespacedName{Namespace: "home", Name: "iris"}
	if err := b.call(t, CallStatus, model.FromPredictor, q); err != nil {
		t.Fatal(err)
	}
	if a, ok := b.Last(model.FromPredictor, of); !ok || a.ID != "" {
		t.Errorf("a name that is not known: %+v", a)
	}
	if err := b.call(t, CallSet, model.FromPredictor, q); err != nil {
		t.Fatal(err)
	}
	taken := q
	taken.Model = modelOf("iris", "a", model.FromService)
	if err := b.call(t, CallSet, model.FromService, taken); err != nil {
		t.Fatal(err)
	}
	if a, _ := b.Last(model.FromService, of); !a.Taken {
		t.Errorf("a name that is taken: %+v", a)
	}
	for code, words := range map[codes.Code]string{
		codes.Unavailable: "does not answer", codes.DeadlineExceeded: "within 10s", codes.Unimplemented: "run a mesh", codes.Internal: "a b (Internal)",
	} {
		b.meshes["home"].Spoil(func(string) error { return status.Error(code, "a\nb") })
		if err := b.call(t, CallSet, model.FromPredictor, q); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", code, err)
		}
	}
	long := bounded(&wire.VModelStatusInfo{ActiveModelStatus: &wire.ModelStatusInfo{Errors: []string{strings.Repeat("ä\n", mostText), "x"}}})
	if e := long.GetActiveModelStatus().GetErrors(); len(e) != 1 || len(e[0]) > mostText+10 || strings.Contains(e[0], "\n") {
		t.Errorf("%d errors, the first of %d bytes", len(e), len(e[0]))
	}
}

// TestForgotten: a mesh that lost what it knew is asked again.
func TestForgotten(t *testing.T) {
	b := newBench(t)
	q := Question{Mesh: b.mesh(t, "home"), Model: modelOf("iris", "a", model.FromPredictor), Load: true}
	of := types.NamespacedName{Namespace: "home", Name: "iris"}
	if err := b.call(t, CallSet, model.FromPredictor, q); err != nil {
		t.Fatal(err)
	}
	b.eventually(t, "the record", func() bool { return b.View(model.FromPredictor, of).ActiveCopies.Loaded == 1 })
	before := b.wakes("ksp home/iris")
	b.meshes["home"].Forget()
	b.eventually(t, "the end of what it said", func() bool {
		_, ok := b.Last(model.FromPredictor, of)
		return !ok && b.wakes("ksp home/iris") > before
	})
}

// TestResume: etcd is away, and forgets what has changed meanwhile; nothing is missed.
func TestResume(t *testing.T) {
	b := newBench(t)
	q := Question{Mesh: b.mesh(t, "home"), Model: modelOf("iris", "a/"+meshtest.Held, model.FromPredictor), Load: true}
	of := types.NamespacedName{Namespace: "home", Name: "iris"}
	if err := b.call(t, CallSet, model.FromPredictor, q); err != nil {
		t.Fatal(err)
	}
	b.eventually(t, "the record", func() bool { return b.View(model.FromPredictor, of).Active != "" })
	b.etcd.End()
	b.etcd.Begin(t)
	b.meshes["home"].Release()
	b.eventually(t, "what happened meanwhile", func() bool { return b.View(model.FromPredictor, of).ActiveCopies.Loaded == 1 })

	// Read anew, as after a compaction: who is concerned is woken, and what is gone is noticed.
	before, next := b.wakes("ksp home/iris"), newRecords()
	next.put("home", vmodels, "rose", []byte(`{"o":"ksp","amid":"rose__ksp-0123456789","tmid":"rose__ksp-0123456789"}`), 7)
	b.watch.replace(next)
	if b.wakes("ksp home/iris") != before+1 || b.wakes("ksp home/rose") != 1 {
		t.Errorf("woken: %v", b.woken)
	}
	if _, ok := b.Last(model.FromPredictor, of); ok {
		t.Error("what a mesh said of a name that is gone is kept")
	}
}

// TestCompacted: a watch that begins before what is kept reads everything.
func TestCompacted(t *testing.T) {
	b := newBench(t)
	m := b.mesh(t, "home")
	kv, err := m.Etcd.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer kv.Close() //nolint:errcheck // of a test
	for i := range 3 {
		if _, err := kv.Put(t.Context(), fmt.Sprint("/x/", i), "y"); err != nil {
			t.Fatal(err)
		}
	}
	b.etcd.Compact(t)
	if err := b.watch.readChanges(t.Context(), kv, m.Etcd, 0, make(chan struct{})); !errors.Is(err, errCompacted) {
		t.Errorf("it ends with %v", err)
	}
}

// TestRemove: where no pod runs, the records are changed as a mesh would.
func TestRemove(t *testing.T) {
	b := newBench(t)
	m := b.mesh(t, "other")
	for _, name := range []string{"iris", "rose"} {
		q := Question{Mesh: m, Model: modelOf(name, "a", model.FromPredictor), Load: true}
		if err := b.call(t, CallSet, model.FromPredictor, q); err != nil {
			t.Fatal(err)
		}
	}
	m.Addresses = nil
	shared := m.Etcd.table("other", registry) + "shared"
	if _, err := b.etcd.Client.Put(t.Context(), shared, `{"type":"t","refs":2,"autoDel":true,"x":[1]}`); err != nil {
		t.Fatal(err)
	}
	if _, err := b.etcd.Client.Put(t.Context(), m.Etcd.table("other", vmodels)+"iris", `{"o":"ksp","amid":"shared","tmid":"iris__ksp-0123456789"}`); err != nil {
		t.Fatal(err)
	}
	b.eventually(t, "the loads", func() bool {
		return b.View(model.FromPredictor, types.NamespacedName{Namespace: "other", Name: "rose"}).ActiveCopies.Loaded == 1
	})
	for range 2 { // the second time there is nothing left to do
		if err := b.call(t, CallDelete, model.FromPredictor, Question{Mesh: m, Model: model.Model{Name: "iris"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.call(t, CallDelete, model.FromService, Question{Mesh: m, Model: model.Model{Name: "rose"}}); err != nil {
		t.Fatal(err)
	}
	have, err := b.etcd.Client.Get(t.Context(), "/root/mm_ns/other/", withPrefix)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range have.Kvs {
		_, table, id, _ := m.Etcd.place(string(kv.Key))
		keys = append(keys, table+"/"+id)
		if id == "shared" && string(kv.Value) != `{"autoDel":true,"refs":1,"type":"t","x":[1]}` {
			t.Errorf("the model of another name is left as %s", kv.Value)
		}
	}
	if want := []string{"registry/rose__ksp-0123456789", "registry/shared", "vmodels/rose"}; !slices.Equal(keys, want) {
		t.Errorf("left are %v, want %v", keys, want)
	}
}

// TestPods: connections follow the pods, and end with the mesh.
func TestPods(t *testing.T) {
	b := newBench(t)
	dialed := map[string]int{}
	var mu sync.Mutex
	b.DialWith(func(ctx context.Context, address string) (net.Conn, error) {
		mu.Lock()
		dialed[address]++
		mu.Unlock()
		return (&net.Dialer{}).DialContext(ctx, "tcp", b.meshes["home"].Address())
	})
	q := Question{Mesh: b.mesh(t, "home"), Model: modelOf("iris", "a", model.FromPredictor)}
	q.Mesh.Addresses = []string{"10.0.0.1:8033"}
	if err := b.call(t, CallStatus, model.FromPredictor, q); err != nil {
		t.Fatal(err)
	}
	before := q.Mesh.Pods()
	q.Mesh.Addresses = []string{"10.0.0.2:8033", "10.0.0.3:8033"}
	if before == q.Mesh.Pods() {
		t.Error("other pods are not told from those before")
	}
	b.eventually(t, "both pods to be asked", func() bool {
		if err := b.call(t, CallStatus, model.FromPredictor, q); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return dialed["10.0.0.2:8033"] == 1 && dialed["10.0.0.3:8033"] == 1
	})
	if !b.Connected("home") || dialed["10.0.0.1:8033"] != 1 {
		t.Errorf("dialed %v", dialed)
	}
	if err := b.call(t, CallLeave, model.FromPredictor, Question{Mesh: Mesh{Namespace: "home"}, Model: model.Model{Name: "iris"}}); err != nil || b.Connected("home") {
		t.Errorf("the connection stays: %v", err)
	}
	if _, err := b.connect(q.Mesh); err != nil {
		t.Fatal(err)
	}
	b.now = func() time.Time { return time.Now().Add(2 * unused) }
	if _, err := b.connect(b.mesh(t, "other")); err != nil || b.Connected("home") {
		t.Errorf("a connection that nobody uses stays: %v", err)
	}
}
