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
	"google.golang.org/grpc/credentials/insecure"
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
		if err == nil && (info.Status != wire.VModelStatusInfo_TRANSITION_FAILED || info.ActiveModelId != "v2" ||
			!slices.ContainsFunc(info.GetTargetModelStatus().GetErrors(), func(e string) bool { return strings.Contains(e, "the file has no model") })) {
			err = fmt.Errorf("%v", info)
		}
		return err
	})
	if err := answers(b, "v2"); err != nil {
		t.Error(err)
	}
	refusals(t, a, set)
}

// TestVModelAnew: whoever is told that a name is set can rely on it, although the instance that he asks has not heard yet that
// somebody removed it; whose it was and what it led to are of the past then.
func TestVModelAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false)
	a := c.start("pod-a")[0]
	l := newLine(t, c.etcd.client)
	b := c.pod("pod-b", l.env())
	c.ready(b)
	set := func(p *pod, owner, path string) error {
		_, err := p.api().SetVModel(within(t, patience), &wire.SetVModelRequest{
			VModelId: "name", TargetModelId: "v1", ModelInfo: &wire.ModelInfo{Type: "mt:test", Path: path}, AutoDeleteTargetModel: true, LoadNow: true, Owner: owner,
		})
		return err
	}
	for turn, next := range []struct{ owner, path string }{{"ksp", "one"}, {"ksp", "one"}, {"isvc", "one"}, {"isvc", "two"}} {
		before := next
		if turn > 0 {
			before = struct{ owner, path string }{"ksp", "one"}
		}
		if err := set(a, before.owner, before.path); err != nil {
			t.Fatal(err)
		}
		eventually(t, "both know the name", func() error {
			_, model, _, err := b.call(within(t, patience), "hello", "mm-vmodel-id", "name")
			if err == nil && model != "v1" {
				err = fmt.Errorf("%s answers", model)
			}
			return err
		})
		l.set(time.Second, false)
		if _, err := a.api().DeleteVModel(within(t, patience), &wire.DeleteVModelRequest{VModelId: "name"}); err != nil {
			t.Fatal(err)
		}
		if err := set(b, next.owner, next.path); err != nil {
			t.Errorf("%v: %v", next, err)
		}
		l.set(0, false)
		eventually(t, "the name answers", func() error {
			_, _, _, err := a.call(within(t, patience), "hello", "mm-vmodel-id", "name")
			return err
		})
		info, err := a.api().GetVModelStatus(within(t, patience), &wire.GetVModelStatusRequest{VModelId: "name"})
		if err != nil || info.Owner != next.owner {
			t.Errorf("%v: it is %v, %v", next, info, err)
		}
		if _, err := a.api().DeleteVModel(within(t, patience), &wire.DeleteVModelRequest{VModelId: "name"}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTargetWaitsForRoom: a target for which there is no room has not failed; it takes over when there is room, however long that
// takes and whoever makes it.
func TestTargetWaitsForRoom(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, "MM_RATE_PERIOD=300ms")
	a := c.start("pod-a")[0]
	set := func(target string) {
		if _, err := a.api().SetVModel(within(t, patience), &wire.SetVModelRequest{
			VModelId: "name", TargetModelId: target, ModelInfo: &wire.ModelInfo{Type: "mt:test", Key: `{"pinned":true}`}, AutoDeleteTargetModel: true, LoadNow: true,
		}); err != nil {
			t.Fatal(err)
		}
	}
	status := func() *wire.VModelStatusInfo {
		info, err := a.api().GetVModelStatus(within(t, patience), &wire.GetVModelStatusRequest{VModelId: "name"})
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	set("before")
	eventually(t, "the first model answers", func() error {
		_, _, _, err := a.call(within(t, patience), "hello", "mm-vmodel-id", "name")
		return err
	})
	var pinned []string
	for i := range 12 {
		id := fmt.Sprintf("m%d", i)
		if a.register(id, "", `{"pinned":true}`, true, true).Status == wire.ModelStatusInfo_LOADED {
			pinned = append(pinned, id)
		}
	}
	set("after")
	eventually(t, "the target is told to wait", func() error {
		if !strings.Contains(a.mesh.log.String(), "waits for room") {
			return errors.New("it is not")
		}
		return nil
	})
	if info := status(); info.Status != wire.VModelStatusInfo_TRANSITIONING || info.ActiveModelId != "before" {
		t.Errorf("it is %v", info)
	}
	if _, err := a.api().UnregisterModel(within(t, patience), &wire.UnregisterModelRequest{ModelId: pinned[0]}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the target takes over", func() error {
		if info := status(); info.Status != wire.VModelStatusInfo_DEFINED || info.ActiveModelId != "after" {
			return fmt.Errorf("it is %v", info)
		}
		return nil
	})
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
		a.register(fmt.Sprintf("m%d", i), "", "", false, false)
	}
	next, gone := 0, copies("busy", func(n int) bool { return n <= 1 })
	eventually(t, "copies that nobody needs go", func() error { // whatever fills memory must not look as if it were of long ago
		for range 10 {
			next++
			a.mustCall(fmt.Sprintf("m%d", next%40))
		}
		return gone()
	})
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

// TestDeadlyModel: a model that ends each runtime which loads it is stopped at the second one, whoever asks for it, and says why;
// models that were being loaded beside it are loaded.
func TestDeadlyModel(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, "MM_REAPER_PERIOD=300ms", "MM_RATE_PERIOD=300ms")
	pods := c.start("pod-a", "pod-b", "pod-d")
	var ends []func() int
	for _, p := range pods {
		end := p.restarts()
		ends = append(ends, end)
		t.Cleanup(func() { end() })
	}
	var healthy []string
	for i := range 6 {
		id := fmt.Sprintf("m%d", i)
		pods[0].register(id, "slow:300ms", "", true, false)
		healthy = append(healthy, id)
	}
	if _, err := pods[0].api().SetVModel(within(t, patience), &wire.SetVModelRequest{
		VModelId: "name", TargetModelId: "deadly", ModelInfo: &wire.ModelInfo{Type: "mt:test", Path: "deadly:"}, LoadNow: true,
	}); err != nil {
		t.Fatal(err)
	}
	const words = "2 runtimes ended while they loaded the model"
	eventually(t, "callers are told why", func() error {
		var all sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			all.Go(func() {
				_, _, _, errs[i] = pods[i%len(pods)].call(within(t, patience), "hello", "mm-vmodel-id", "name")
			})
		}
		all.Wait()
		for _, err := range errs {
			if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), words) {
				return fmt.Errorf("the error is %w", err)
			}
		}
		return nil
	})
	for _, p := range pods {
		for _, id := range healthy {
			p.mustCall(id)
		}
	}
	info, err := pods[1].api().GetVModelStatus(within(t, patience), &wire.GetVModelStatusRequest{VModelId: "name"})
	if s := info.GetActiveModelStatus(); err != nil || s.GetStatus() != wire.ModelStatusInfo_LOADING_FAILED || len(s.GetErrors()) != 1 || !strings.Contains(s.GetErrors()[0], words) {
		t.Errorf("its status is %v, %v", info, err)
	}
	for range 3 { // rounds of whoever fills memory
		pods[2].register("round", "", "", true, true)
		if _, _, _, err := pods[2].call(within(t, patience), "hello", "mm-vmodel-id", "name"); status.Code(err) != codes.Internal {
			t.Errorf("the error is %v", err)
		}
	}
	total := 0
	for _, end := range ends {
		total += end()
	}
	if total != 2 {
		t.Errorf("%d runtimes ended, not 2", total)
	}
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

