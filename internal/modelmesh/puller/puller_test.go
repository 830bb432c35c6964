// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
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
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/fetch"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
	"github.com/modelplane/modelplane/internal/process"
)

// hush stands for secrets; no status, no log line and nothing that the runtime sees may contain it.
const hush = "hush-hush-hush"

// runtime is a model runtime that looks at the files it is told of.
type runtime struct {
	wire.UnimplementedModelRuntimeServer

	mu     sync.Mutex
	state  wire.RuntimeStatusResponse_Status
	loads  []*wire.LoadModelRequest
	files  map[string]string // of the last load
	gone   []string          // unloaded, in order
	load   func(context.Context, *wire.LoadModelRequest) error
	unload func(id string) error
}

func (r *runtime) LoadModel(ctx context.Context, request *wire.LoadModelRequest) (*wire.LoadModelResponse, error) {
	r.mu.Lock()
	r.loads = append(r.loads, request)
	r.files = tree(request.GetModelPath())
	load := r.load
	r.mu.Unlock()
	if load != nil {
		if err := load(ctx, request); err != nil {
			return nil, err
		}
	}
	return &wire.LoadModelResponse{SizeInBytes: 123, MaxConcurrency: 2}, nil
}

func (r *runtime) UnloadModel(_ context.Context, request *wire.UnloadModelRequest) (*wire.UnloadModelResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = append(r.gone, request.GetModelId())
	if r.unload != nil {
		if err := r.unload(request.GetModelId()); err != nil {
			return nil, err
		}
	}
	return &wire.UnloadModelResponse{}, nil
}

func (r *runtime) ModelSize(context.Context, *wire.ModelSizeRequest) (*wire.ModelSizeResponse, error) {
	return &wire.ModelSizeResponse{SizeInBytes: 7}, nil
}

func (r *runtime) RuntimeStatus(context.Context, *wire.RuntimeStatusRequest) (*wire.RuntimeStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &wire.RuntimeStatusResponse{Status: r.state, CapacityInBytes: 9}, nil
}

func (r *runtime) unloaded() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.gone...)
}

// tree reads files below a path, by their names relative to it; a file itself is ".".
func tree(dir string) map[string]string {
	out := map[string]string{}
	actual, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return out
	}
	_ = filepath.Walk(actual, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			name, _ := filepath.Rel(actual, path)
			content, _ := os.ReadFile(path)
			out[name] = string(content)
		}
		return err
	})
	return out
}

// scene is a mesh, a puller and a runtime, connected over the wire.
type scene struct {
	runtime *runtime
	mesh    wire.ModelRuntimeClient
	Settings
	env    map[string]string
	log    *lockedBuffer
	puller *Puller
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.String()
}

