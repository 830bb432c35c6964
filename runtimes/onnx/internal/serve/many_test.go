// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/modelplane/modelplane/internal/modelmesh/wire"
	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/internal/testkit/onnxmodel"
)

// many is a server with models that a test manages as a mesh does.
type many struct {
	*running
	dir   string
	mesh  wire.ModelRuntimeClient
	infer pb.GRPCInferenceServiceClient
}

// manyArgs make a server that has room for 40 models of a mebibyte.
var manyArgs = []string{"--multi_model", "--management_endpoint=port:0", "--capacity_bytes=52428800", "--loading_concurrency=2"}

func startMany(t *testing.T, args ...string) *many {
	t.Helper()
	return manage(t, start(t, append(manyArgs, args...)...), "")
}

// manage connects to a server as a mesh does.
func manage(t *testing.T, s *running, scheme string) *many {
	t.Helper()
	conn, err := grpc.NewClient(scheme+s.management, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &many{running: s, dir: t.TempDir(), mesh: wire.NewModelRuntimeClient(conn), infer: s.client(t)}
}

// line is the model of a number, and its id.
func line(i, weights int) (string, onnxmodel.Line) {
	return fmt.Sprintf("line-%d__ksp-0123456789", i), onnxmodel.Line{Slope: float32(i), Intercept: 0.5, Weights: weights}
}

func (m *many) write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// load loads the model of a number, and removes its file as a puller may do.
func (m *many) load(t *testing.T, i, weights int) uint64 {
	t.Helper()
	id, model := line(i, weights)
	path := m.write(t, id, model.File())
	answer, err := m.mesh.LoadModel(t.Context(), &wire.LoadModelRequest{
		ModelId: id, ModelType: "rt:modelplane-onnx-mesh", ModelPath: path, ModelKey: `{"model_type":{"name":"onnx","version":"1"},"disk_size_bytes":1}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return answer.GetSizeInBytes()
}

func (m *many) unload(t *testing.T, i int) {
	t.Helper()
	id, _ := line(i, 0)
	if _, err := m.mesh.UnloadModel(t.Context(), &wire.UnloadModelRequest{ModelId: id}); err != nil {
		t.Fatal(err)
	}
}

// ask calls the model of a number and returns an error when the answer is not its own.
func (m *many) ask(ctx context.Context, i int) error {
	id, model := line(i, 0)
	answer, err := m.infer.ModelInfer(ctx, &pb.ModelInferRequest{ModelName: id, Inputs: []*pb.ModelInferRequest_InferInputTensor{{
		Name: onnxmodel.Input, Datatype: "FP32", Shape: []int64{1}, Contents: &pb.InferTensorContents{Fp32Contents: []float32{3}},
	}}})
	if err != nil {
		return err
	}
	if got := answer.GetOutputs()[0].GetContents().GetFp32Contents(); len(got) != 1 || got[0] != model.At(3) || answer.GetModelName() != id {
		return fmt.Errorf("model %s answered %v as %q, want %v", id, got, answer.GetModelName(), model.At(3))
	}
	return nil
}

// TestManyModels is the way of a mesh: status, load, ask in all protocols, unload.
func TestManyModels(t *testing.T) {
	m := startMany(t)
	state, err := m.mesh.RuntimeStatus(t.Context(), &wire.RuntimeStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	path := &wire.RuntimeStatusResponse_MethodInfo{IdInjectionPath: []uint32{1}}
	want := &wire.RuntimeStatusResponse{
		Status: wire.RuntimeStatusResponse_READY, CapacityInBytes: 50 * mib, MaxLoadingConcurrency: 2, ModelLoadingTimeoutMs: 90000,
		DefaultModelSizeInBytes: mib, RuntimeVersion: Version,
		MethodInfos: map[string]*wire.RuntimeStatusResponse_MethodInfo{
			"inference.GRPCInferenceService/ModelInfer": path, "inference.GRPCInferenceService/ModelMetadata": path, "inference.GRPCInferenceService/ModelReady": path,
		},
	}
	if diff := cmp.Diff(want, state, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	for i := range 3 {
		if size := m.load(t, i, mib); size < mib || size > 2*mib {
			t.Errorf("a model with a mebibyte of weights takes %d bytes", size)
		}
	}
	for i := range 3 {
		if err := m.ask(t.Context(), i); err != nil {
			t.Error(err)
		}
	}
	id, model := line(2, 0)
	for path, body := range map[string]string{
		"/v2/models/" + id + "/infer":   `{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[3]}]}`,
		"/v1/models/" + id + ":predict": `{"instances":[3]}`,
	} {
		if code, text := m.post(t, path, body); code != http.StatusOK || !strings.Contains(text, fmt.Sprintf("[%g]", model.At(3))) {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if got := m.get(t, "/v2/models"); !strings.Contains(got, id) {
		t.Errorf("models: %s", got)
	}
	if got := m.get(t, "/metrics"); !strings.Contains(got, "modelplane_onnx_models 3\n") {
		t.Errorf("metrics: %s", got)
	}
	size, err := m.mesh.ModelSize(t.Context(), &wire.ModelSizeRequest{ModelId: id})
	if err != nil || size.GetSizeInBytes() < mib {
		t.Errorf("the size of a loaded model: %v, %v", size, err)
	}
	m.unload(t, 2)
	if err := m.ask(t.Context(), 2); status.Code(err) != codes.NotFound {
		t.Errorf("a model that is not there any more: %v", err)
	}
	if _, err := m.infer.ModelMetadata(t.Context(), &pb.ModelMetadataRequest{Name: id}); status.Code(err) != codes.NotFound {
		t.Errorf("metadata of a model that is not there any more: %v", err)
	}
	// A mesh that starts anew finds nothing.
	if _, err := m.mesh.RuntimeStatus(t.Context(), &wire.RuntimeStatusRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := m.get(t, "/v2/models"); got != `{"models":[]}` {
		t.Errorf("after a purge: %s", got)
	}
}

func TestManyRefuse(t *testing.T) {
	m := startMany(t)
	_, small := line(1, 0)
	whole := small.File()
	for _, test := range []struct {
		name, path, key string
		code            codes.Code
		words           string
	}{
		{"nothing there", filepath.Join(m.dir, "missing"), "", codes.FailedPrecondition, "check its path in the storage"},
		{"a text", m.write(t, "text", []byte("no model")), "", codes.InvalidArgument, "is no valid ONNX file"},
		{"a part", m.write(t, "part", whole[:len(whole)/2]), "", codes.InvalidArgument, "is no valid ONNX file"},
		{"another format", m.write(t, "whole", whole), `{"model_type":{"name":"sklearn"}}`, codes.InvalidArgument, `this server loads "onnx"`},
		{"another format, as a word", m.write(t, "whole", whole), `{"model_type":"sklearn"}`, codes.InvalidArgument, `this server loads "onnx"`},
		{"an unknown operator", m.write(t, "operator", []byte(strings.Replace(string(whole), "IsNaN", "IsWhy", 1))), "", codes.InvalidArgument, "loading the model"},
		{"too large", m.write(t, "large", onnxmodel.Line{Weights: 60 * mib}.File()), "", codes.FailedPrecondition, "give its container more memory"},
		{"no path", "", "", codes.InvalidArgument, "is empty"},
	} {
		_, err := m.mesh.LoadModel(t.Context(), &wire.LoadModelRequest{ModelId: "x", ModelPath: test.path, ModelKey: test.key})
		if said := status.Convert(err); said.Code() != test.code || !strings.Contains(said.Message(), test.words) || strings.Contains(said.Message(), "\n") {
			t.Errorf("%s: %v, want %s with %q", test.name, err, test.code, test.words)
		}
	}
	predicted, err := m.mesh.PredictModelSize(t.Context(), &wire.PredictModelSizeRequest{ModelPath: filepath.Join(m.dir, "large")})
	if err != nil || predicted.GetSizeInBytes() < 60*mib {
		t.Errorf("predicted %v, %v", predicted, err)
	}
	if got := m.get(t, "/v2/models"); got != `{"models":[]}` {
		t.Errorf("something is left: %s", got)
	}
}

// TestManyChange asks models while others, and they themselves, come and go.
func TestManyChange(t *testing.T) {
	m := startMany(t)
	const steady, changing = 2, 4
	for i := range steady {
		m.load(t, i, 0)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var all sync.WaitGroup
	var always, sometimes, missing atomic.Int64
	for i := range steady + changing {
		all.Go(func() {
			for ctx.Err() == nil {
				switch err := m.ask(ctx, i); {
				case err == nil && i < steady:
					always.Add(1)
				case err == nil:
					sometimes.Add(1)
				case ctx.Err() != nil:
				case i >= steady && status.Code(err) == codes.NotFound, i >= steady && status.Code(err) == codes.Unavailable:
					missing.Add(1)
				default:
					t.Errorf("model %d: %v", i, err)
					return
				}
			}
		})
	}
	for range 15 {
		for i := steady; i < steady+changing; i++ {
			m.load(t, i, 0)
		}
		for i := steady; i < steady+changing; i++ {
			m.unload(t, i)
		}
	}
	eventually(t, "all to be asked", func() bool { return always.Load() > 100 && sometimes.Load() > 10 && missing.Load() > 10 })
	stop()
	all.Wait()
	t.Logf("%d answers of models that stayed, %d of models that came and went, %d of those when they were not there", always.Load(), sometimes.Load(), missing.Load())
}

// TestManyCancelled cancels loads at any moment; nothing stays of them.
func TestManyCancelled(t *testing.T) {
	m := startMany(t)
	id, model := line(7, 4*mib)
	path := m.write(t, id, model.File())
	cancelled := 0
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		_, err := m.mesh.LoadModel(ctx, &wire.LoadModelRequest{ModelId: id, ModelPath: path})
		cancel()
		if err != nil {
			cancelled++
		}
		if _, err := m.mesh.UnloadModel(t.Context(), &wire.UnloadModelRequest{ModelId: id}); err != nil {
			t.Fatal(err)
		}
		if got := m.get(t, "/metrics"); !strings.Contains(got, "modelplane_onnx_models_bytes 0\n") {
			t.Fatalf("memory is taken after load %d was cancelled and the model unloaded", i)
		}
	}
	if cancelled == 0 {
		t.Error("no load was cancelled")
	}
}

// TestManySocket manages a server over a socket that a former one left.
func TestManySocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "onnx") // a socket's name may not be long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "grpc.sock")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := manage(t, start(t, append(manyArgs, "--management_endpoint=unix:"+socket)...), "unix:")
	m.load(t, 1, 0)
	if err := m.ask(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

// TestMemoryOfModels loads and unloads hundreds of models in a server of its own. It takes about as much memory as it says,
// and all of it comes back.
func TestMemoryOfModels(t *testing.T) {
	s := startApartWith(t, manyArgs...)
	m := manage(t, s.running, "")
	// Small models are many, large ones are few; the first round is what ONNX Runtime needs once.
	const small, large = 120, 30
	var before int64
	for round := range 4 {
		var said, taken int64
		for i := range small {
			said += int64(m.load(t, i, 0))
		}
		for i := range large {
			said += int64(m.load(t, small+i, mib))
		}
		if err := m.ask(t.Context(), small+large-1); err != nil {
			t.Error(err)
		}
		loaded := s.memory(t, "VmRSS:")
		for i := range small + large {
			m.unload(t, i)
		}
		after := s.memory(t, "VmRSS:")
		taken = loaded - after
		t.Logf("round %d: %d MiB with %d models, which were said to take %d MiB, and %d MiB without them", round, loaded/mib, small+large, said/mib, after/mib)
		if round == 0 {
			before = after
			continue
		}
		if taken > said+8*mib || taken < said/2 {
			t.Errorf("models that are said to take %d MiB take %d", said/mib, taken/mib)
		}
		if after > before+16*mib {
			t.Errorf("of %d MiB before, %d are there after round %d", before/mib, after/mib, round)
		}
	}
}

func TestCapacity(t *testing.T) {
	for _, test := range []struct {
		args  string
		limit int64
		want  int64
		words string
	}{
		{"--capacity_bytes=7", 0, 7, ""},
		{"--mem_buffer_bytes=134217728 --max_pending_bytes=134217728", 1 << 30, 640 << 20, ""},
		{"", 0, 0, "has no memory limit"},
		{"", 256 << 20, 0, "nothing is left for models"},
	} {
		o, err := Parse(append(strings.Fields(test.args), "--multi_model"), os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		got, err := o.capacity(test.limit)
		if said := fmt.Sprint(err); got != test.want || test.words != "" && !strings.Contains(said, test.words) {
			t.Errorf("%s of %d: %d, %s", test.args, test.limit, got, said)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	for _, test := range []struct {
		file, content string
		want          int64
	}{
		{"memory.max", "1073741824\n", 1 << 30},
		{"memory.max", "max\n", 0},
		{"memory/memory.limit_in_bytes", "1073741824\n", 1 << 30},
		{"memory/memory.limit_in_bytes", "9223372036854771712\n", 0},
		{"other", "", 0},
	} {
		root := t.TempDir()
		file := filepath.Join(root, "sys/fs/cgroup", test.file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := memoryLimit(root); got != test.want {
			t.Errorf("%s with %q: %d, want %d", test.file, test.content, got, test.want)
		}
	}
}

func TestManyOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--threads=2":                       "each of many models has one thread",
		"--grpc_port=-1":                    "a mesh speaks gRPC",
		"--loading_concurrency=0":           "--loading_concurrency is 0",
		"--management_endpoint=8085":        "it must be port:N or unix:/PATH",
		"--management_endpoint=unix:socket": "it must be port:N or unix:/PATH",
		"--management_endpoint=port:99999":  "it must be port:N or unix:/PATH",
	} {
		if _, err := Parse([]string{"--multi_model", args}, os.Stderr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	t.Setenv("MULTI_MODEL", "true")
	t.Setenv("LOADING_CONCURRENCY", "3")
	t.Setenv("LOADTIME_TIMEOUT", "5000")
	o, err := Parse(nil, os.Stderr)
	if err != nil || !o.MultiModel || o.Loading != 3 || o.LoadTimeout != 5*time.Second {
		t.Errorf("%+v, %v", o, err)
	}
	t.Setenv("MEM_BUFFER_BYTES", "much")
	if _, err := Parse(nil, os.Stderr); err == nil || !strings.Contains(err.Error(), `MEM_BUFFER_BYTES is "much"`) {
		t.Errorf("an environment that cannot be read: %v", err)
	}
	if network, address, err := managementAddress("unix:///a/b"); network != "unix" || address != "/a/b" || err != nil {
		t.Errorf("%s %s %v", network, address, err)
	}
}
