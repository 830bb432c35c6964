// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// TestCalls: a model is loaded when it is called, and answers whoever is asked; messages, headers, streams and errors pass.
func TestCalls(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false)
	pods := c.start("pod-a", "pod-b")
	a, b := pods[0], pods[1]
	if info := a.register("one", "", "", false, false); info.Status != wire.ModelStatusInfo_NOT_LOADED {
		t.Errorf("status %v", info)
	}
	by := a.mustCall("one")
	if other := b.mustCall("one"); other != by {
		t.Errorf("answered by %s and %s, though only one has it", by, other)
	}
	eventually(t, "the copy is told to be loaded", func() error {
		if got := b.loadedIn("one"); len(got) != 1 || got[0] != by {
			return fmt.Errorf("loaded in %v, answered by %s", got, by)
		}
		return nil
	})
	for _, p := range []*pod{a, b} {
		passes(t, p)
	}
	_, err := a.api().RegisterModel(within(t, patience), &wire.RegisterModelRequest{ModelId: "one", ModelInfo: &wire.ModelInfo{Type: "mt:test", Path: "else"}})
	if status.Code(err) != codes.AlreadyExists {
		t.Errorf("another model of the same id: %v", err)
	}
	if _, _, _, err := a.call(within(t, patience), "hello", "mm-model-id", "nobody"); status.Code(err) != codes.NotFound {
		t.Errorf("a model that is not registered: %v", err)
	}
	if _, _, _, err := a.call(within(t, patience), "hello", "mm-model-id", "one", "mm-vmodel-id", "x"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("two ids: %v", err)
	}
	if _, err := b.api().UnregisterModel(within(t, patience), &wire.UnregisterModelRequest{ModelId: "one"}); err != nil {
		t.Error(err)
	}
	eventually(t, "it is gone", func() error {
		if info := a.status("one"); info.Status != wire.ModelStatusInfo_NOT_FOUND {
			return fmt.Errorf("status %v", info)
		}
		return nil
	})
}

// passes looks at everything of a call that the mesh must not touch.
func passes(t *testing.T, p *pod) {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(within(t, patience), "mm-model-id", "one", "x-given", "kept")
	large := bytes.Repeat([]byte("x"), 8<<20)
	var got frame
	var header, trailer metadata.MD
	if err := p.conn.Invoke(ctx, "/test.Model/Call", newFrame(large), &got, grpc.Header(&header), grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	if n := got.data.Len(); n < len(large) || first(header, "x-echo") != "kept" || first(trailer, "x-trailer") != "end" {
		t.Errorf("%s: %d bytes, header %v, trailer %v", p.name, n, header, trailer)
	}
	got.free()
	if _, _, _, err := p.call(within(t, patience), "refuse", "mm-model-id", "one"); status.Code(err) != codes.OutOfRange {
		t.Errorf("%s: the model's own error is %v", p.name, err)
	}
	stream, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Model/Talk")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 { // each answer is waited for before the next question
		if err := stream.SendMsg(newFrame(fmt.Appendf(nil, "m%d", i))); err != nil {
			t.Fatal(err)
		}
		var f frame
		if err := stream.RecvMsg(&f); err != nil {
			t.Fatalf("%s: message %d: %v", p.name, i, err)
		}
		if text := string(f.data.Materialize()); !strings.HasSuffix(text, fmt.Sprintf("|one|m%d", i)) {
			t.Errorf("%s: %q", p.name, text)
		}
		f.free()
	}
	_ = stream.CloseSend()
	if err := stream.RecvMsg(&frame{}); !errors.Is(err, io.EOF) {
		t.Errorf("%s: the end of the stream is %v", p.name, err)
	}
}

// TestEviction: more models than fit all answer, the pinned one stays, and memory is never exceeded.
func TestEviction(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false)
	a := c.start("pod-a")[0]
	a.register("pinned", "", `{"pinned":true}`, true, true)
	for i := range 25 {
		id := fmt.Sprintf("m%d", i)
		a.register(id, "", "", false, false)
		a.mustCall(id)
	}
	eventually(t, "what was given up is deregistered", func() error {
		loaded := 0
		for i := range 25 {
			loaded += len(a.loadedIn(fmt.Sprintf("m%d", i)))
		}
		if loaded > 10 || loaded < 5 {
			return fmt.Errorf("%d are loaded", loaded)
		}
		return nil
	})
	if got := a.loadedIn("pinned"); len(got) != 1 {
		t.Errorf("the pinned model is loaded in %v", got)
	}
	if got := a.loadedIn("m0"); len(got) != 0 {
		t.Errorf("the model that was used first is still loaded in %v", got)
	}
	a.register("huge", "", `{"storage_params":{"size_bytes":"999999999"}}`, false, false)
	if _, _, _, err := a.call(within(t, patience), "hello", "mm-model-id", "huge"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "needs 953 MiB") {
		t.Errorf("a model that cannot fit: %v", err)
	}
}