func newScene(t *testing.T) *scene {
	t.Helper()
	dir := t.TempDir()
	s := &scene{
		runtime: &runtime{state: wire.RuntimeStatusResponse_READY}, log: &lockedBuffer{}, env: map[string]string{},
		Settings: Settings{
			RootModelDir: filepath.Join(dir, "models"), StorageConfigDir: filepath.Join(dir, "config"),
			ClaimsDir: filepath.Join(dir, "claims"), Pulls: 2,
		},
	}
	for _, d := range []string{s.RootModelDir, s.StorageConfigDir, s.ClaimsDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	behind := serve(t, s.runtime)
	options := fetch.Options{Parallel: 2, Env: func(name string) string { return s.env[name] }, Tune: func(c *transfer.Client) {
		c.Attempts = 2
		c.Pause = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	}}
	s.puller = New(s.Settings, wire.NewModelRuntimeClient(behind), options, slog.New(slog.NewJSONHandler(s.log, nil)))
	s.mesh = wire.NewModelRuntimeClient(serve(t, s.puller))
	t.Cleanup(func() {
		if text := s.log.text(); strings.Contains(text, hush) {
			t.Errorf("a secret is in the log: %s", text)
		}
	})
	return s
}

// serve answers for a runtime on a free port, and connects to it.
func serve(t *testing.T, what wire.ModelRuntimeServer) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	wire.RegisterModelRuntimeServer(server, what)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return dial(t, listener.Addr().String())
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// store writes an entry of the storage secret.
func (s *scene) store(t *testing.T, name string, entry map[string]any) {
	t.Helper()
	text, err := json.Marshal(entry)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.StorageConfigDir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// put writes a file below a directory.
func put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// left are the models whose directories are there.
func (s *scene) left(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(s.RootModelDir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// claimScene has a claim with a model in it.
func claimScene(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	put(t, filepath.Join(s.ClaimsDir, "data", "iris", "model.onnx"), "weights")
	put(t, filepath.Join(s.ClaimsDir, "data", "schemas", "iris"), "{}")
	return s
}

const claimKey = `{"storage_params":{"type":"pvc","name":"data"},"model_type":{"name":"onnx","version":"1"},"mine":[1]}`

func TestLoadAndUnload(t *testing.T) {
	s := claimScene(t)
	key := strings.Replace(claimKey, "{", `{"schema_path":"schemas/iris",`, 1)
	response, err := s.mesh.LoadModel(t.Context(), &wire.LoadModelRequest{ModelId: "iris__isvc-1", ModelType: "mt:onnx", ModelPath: "/iris/", ModelKey: key})
	if err != nil {
		t.Fatal(err)
	}
	if response.GetSizeInBytes() != 123 || response.GetMaxConcurrency() != 2 {
		t.Errorf("the answer of the runtime did not arrive: %v", response)
	}
	dir := filepath.Join(s.RootModelDir, "iris__isvc-1")
	got := s.runtime.loads[0]
	if got.GetModelId() != "iris__isvc-1" || got.GetModelType() != "mt:onnx" || got.GetModelPath() != filepath.Join(dir, "iris") {
		t.Errorf("the runtime was asked for %v", got)
	}
	want := `{"disk_size_bytes":7,"mine":[1],"model_type":{"name":"onnx","version":"1"},"schema_path":"` + dir + `/_schema.json"}`
	if got.GetModelKey() != want {
		t.Errorf("the key is %s, want %s", got.GetModelKey(), want)
	}
	if diff := cmp.Diff(map[string]string{"model.onnx": "weights"}, s.runtime.files); diff != "" {
		t.Errorf("the runtime did not find the files: %s", diff)
	}
	if size, err := s.mesh.ModelSize(t.Context(), &wire.ModelSizeRequest{ModelId: "iris__isvc-1"}); err != nil || size.GetSizeInBytes() != 7 {
		t.Errorf("modelSize: %v, %v", size, err)
	}
	if _, err := s.mesh.UnloadModel(t.Context(), &wire.UnloadModelRequest{ModelId: "iris__isvc-1"}); err != nil {
		t.Fatal(err)
	}
	if left := s.left(t); len(left) > 0 || len(s.runtime.unloaded()) != 1 {
		t.Errorf("after the unload there are %v; the runtime unloaded %v", left, s.runtime.unloaded())
	}
	if _, err := os.Stat(filepath.Join(s.ClaimsDir, "data", "iris", "model.onnx")); err != nil {
		t.Errorf("the claim has lost its model: %v", err)
	}
}

func TestRuntimeErrors(t *testing.T) {
	s := claimScene(t)
	request := &wire.LoadModelRequest{ModelId: "m", ModelPath: "iris", ModelKey: claimKey}
	s.runtime.load = func(context.Context, *wire.LoadModelRequest) error {
		return status.Error(codes.InvalidArgument, "no such operator")
	}
	_, err := s.mesh.LoadModel(t.Context(), request)
	if status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != "no such operator" {
		t.Errorf("the runtime's own words did not arrive: %v", err)
	}
	if left := s.left(t); len(left) > 0 {
		t.Errorf("a failed load left %v", left)
	}
	s.runtime.load = nil
	if _, err := s.mesh.LoadModel(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	s.runtime.unload = func(string) error { return status.Error(codes.Internal, "busy") }
	if _, err := s.mesh.UnloadModel(t.Context(), &wire.UnloadModelRequest{ModelId: "m"}); status.Code(err) != codes.Internal {
		t.Errorf("a failed unload is %v", err)
	}
	if left := s.left(t); len(left) != 1 {
		t.Error("the files went although the runtime still has the model")
	}
	s.runtime.unload = func(string) error { return status.Error(codes.NotFound, "no such model") }
	if _, err := s.mesh.UnloadModel(t.Context(), &wire.UnloadModelRequest{ModelId: "m"}); err != nil || len(s.left(t)) > 0 {
		t.Errorf("a model that the runtime does not have: %v, left %v", err, s.left(t))
	}
}

// TestStatusPurges: an earlier mesh's models go before the runtime is ready, and nothing else.
func TestStatusPurges(t *testing.T) {
	s := claimScene(t)
	for _, name := range []string{"a", "b%2Fc", "_runtime", "%5Funder"} {
		put(t, filepath.Join(s.RootModelDir, name, "model"), "x")
	}
	s.runtime.state = wire.RuntimeStatusResponse_STARTING
	if answer, err := s.mesh.RuntimeStatus(t.Context(), &wire.RuntimeStatusRequest{}); err != nil || answer.GetStatus() != s.runtime.state || len(s.left(t)) != 4 {
		t.Fatalf("a runtime that starts: %v, %v, left %v", answer, err, s.left(t))
	}
	s.runtime.state = wire.RuntimeStatusResponse_READY
	answer, err := s.mesh.RuntimeStatus(t.Context(), &wire.RuntimeStatusRequest{})
	if err != nil || answer.GetStatus() != wire.RuntimeStatusResponse_READY || answer.GetCapacityInBytes() != 9 {
		t.Fatalf("a runtime that is ready: %v, %v", answer, err)
	}
	if diff := cmp.Diff([]string{"_runtime"}, s.left(t)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"_under", "a", "b/c"}, s.runtime.unloaded()); diff != "" {
		t.Error(diff)
	}
}

func TestRefused(t *testing.T) {
	s := claimScene(t)
	s.store(t, "broken", nil)
	put(t, filepath.Join(s.StorageConfigDir, "broken"), `{"secret": "`+hush+`"`)
	s.store(t, "s3", map[string]any{"type": "s3", "secret_access_key": hush})
	if err := os.Symlink("/etc", filepath.Join(s.ClaimsDir, "data", "out")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, id, path, key string
		code                codes.Code
		want                string
	}{
		{"no id", "", "iris", claimKey, codes.InvalidArgument, "is none that a model can have"},
		{"an id that leads out", "..", "iris", claimKey, codes.InvalidArgument, "is none that a model can have"},
		{"a long id", strings.Repeat("m", 300), "iris", claimKey, codes.InvalidArgument, "longer than 255 bytes"},
		{"a key that is no JSON", "m", "iris", `{"x": "` + hush, codes.InvalidArgument, "no JSON object"},
		{"a parameter that is no text", "m", "iris", `{"storage_params":{"type":1}}`, codes.InvalidArgument, "no JSON object"},
		{"no storage", "m", "iris", `{}`, codes.InvalidArgument, "does not say where it is stored"},
		{"no entry", "m", "iris", `{"storage_key":"nope"}`, codes.FailedPrecondition, `The storage secret has no entry "nope"`},
		{"an entry elsewhere", "m", "iris", `{"storage_key":"../../etc/passwd"}`, codes.InvalidArgument, "is no key of an entry"},
		{"a broken entry", "m", "iris", `{"storage_key":"broken"}`, codes.FailedPrecondition, `"broken" of the storage secret is no JSON object`},
		{"no bucket", "m", "iris", `{"storage_key":"s3"}`, codes.InvalidArgument, "needs a bucket"},
		{"another type", "m", "iris", `{"storage_params":{"type":"ftp"}}`, codes.InvalidArgument, `type "ftp" is not known`},
		{"dots in a path", "m", "../other/iris", claimKey, codes.InvalidArgument, "two dots between slashes"},
		{"dots in the schema's path", "m", "iris", strings.Replace(claimKey, "{", `{"schema_path":"a/../../b",`, 1), codes.InvalidArgument, "two dots between slashes"},
		{"a link out of a claim", "m", "out/passwd", claimKey, codes.FailedPrecondition, "leads out of the claim"},
		{"a wrong path in a claim", "m", "tulips", claimKey, codes.FailedPrecondition, "Cannot find tulips in the claim data; check the path."},
		{"another claim", "m", "iris", strings.Replace(claimKey, "data", "none", 1), codes.FailedPrecondition, "The claim none is not mounted in this pod"},
		{"a claim elsewhere", "m", "iris", strings.Replace(claimKey, "data", "..", 1), codes.InvalidArgument, "is no name of a claim"},
		{"an account of Azure elsewhere", "m", "iris", `{"storage_params":{"type":"azure","account_name":"a.evil/","container":"c"}}`, codes.InvalidArgument, "needs account_name and container"},
		{"no address", "m", "iris", `{"storage_params":{"type":"http","url":"file:///etc"}}`, codes.InvalidArgument, "needs an address"},
		{"half a key of Google", "m", "iris", `{"storage_params":{"type":"gcs","bucket":"b","private_key":"` + hush + `"}}`, codes.InvalidArgument, "private_key and client_email"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.mesh.LoadModel(t.Context(), &wire.LoadModelRequest{ModelId: c.id, ModelPath: c.path, ModelKey: c.key})
			got := status.Convert(err)
			if got.Code() != c.code || !strings.Contains(got.Message(), c.want) || strings.Contains(got.Message(), hush) {
				t.Errorf("%s: %s", got.Code(), got.Message())
			}
			if left := s.left(t); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
	if len(s.runtime.loads) > 0 {
		t.Errorf("the runtime heard of %v", s.runtime.loads)
	}
}

// TestGivenUp: when the mesh gives a load up while the runtime is at it, the runtime is told, the files go, and an unload
// that follows waits for that.
func TestGivenUp(t *testing.T) {
	s := claimScene(t)
	begun := make(chan struct{})
	s.runtime.load = func(ctx context.Context, _ *wire.LoadModelRequest) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := s.mesh.LoadModel(ctx, &wire.LoadModelRequest{ModelId: "m", ModelPath: "iris", ModelKey: claimKey})
		result <- err
	}()
	<-begun
	cancel()
	if err := <-result; status.Code(err) != codes.Canceled {
		t.Errorf("the load ended with %v", err)
	}
	if _, err := s.mesh.UnloadModel(t.Context(), &wire.UnloadModelRequest{ModelId: "m"}); err != nil {
		t.Fatal(err)
	}
	if left := s.left(t); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	if gone := s.runtime.unloaded(); len(gone) < 1 {
		t.Error("the runtime was not told")
	}
}

// TestNobodyThere: without a runtime the puller says so, and the mesh knows that it is the runtime that is gone.
func TestNobodyThere(t *testing.T) {
	s := claimScene(t)
	nobody := New(s.Settings, wire.NewModelRuntimeClient(dial(t, "127.0.0.1:1")), fetch.Options{}, slog.New(slog.DiscardHandler))
	_, loading := nobody.LoadModel(t.Context(), &wire.LoadModelRequest{ModelId: "m", ModelPath: "iris", ModelKey: claimKey})
	_, asking := nobody.RuntimeStatus(t.Context(), &wire.RuntimeStatusRequest{})
	for _, err := range []error{loading, asking} {
		if got := status.Convert(err); got.Code() != codes.Unavailable || !strings.HasPrefix(got.Message(), "The model runtime cannot be reached: ") {
			t.Error(err)
		}
	}
	if left := s.left(t); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestFinds: a mesh that only wants to know whether a model is there is told, in the words of a load; nothing is fetched, and
// the runtime hears nothing of a model that is not there.
func TestFinds(t *testing.T) {
	s := claimScene(t)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodHead {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		if r.URL.Path != "/iris.onnx" {
			http.NotFound(w, r)
		}
	}))
	defer web.Close()
	webKey := `{"storage_params":{"type":"http","url":"` + web.URL + `"}}`
	for _, c := range []struct{ path, key, want string }{
		{"iris", claimKey, ""},
		{"tulips", claimKey, "Cannot find tulips in the claim data; check the path."},
		{"iris", strings.Replace(claimKey, "{", `{"schema_path":"nowhere",`, 1), "Cannot find nowhere in the claim data; check the path."},
		{"iris", `{"storage_key":"nobody"}`, `The storage secret has no entry "nobody"; add it, or correct the key of the model's storage.`},
		{"iris.onnx", webKey, ""},
		{"tulips.onnx", webKey, "it does not exist (404)"},
	} {
		var trailer metadata.MD
		request := &wire.PredictModelSizeRequest{ModelId: "m", ModelPath: c.path, ModelKey: c.key}
		_, err := s.mesh.PredictModelSize(metadata.AppendToOutgoingContext(t.Context(), headerCheck, "true"), request, grpc.Trailer(&trailer))
		if c.want == "" {
			if status.Code(err) != codes.Unimplemented { // the runtime's own answer
				t.Errorf("%s: %v", c.path, err)
			}
			continue
		}
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), c.want) || len(trailer.Get(headerCheck)) == 0 {
			t.Errorf("%s: %v with %v", c.path, err, trailer)
		}
		if _, err := s.mesh.PredictModelSize(t.Context(), request); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s is looked for although nobody asked: %v", c.path, err)
		}
	}
	if left := s.left(t); len(left) > 0 || len(s.runtime.loads) > 0 {
		t.Errorf("left %v, loaded %v", left, s.runtime.loads)
	}
}

// TestMetrics: pulls are told of by storage and by how they ended.
func TestMetrics(t *testing.T) {
	s := claimScene(t)
	for _, path := range []string{"iris", "tulips"} {
		_, _ = s.mesh.LoadModel(t.Context(), &wire.LoadModelRequest{ModelId: path, ModelPath: path, ModelKey: claimKey})
	}
	_, _ = s.mesh.LoadModel(t.Context(), &wire.LoadModelRequest{ModelId: "x", ModelPath: "x", ModelKey: `{"storage_params":{"type":"tape"}}`})
	front := httptest.NewServer(process.Metrics(s.puller.metrics.registry, nil, slog.New(slog.DiscardHandler)))
	defer front.Close()
	answer, err := http.Get(front.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`modelplane_mesh_puller_pull_duration_seconds_count{code="OK",storage="pvc"} 1`,
		`modelplane_mesh_puller_pull_duration_seconds_count{code="FailedPrecondition",storage="pvc"} 1`,
		`modelplane_mesh_puller_pull_duration_seconds_count{code="InvalidArgument",storage="unknown"} 1`,
		`modelplane_mesh_puller_load_duration_seconds_count{code="OK"} 1`,
		"modelplane_mesh_puller_models 1", "modelplane_mesh_puller_pulls_under_way 0", "modelplane_mesh_puller_pulls_waiting 0",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("metrics do not have %s", want)
		}
	}
	if strings.Contains(string(text), "tape") {
		t.Error("a label has what somebody wrote")
	}
}