// TestPartitioned: the instance that leads is cut off from etcd until its lease is lost and longer. Calls go on everywhere,
// through it and to it; it leads no more the moment it has lost the lease, somebody else does, and when it is back it is one
// of all again and no model is lost.
func TestPartitioned(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, "MM_REAPER_PERIOD=500ms", "MM_JANITOR_PERIOD=500ms")
	cut, port := newLine(t, c.etcd.client), freePort(t)
	a := c.pod("pod-a", cut.env(), metricsAt(port))
	c.ready(a)
	leads := func() error {
		if metric(t, port, "modelmesh_models_managed_total") == "" {
			return errors.New("it does not")
		}
		return nil
	}
	eventually(t, "the first leads", leads)
	pods := append([]*pod{a}, c.start("pod-b", "pod-d")...)
	var models []string
	for i := range 9 {
		id := fmt.Sprintf("m%d", i)
		pods[i%3].register(id, "", "", true, true)
		models = append(models, id)
	}
	held := a.record()
	calls := load(t, 6, models, func() []*pod { return pods })
	calls.more(t, 200)
	cut.set(0, true)
	eventually(t, "the lease is lost", func() error {
		if !strings.Contains(a.mesh.log.String(), "lease in etcd is lost") {
			return errors.New("it is not")
		}
		return nil
	})
	if leads() == nil {
		t.Error("it believes to lead without a lease")
	}
	eventually(t, "etcd has forgotten it", func() error {
		if a.record() != 0 {
			return errors.New("it has not")
		}
		return nil
	})
	calls.more(t, 300)
	for i, target := range []string{"v1", "v2"} { // somebody leads
		if _, err := pods[1].api().SetVModel(within(t, patience), &wire.SetVModelRequest{
			VModelId: "name", TargetModelId: target, ModelInfo: &wire.ModelInfo{Type: "mt:test"}, LoadNow: true, Sync: true,
		}); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	eventually(t, "the name has moved", func() error {
		info, err := pods[2].api().GetVModelStatus(within(t, patience), &wire.GetVModelStatusRequest{VModelId: "name"})
		if err == nil && info.ActiveModelId != "v2" {
			err = fmt.Errorf("it is %v", info)
		}
		return err
	})
	for _, p := range pods {
		for _, id := range models {
			p.mustCall(id)
		}
	}
	cut.set(0, false)
	eventually(t, "it is back in etcd", func() error {
		if now := a.record(); now == 0 || now == held {
			return fmt.Errorf("its lease is %x", now)
		}
		return nil
	})
	calls.more(t, 300)
	calls.end(t)
	for _, p := range pods {
		for _, id := range append(models, "v2") {
			p.mustCall(id)
		}
		eventually(t, "all models are where "+p.name+" sees them", func() error {
			for _, id := range models {
				if got := p.loadedIn(id); len(got) == 0 {
					return fmt.Errorf("%s is nowhere", id)
				}
			}
			return nil
		})
	}
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

// TestLateCalls: an instance that ends goes on answering those who have not seen it yet, each on a connection of his own; the
// runtime beside it is held as long. That is so for one that has others and for the last one.
func TestLateCalls(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false)
	pods := c.start("pod-a", "pod-b")
	for i := range 4 {
		pods[0].register(fmt.Sprintf("m%d", i), "", "", true, true)
	}
	for turn, p := range pods {
		held := make(chan error, 1)
		go func() {
			answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/prestop", p.stop))
			if err == nil {
				err = answer.Body.Close()
			}
			held <- err
		}()
		late(t, p, turn, held)
		p.runtime.kill()
	}
}