// TestChurn: when more is in use at once than fits, callers are told so.
func TestChurn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, "MM_MIN_CHURN_AGE=1h")
	a := c.start("pod-a")[0]
	var last error
	for i := 0; i < 15 && last == nil; i++ {
		id := fmt.Sprintf("m%d", i)
		a.register(id, "", "", false, false)
		_, _, _, last = a.call(within(t, patience), "hello", "mm-model-id", id)
	}
	if status.Code(last) != codes.ResourceExhausted || !strings.Contains(last.Error(), "Cache churn threshold exceeded") {
		t.Errorf("the error is %v", last)
	}
}

// TestFailures: what cannot be loaded says why, and a type that no instance may have is refused in the words that
// controllers know.
func TestFailures(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "type_constraints")
	write := func(text string) {
		if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"mt:test":{"required":["mt:test"]},"mt:other":{"required":["mt:other"]},"_default":{"required":["_no_runtime"]}}`)
	c := newCluster(t, false, "MM_TYPE_CONSTRAINTS_PATH="+rules)
	pods := c.start("pod-a", "pod-b")
	a, b := pods[0], pods[1]
	info := a.register("bad", "broken:", "", true, true)
	if info.Status != wire.ModelStatusInfo_LOADING_FAILED || len(info.Errors) == 0 || !strings.Contains(info.Errors[0], "the file has no model") {
		t.Errorf("status %v", info)
	}
	if _, _, _, err := b.call(within(t, patience), "hello", "mm-model-id", "bad"); err == nil || !strings.Contains(err.Error(), "the file has no model") {
		t.Errorf("the error is %v", err)
	}
	const words = "There are no running instances that meet the label requirements of type "
	for typ, want := range map[string]string{"mt:other": words + "mt:other: [mt:other]", "mt:unknown": words} {
		info, err := a.api().RegisterModel(within(t, patience), &wire.RegisterModelRequest{ModelId: typ, ModelInfo: &wire.ModelInfo{Type: typ}, LoadNow: true})
		if err != nil || info.Status != wire.ModelStatusInfo_LOADING_FAILED || len(info.Errors) != 1 || !strings.HasPrefix(info.Errors[0], want) {
			t.Errorf("%s: %v, %v", typ, info, err)
		}
		if typ == "mt:unknown" && !strings.HasSuffix(info.GetErrors()[0], "[_no_runtime]") {
			t.Errorf("%s: %v", typ, info)
		}
	}
	write(`{"mt:other":{"required":["mt:test"]}}`)
	eventually(t, "the file is read again", func() error {
		_, _, _, err := a.call(within(t, patience), "hello", "mm-model-id", "mt:other")
		return err
	})
}

// TestFailedOnce: a model that cannot be loaded is tried once in an instance, however many ask for it and in however many
// ways, and again when the failure has lasted its time. Whoever asks meanwhile is told why, and when to ask again.
func TestFailedOnce(t *testing.T) {
	t.Parallel()
	const expiry = 6 * time.Second // half of that while the model is in use
	port := freePort(t)
	c := newCluster(t, false, fmt.Sprintf("MM_LOAD_FAILURE_EXPIRY_TIME_MS=%d", expiry.Milliseconds()), "MM_REAPER_PERIOD=1h")
	a := c.pod("pod-a", fmt.Sprintf("MM_METRICS=prometheus:port=%d;scheme=http", port))
	c.ready(a)
	attempts := func() string {
		for line := range strings.SplitSeq(fetch(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", port)), "\n") {
			if count, ok := strings.CutPrefix(line, "modelmesh_loadmodel_failure "); ok {
				return count
			}
		}
		return ""
	}
	ask := func() (metadata.MD, error) {
		var trailer metadata.MD
		ctx := metadata.AppendToOutgoingContext(within(t, patience), "mm-vmodel-id", "name")
		err := a.conn.Invoke(ctx, "/test.Model/Call", newFrame([]byte("hello")), &frame{}, grpc.Trailer(&trailer))
		return trailer, err
	}
	began := time.Now()
	if _, err := a.api().SetVModel(within(t, patience), &wire.SetVModelRequest{
		VModelId: "name", TargetModelId: "bad", ModelInfo: &wire.ModelInfo{Type: "mt:test", Path: "broken:"}, LoadNow: true,
	}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 5 {
				trailer, err := ask()
				if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "the file has no model") || first(trailer, trailerReason) != reasonLoadFailed {
					t.Errorf("%v with %v", err, trailer)
				}
				if after, _ := strconv.Atoi(first(trailer, trailerRetry)); after < 1 || after > 7 {
					t.Errorf("to be tried again after %d s", after)
				}
			}
		})
	}
	all.Wait()
	if got := attempts(); got != "1" && time.Since(began) < expiry/2 {
		t.Errorf("loaded %s times", got)
	}
	eventually(t, "it is tried again", func() error {
		_, _ = ask()
		if got := attempts(); got == "1" {
			return errors.New("it is not")
		}
		return nil
	})
	if took := time.Since(began); took < expiry/2 {
		t.Errorf("it was tried again after %s, which is less than %s", took, expiry/2)
	}
}

// TestVModels: a name moves to its next model when that is loaded, and stays when it fails.
func TestVModels(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false)
	pods := c.start("pod-a", "pod-b")
	a, b := pods[0], pods[1]
	set := func(p *pod, target, path string, change func(*wire.SetVModelRequest)) (*wire.VModelStatusInfo, error) {
		r := &wire.SetVModelRequest{VModelId: "name", TargetModelId: target, ModelInfo: &wire.ModelInfo{Type: "mt:test", Path: path}, AutoDeleteTargetModel: true, LoadNow: true}
		if change != nil {
			change(r)
		}
		return p.api().SetVModel(within(t, patience), r)
	}
	info, err := set(a, "v1", "", func(r *wire.SetVModelRequest) { r.Sync = true })
	if err != nil || info.Status != wire.VModelStatusInfo_DEFINED || info.ActiveModelId != "v1" || info.Owner != "ksp" || info.ActiveModelStatus.Status != wire.ModelStatusInfo_LOADED {
		t.Fatalf("%v, %v", info, err)
	}
	answers := func(p *pod, want string) error {
		_, model, _, err := p.call(within(t, patience), "hello", "mm-vmodel-id", "name")
		if err == nil && model != want {
			err = fmt.Errorf("%s answers, want %s", model, want)
		}
		return err
	}
	eventually(t, "the name answers", func() error { return answers(b, "v1") })
	if info, err = set(b, "v2", "slow:300ms", nil); err != nil || info.Status != wire.VModelStatusInfo_TRANSITIONING || info.ActiveModelId != "v1" {
		t.Errorf("%v, %v", info, err)
	}
	if err := answers(a, "v1"); err != nil {
		t.Error(err)
	}
	eventually(t, "the next model takes over", func() error { return answers(a, "v2") })
	eventually(t, "the former is forgotten", func() error {
		if info := a.status("v1"); info.Status != wire.ModelStatusInfo_NOT_FOUND {
			return fmt.Errorf("%v", info)
		}
		return nil
	})
	if _, err = set(a, "v3", "broken:", nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the transition fails", func() error {
		info, err := b.api().GetVModelStatus(within(t, patience), &wire.GetVModelStatusRequest{VModelId: "name", Owner: "ksp"})
		if err == nil && info.Status != wire.VModelStatusInfo_TRANSITION_FAILED {
			err = fmt.Errorf("%v", info)
		}
		return err
	})
	if err := answers(b, "v2"); err != nil {
		t.Error(err)
	}
	refusals(t, a, set)
}

// refusals are the rules of names.
func refusals(t *testing.T, a *pod, set func(*pod, string, string, func(*wire.SetVModelRequest)) (*wire.VModelStatusInfo, error)) {
	t.Helper()
	for want, change := range map[codes.Code]func(*wire.SetVModelRequest){
		codes.AlreadyExists:      func(r *wire.SetVModelRequest) { r.Owner = "isvc" },
		codes.FailedPrecondition: func(r *wire.SetVModelRequest) { r.ExpectedTargetModelId = "else" },
		codes.NotFound:           func(r *wire.SetVModelRequest) { r.VModelId, r.UpdateOnly = "other", true },
		codes.InvalidArgument:    func(r *wire.SetVModelRequest) { r.TargetModelId = "" },
	} {
		if _, err := set(a, "v4", "", change); status.Code(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if _, err := a.api().UnregisterModel(within(t, patience), &wire.UnregisterModelRequest{ModelId: "v2"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a model in use is unregistered: %v", err)
	}
	if _, err := a.api().DeleteVModel(within(t, patience), &wire.DeleteVModelRequest{VModelId: "name", Owner: "isvc"}); err != nil {
		t.Error(err)
	}
	if info := a.status("v2"); info.Status == wire.ModelStatusInfo_NOT_FOUND {
		t.Error("somebody else deleted the name")
	}
	if _, err := a.api().DeleteVModel(within(t, patience), &wire.DeleteVModelRequest{VModelId: "name", Owner: "ksp"}); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"v2", "v3"} {
		if info := a.status(id); info.Status != wire.ModelStatusInfo_NOT_FOUND {
			t.Errorf("%s outlives its name: %v", id, info)
		}
	}
}

// TestCopies: a model that is called much gets more copies, one that wants them has them, and when memory is short and
// nobody calls they go again.
func TestCopies(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, "MM_SCALEUP_RPM_THRESHOLD=600", "MM_RATE_PERIOD=300ms", "MM_JANITOR_PERIOD=500ms", "MM_REAPER_PERIOD=300ms", "MM_SECOND_COPY_AFTER=300ms", "MM_SECOND_COPY_BEFORE=400ms")
	pods := c.start("pod-a", "pod-b")
	a, b := pods[0], pods[1]
	a.register("wanted", "", `{"min_copies":2}`, true, true)
	a.register("busy", "", "", true, true)
	copies := func(id string, enough func(int) bool) func() error {
		return func() error {
			if got := a.loadedIn(id); !enough(len(got)) {
				return fmt.Errorf("%s is loaded in %v", id, got)
			}
			return nil
		}
	}
	eventually(t, "there are as many copies as wanted", copies("wanted", func(n int) bool { return n >= 2 }))
	calls := load(t, 4, []string{"busy"}, func() []*pod { return []*pod{a, b} })
	eventually(t, "a busy model gets copies", copies("busy", func(n int) bool { return n >= 2 }))
	calls.end(t)
	follows(t, a)
	for i := range 40 { // memory gets short
		id := fmt.Sprintf("m%d", i)
		a.register(id, "", "", true, false)
	}
	for i := range 30 {
		a.mustCall(fmt.Sprintf("m%d", i))
	}
	eventually(t, "copies that nobody needs go", copies("busy", func(n int) bool { return n <= 1 }))
}

// follows: the next model of a name gets as many copies as the one that it replaces.
func follows(t *testing.T, a *pod) {
	t.Helper()
	set := func(target, key string) {
		_, err := a.api().SetVModel(within(t, patience), &wire.SetVModelRequest{
			VModelId: "name", TargetModelId: target, ModelInfo: &wire.ModelInfo{Type: "mt:test", Key: key}, AutoDeleteTargetModel: true, LoadNow: true,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	set("before", `{"min_copies":2}`)
	eventually(t, "the first model has its copies", func() error {
		if got := a.loadedIn("before"); len(got) != 2 {
			return fmt.Errorf("it is loaded in %v", got)
		}
		return nil
	})
	set("after", "")
	eventually(t, "the next model has taken over", func() error {
		info, err := a.api().GetVModelStatus(within(t, patience), &wire.GetVModelStatusRequest{VModelId: "name"})
		if err == nil && info.ActiveModelId != "after" {
			err = fmt.Errorf("%v", info)
		}
		return err
	})
	eventually(t, "the next model has as many copies", func() error { // the mirrors of names and of models are two
		if got := a.loadedIn("after"); len(got) != 2 {
			return fmt.Errorf("it is loaded in %v", got)
		}
		return nil
	})
}

// TestRuntimeKilled: the models of a runtime that died are loaded again, elsewhere or where they were.
func TestRuntimeKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false)
	pods := c.start("pod-a", "pod-b")
	a, b := pods[0], pods[1]
	a.register("one", "", "", true, true)
	by := a.mustCall("one")
	victim := a
	if by == b.name {
		victim = b
	}
	victim.runtime.kill()
	for _, p := range []*pod{a, b} {
		if again := p.mustCall("one"); again == by {
			t.Errorf("answered by %s, whose runtime is dead", again)
		}
	}
	other := a
	if victim == a {
		other = b
	}
	other.runtime.kill()
	victim.startRuntime()
	eventually(t, "the runtime is back", func() error {
		_, _, _, err := victim.call(within(t, patience), "hello", "mm-model-id", "one")
		return err
	})
	other.startRuntime()
}

// TestMeshKilled: with copies elsewhere, nobody notices that a process was killed; without, models are loaded again.
func TestMeshKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, "MM_REAPER_PERIOD=300ms")
	pods := c.start("pod-a", "pod-b", "pod-d")
	a, b, d := pods[0], pods[1], pods[2]
	var models []string
	for i := range 6 {
		id := fmt.Sprintf("m%d", i)
		key := ""
		if i%2 == 0 {
			key = `{"min_copies":2}`
		}
		a.register(id, "", key, true, true)
		models = append(models, id)
	}
	calls := load(t, 4, models, func() []*pod { return []*pod{a, b} })
	calls.more(t, 200)
	d.mesh.kill()
	calls.more(t, 500)
	calls.end(t)
	for _, id := range models {
		a.mustCall(id)
	}
}

// TestEtcdAway: etcd may restart, or be gone for longer than a lease, and whatever is loaded goes on answering.
func TestEtcdAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t, true)
	pods := c.start("pod-a", "pod-b")
	a, b := pods[0], pods[1]
	var models []string
	for i := range 6 {
		id := fmt.Sprintf("m%d", i)
		a.register(id, "", "", true, true)
		models = append(models, id)
	}
	calls := load(t, 2, models, func() []*pod { return []*pod{a, b} })
	calls.more(t, 100)
	c.etcd.signal(syscall.SIGSTOP)
	frozen := time.NewTimer(2 * leaseTTL)
	<-frozen.C
	c.etcd.signal(syscall.SIGCONT)
	calls.more(t, 200)
	c.etcd.kill()
	calls.more(t, 200)
	c.etcd.start(t)
	calls.more(t, 200)
	eventually(t, "models can be registered again", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := b.api().RegisterModel(ctx, &wire.RegisterModelRequest{ModelId: "later", ModelInfo: &wire.ModelInfo{Type: "mt:test"}})
		return err
	})
	b.mustCall("later")
	calls.end(t)
	eventually(t, "the instances are back in etcd", func() error {
		for _, id := range models {
			if got := a.loadedIn(id); len(got) == 0 {
				return fmt.Errorf("%s is loaded in %v", id, got)
			}
		}
		return nil
	})
}

// TestRollingUpgrade: instances are replaced one after the other under load; no call fails and no model is lost.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, "SHUTDOWN_TIMEOUT_MS=12000")
	pods := c.start("pod-a", "pod-b")
	a, b := pods[0], pods[1]
	var models []string
	for i := range 8 {
		id := fmt.Sprintf("m%d", i)
		a.register(id, "", "", true, true)
		models = append(models, id)
	}
	// Clients leave an instance when its endpoint goes, which is before it ends.
	var serving [2]*pod
	serving[0], serving[1] = a, b
	asked := make(chan []*pod, 1)
	asked <- slices.Clone(serving[:])
	current := func() []*pod { now := <-asked; asked <- now; return now }
	calls := load(t, 4, models, current)
	calls.more(t, 200)
	for i, old := range []*pod{a, b} {
		fresh := c.pod(fmt.Sprintf("pod-new%d", i))
		c.ready(fresh)
		<-asked
		serving[i] = fresh
		asked <- slices.Clone(serving[:])
		calls.more(t, 50)
		if err := Stop(within(t, patience), old.stop, true); err != nil {
			t.Fatal(err)
		}
		old.mesh.signal(syscall.SIGTERM)
		<-old.mesh.done
		old.runtime.kill()
		calls.more(t, 200)
	}
	calls.end(t)
	for _, id := range models {
		serving[0].mustCall(id)
	}
}

// TestDataplane: the id may be inside the message, and metrics tell of the calls.
func TestDataplane(t *testing.T) {
	t.Parallel()
	metrics := freePort(t)
	c := newCluster(t, false, `MM_DATAPLANE_CONFIG={"rpcConfigs":{"test.Model/Call":{"idExtractionPath":[1]}},"allowOtherRpcs":false}`,
		`MM_AUTO_REGISTER_MODELS=[{"modelId":"one","modelInfo":{"type":"mt:test"},"ensureLoaded":true}]`)
	a := c.pod("pod-a", fmt.Sprintf("MM_METRICS=prometheus:port=%d;scheme=http", metrics))
	c.ready(a)
	if _, model, _, err := a.call(within(t, patience), "\x0a\x03one"); err != nil || model != "one" {
		t.Errorf("model %q, %v", model, err)
	}
	err := a.conn.Invoke(within(t, patience), "/test.Model/Else", newFrame(nil), &frame{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("a method that is not named: %v", err)
	}
	text := fetch(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics))
	for _, want := range []string{`modelmesh_api_request_milliseconds_count{code="OK",method="Call"} 1`, "modelmesh_instance_models_total 1", "modelmesh_loadmodel_milliseconds_count 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics do not have %s", want)
		}
	}
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