// TestTurns: what waits for a model is forgotten when it is done.
func TestTurns(t *testing.T) {
	var all turns
	done, err := all.take(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all.take(ended, "m"); err == nil {
		t.Error("two have the turn")
	}
	other, err := all.take(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	other()
	done()
	if again, err := all.take(t.Context(), "m"); err != nil {
		t.Error(err)
	} else {
		again()
	}
	if len(all.held) > 0 {
		t.Errorf("%d are remembered", len(all.held))
	}
}

func TestSettings(t *testing.T) {
	for text, want := range map[string]string{
		"port:8001": "localhost:8001", "unix:/run/a.sock": "unix:/run/a.sock", "unix:///run/a.sock": "unix:/run/a.sock", "model:80": "model:80",
		"port:x": "", "port:": "", "unix:": "", "unix:a": "", "model": "", ":1": "", "unix:/": "",
	} {
		got, err := endpoint(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	s, err := readSettings(func(string) string { return "" })
	want := Settings{Port: 8086, Endpoint: "localhost:8085", RootModelDir: "/models", StorageConfigDir: "/storage-config", ClaimsDir: "/pvc_mounts"}
	if diff := cmp.Diff(want, s); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// TestServe: the process answers for its runtime, and ends what is under way before it ends.
func TestServe(t *testing.T) {
	s := claimScene(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	s.runtime.load = func(context.Context, *wire.LoadModelRequest) error {
		close(begun)
		<-finish
		return nil
	}
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "runtime"))
	if err != nil {
		t.Fatal(err)
	}
	behind := grpc.NewServer()
	wire.RegisterModelRuntimeServer(behind, s.runtime)
	go func() { _ = behind.Serve(listener) }()
	defer behind.Stop()
	s.Settings.Endpoint, err = endpoint("unix:" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s.Parallel = 1
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, s.Settings, front, slog.New(slog.DiscardHandler)) }()
	mesh := wire.NewModelRuntimeClient(dial(t, front.Addr().String()))
	loaded := make(chan error, 1)
	go func() {
		_, err := mesh.LoadModel(context.WithoutCancel(t.Context()), &wire.LoadModelRequest{ModelId: "m", ModelPath: "iris", ModelKey: claimKey})
		loaded <- err
	}()
	<-begun
	stop()
	close(finish)
	if err := <-loaded; err != nil {
		t.Errorf("the load that was under way ended with %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