// late calls models, known ones and new ones, of an instance that is told to end.
func late(t *testing.T, p *pod, turn int, held <-chan error) {
	t.Helper()
	p.mesh.signal(syscall.SIGTERM)
	began, calls := time.Now(), 0
	for ; time.Since(began) < lateCalls-2*time.Second; calls++ {
		conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", p.port), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newRawCodec())))
		if err != nil {
			t.Fatal(err)
		}
		one := &pod{cluster: p.cluster, name: p.name, conn: conn}
		if calls%20 == 19 {
			one.register(fmt.Sprintf("late%d-%d", turn, calls), "", "", false, false)
			one.mustCall(fmt.Sprintf("late%d-%d", turn, calls))
		}
		one.mustCall(fmt.Sprintf("m%d", calls%4))
		_ = conn.Close()
		select {
		case err := <-held:
			t.Fatalf("the runtime is let go %s after the start, %v", time.Since(began), err)
		case <-p.mesh.done:
			t.Fatalf("the process ended %s after the start", time.Since(began))
		default:
		}
	}
	t.Logf("%d calls", calls)
	select {
	case <-p.mesh.done:
	case <-time.After(time.Minute):
		t.Error("the process does not end")
	}
	if err := <-held; err != nil {
		t.Errorf("the runtime's hook: %v", err)
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
