// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/wire"
	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/testkit/freeport"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// as makes the test binary another program: an instance of the mesh, or a runtime.
const as = "TEST_AS"

func TestMain(m *testing.M) {
	switch os.Getenv(as) {
	case "mesh":
		os.Exit(command.Execute(NewCommand(), nil, os.Stderr))
	case "runtime":
		runRuntime()
		return
	}
	code := m.Run()
	if sharedEtcd != nil {
		sharedEtcd.stop()
	}
	os.Exit(code)
}

// runtimeServer is a runtime with a real wire and no models: it remembers what is loaded, takes the time that a model's path
// says, and answers calls with the name of the model.
type runtimeServer struct {
	wire.UnimplementedModelRuntimeServer
	mu     sync.Mutex
	loaded map[string]bool
}

func runRuntime() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	r := &runtimeServer{loaded: map[string]bool{}}
	server := grpc.NewServer(grpc.ForceServerCodecV2(newRawCodec()), grpc.UnknownServiceHandler(r.call), grpc.MaxRecvMsgSize(32<<20))
	wire.RegisterModelRuntimeServer(server, r)
	_ = server.Serve(listener)
}

// capacity is that of a runtime in tests: ten models of a MiB, and what is kept free for unloads.
const capacity = 11 << 20

func (r *runtimeServer) RuntimeStatus(context.Context, *wire.RuntimeStatusRequest) (*wire.RuntimeStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.loaded)
	// Longer than any load takes, also where two cores are shared by many tests.
	limit := 20 * time.Second
	if d, err := time.ParseDuration(os.Getenv(loadLimit)); err == nil {
		limit = d
	}
	answer := &wire.RuntimeStatusResponse{
		Status: wire.RuntimeStatusResponse_READY, CapacityInBytes: capacity, MaxLoadingConcurrency: 4, ModelLoadingTimeoutMs: uint32(limit.Milliseconds()), DefaultModelSizeInBytes: 1 << 20,
		LimitModelConcurrency: os.Getenv(limited) != "",
	}
	if method := os.Getenv(injected); method != "" {
		answer.MethodInfos = map[string]*wire.RuntimeStatusResponse_MethodInfo{method: {IdInjectionPath: []uint32{1}}}
	}
	return answer, nil
}

// What a runtime of a test is like, besides.
const (
	limited   = "TEST_LIMIT"      // each model answers one call at a time, in so much time
	injected  = "TEST_INJECT_ID"  // the only method that it has; it wants the id in the first field of the message
	faulty    = "TEST_FAULTY"     // it loads nothing
	loadLimit = "TEST_LOAD_LIMIT" // how long a load may take
)

// meet is the beginning of a message that is answered once somebody else has answered the runtime: the rest is his address.
const meet = "meet "

// PredictModelSize says nothing of sizes, but knows when it is asked whether a model is there.
func (r *runtimeServer) PredictModelSize(ctx context.Context, q *wire.PredictModelSizeRequest) (*wire.PredictModelSizeResponse, error) {
	header, _ := metadata.FromIncomingContext(ctx)
	if len(header.Get(headerCheck)) > 0 && strings.HasPrefix(q.ModelPath, "broken:") {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(headerCheck, "failed"))
		return nil, status.Error(codes.FailedPrecondition, "there is no such file")
	}
	return nil, status.Error(codes.Unimplemented, "nobody knows")
}

func (r *runtimeServer) LoadModel(ctx context.Context, q *wire.LoadModelRequest) (*wire.LoadModelResponse, error) {
	kind, value, _ := strings.Cut(q.ModelPath, ":")
	if os.Getenv(faulty) != "" {
		return nil, status.Error(codes.FailedPrecondition, "this version loads nothing")
	}
	switch kind {
	case "broken":
		return nil, status.Error(codes.FailedPrecondition, "the file has no model")
	case "slow":
		d, _ := time.ParseDuration(value)
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded[q.ModelId] = true
	answer := &wire.LoadModelResponse{SizeInBytes: 1 << 20}
	if os.Getenv(limited) != "" {
		answer.MaxConcurrency = 1
	}
	return answer, nil
}

func (r *runtimeServer) UnloadModel(_ context.Context, q *wire.UnloadModelRequest) (*wire.UnloadModelResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.loaded, q.ModelId)
	return &wire.UnloadModelResponse{}, nil
}

// call echoes each message behind the runtime's name and the model's.
func (r *runtimeServer) call(_ any, stream grpc.ServerStream) error {
	header, _ := metadata.FromIncomingContext(stream.Context())
	id := first(header, "mm-model-id")
	r.mu.Lock()
	here := r.loaded[id]
	r.mu.Unlock()
	if !here {
		return status.Error(codes.NotFound, "the model is not loaded")
	}
	stream.SetTrailer(metadata.Pairs("x-trailer", "end"))
	_ = stream.SetHeader(metadata.Pairs("x-echo", strings.Join(header.Get("x-given"), ",")))
	for {
		var f frame
		if err := stream.RecvMsg(&f); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		message, free := f.bytes()
		text := string(message)
		free()
		f.free()
		if d, err := time.ParseDuration(os.Getenv(limited)); err == nil {
			<-time.After(d)
		}
		if url, ok := strings.CutPrefix(text, meet); ok {
			if err := met(stream.Context(), url+"/"+os.Getenv("NAME")); err != nil {
				return status.Error(codes.Aborted, err.Error())
			}
		}
		if text == "refuse" {
			return status.Error(codes.OutOfRange, "the model does not want that")
		}
		if err := stream.SendMsg(newFrame([]byte(os.Getenv("NAME") + "|" + id + "|" + text))); err != nil {
			return err
		}
	}
}

func met(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// program is a process of a test.
type program struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	log  *tail
	done chan struct{}
}

// tail keeps what a process has said.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func launch(t testing.TB, name, path string, args, env []string) *program {
	t.Helper()
	p := &program{t: t, name: name, log: &tail{}, done: make(chan struct{})}
	p.cmd = exec.Command(path, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := guard.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() { _ = guard.Wait(p.cmd); close(p.done) }()
	return p
}

func (p *program) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *program) kill() { p.signal(syscall.SIGKILL); <-p.done }

func freePort(t testing.TB) int {
	t.Helper()
	return freeport.At(t, "127.0.0.1")
}

// etcdServer is a real etcd.
type etcdServer struct {
	*program
	binary, dir  string
	client, peer int
}

var (
	sharedEtcd *etcdServer
	etcdOnce   sync.Once
)

func startEtcd(t testing.TB) *etcdServer {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		assets = filepath.Join(cache, "modelplane", "local", "current")
	}
	binary := filepath.Join(assets, "etcd")
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("this test needs etcd, and %s has none: run `make test`, which builds it once", assets)
	}
	dir, err := os.MkdirTemp("", "modelplane-mesh-etcd-")
	if err != nil {
		t.Fatal(err)
	}
	e := &etcdServer{binary: binary, dir: dir, client: freePort(t), peer: freePort(t)}
	e.start(t)
	return e
}

func (e *etcdServer) start(t testing.TB) {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", e.client), fmt.Sprintf("http://127.0.0.1:%d", e.peer)
	e.program = launch(t, "etcd", e.binary, []string{
		"--name=one", "--data-dir=" + e.dir, "--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer, "--initial-cluster=one=" + peer, "--log-level=error", "--unsafe-no-fsync",
	}, nil)
}

func (e *etcdServer) stop() {
	e.kill()
	_ = os.RemoveAll(e.dir)
}

// cluster is a mesh of several processes, each with a runtime.
type cluster struct {
	t       testing.TB
	etcd    *etcdServer
	service string
	env     []string
	pods    []*pod
}

type pod struct {
	*cluster
	name          string
	mesh, runtime *program
	port          int
	runtimePort   int
	probe, stop   int
	env           []string
	conn          *grpc.ClientConn
}

var services atomic.Int32

// newCluster uses the etcd that tests share; with own, one for itself.
func newCluster(t testing.TB, own bool, env ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, service: fmt.Sprintf("mesh%d", services.Add(1)), env: env}
	if own {
		c.etcd = startEtcd(t)
		t.Cleanup(c.etcd.stop)
	} else {
		etcdOnce.Do(func() { sharedEtcd = startEtcd(t) })
		c.etcd = sharedEtcd
	}
	t.Cleanup(func() {
		for _, p := range c.pods {
			p.mesh.kill()
			p.runtime.kill()
			if strings.Contains(p.mesh.log.String(), "DATA RACE") || strings.Contains(p.mesh.log.String(), "panic: ") {
				t.Errorf("%s has a race or a panic", p.name)
			}
			if t.Failed() {
				t.Logf("%s:\n%s", p.name, p.mesh.log)
			}
		}
	})
	return c
}

// start starts pods one after the other, so that each knows those before it.
func (c *cluster) start(names ...string) (out []*pod) {
	c.t.Helper()
	for _, name := range names {
		p := c.pod(name)
		c.ready(p)
		out = append(out, p)
	}
	return out
}

// leaseTTL is how long an instance that is gone, or that gets no time on a busy machine, is believed to be there.
const leaseTTL = 5 * time.Second

// pod starts an instance and its runtime.
func (c *cluster) pod(name string, env ...string) *pod {
	c.t.Helper()
	p := &pod{cluster: c, name: name, port: freePort(c.t), runtimePort: freePort(c.t), probe: freePort(c.t), stop: freePort(c.t)}
	p.env = append([]string{
		as + "=mesh", "MM_SERVICE_NAME=" + c.service, "MM_KVSTORE_PREFIX=mm", fmt.Sprintf("KV_STORE=etcd:http://127.0.0.1:%d", c.etcd.client),
		"WKUBE_POD_NAME=" + name, fmt.Sprintf("MM_SVC_GRPC_PORT=%d", p.port), fmt.Sprintf("MM_PEER_PORT=%d", freePort(c.t)),
		fmt.Sprintf("MM_PROBE_PORT=%d", p.probe), fmt.Sprintf("MM_PRESTOP_WAIT_PORT=%d", p.stop), fmt.Sprintf("INTERNAL_GRPC_PORT=%d", p.runtimePort),
		"MM_LABELS=mt:test", "MM_LEASE_TTL=" + leaseTTL.String(), "MM_PUBLISH_PERIOD=200ms", "MM_RUNTIME_STATUS_PERIOD=50ms", "MM_MIN_CHURN_AGE=1ns", "MODELPLANE_LOG_FORMAT=text",
		"MM_DEFAULT_VMODEL_OWNER=ksp",
	}, append(c.env, env...)...)
	p.startRuntime()
	p.startMesh()
	conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", p.port), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(quickly),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newRawCodec()), grpc.MaxCallRecvMsgSize(32<<20), grpc.MaxCallSendMsgSize(32<<20)))
	if err != nil {
		c.t.Fatal(err)
	}
	p.conn = conn
	c.t.Cleanup(func() { _ = conn.Close() })
	c.pods = append(c.pods, p)
	return p
}

func (p *pod) startRuntime() {
	p.runtime = launch(p.t, p.name+" runtime", os.Args[0], nil, append(slices.Clone(p.env), as+"=runtime", fmt.Sprintf("PORT=%d", p.runtimePort), "NAME="+p.name))
}

func (p *pod) startMesh() { p.mesh = launch(p.t, p.name, os.Args[0], nil, p.env) }

func (p *pod) api() wire.ModelMeshClient { return wire.NewModelMeshClient(p.conn) }

// ready waits until the pods say that they are.
func (c *cluster) ready(pods ...*pod) {
	c.t.Helper()
	for _, p := range pods {
		eventually(c.t, p.name+" is ready", func() error {
			answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/ready", p.probe))
			if err != nil {
				return err
			}
			defer func() { _ = answer.Body.Close() }()
			if answer.StatusCode != http.StatusOK {
				said, _ := io.ReadAll(answer.Body)
				return fmt.Errorf("%s: %s", answer.Status, said)
			}
			return nil
		})
	}
}

// patience is for a machine on which many tests share two cores.
const patience = time.Minute

// eventually tries until it succeeds.
func eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	ticker := time.NewTicker(20 * time.Millisecond)
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

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// register makes a model known.
func (p *pod) register(id, path, key string, load, sync bool) *wire.ModelStatusInfo {
	p.t.Helper()
	info, err := p.api().RegisterModel(within(p.t, patience), &wire.RegisterModelRequest{
		ModelId: id, ModelInfo: &wire.ModelInfo{Type: "mt:test", Path: path, Key: key}, LoadNow: load, Sync: sync,
	})
	if err != nil {
		p.t.Fatalf("register %s: %v", id, err)
	}
	return info
}

// call calls a model, and returns the pod that answered and the answer.
func (p *pod) call(ctx context.Context, message string, header ...string) (pod, model, answer string, err error) {
	var got frame
	defer got.free()
	err = p.conn.Invoke(metadata.AppendToOutgoingContext(ctx, header...), "/test.Model/Call", newFrame([]byte(message)), &got)
	if err != nil {
		return "", "", "", err
	}
	raw, free := got.bytes()
	defer free()
	parts := strings.SplitN(string(raw), "|", 3)
	if len(parts) != 3 {
		return "", "", "", fmt.Errorf("the answer is %q", raw)
	}
	return parts[0], parts[1], parts[2], nil
}

// mustCall fails the test when the call does.
func (p *pod) mustCall(id string) string {
	p.t.Helper()
	by, model, answer, err := p.call(within(p.t, patience), "hello", "mm-model-id", id)
	if err != nil || model != id || answer != "hello" {
		p.t.Fatalf("%s answered %q for %q, %v", by, answer, model, err)
	}
	return by
}

func (p *pod) status(id string) *wire.ModelStatusInfo {
	p.t.Helper()
	info, err := p.api().GetModelStatus(within(p.t, patience), &wire.GetStatusRequest{ModelId: id})
	if err != nil {
		p.t.Fatal(err)
	}
	return info
}

// loadedIn are the instances that have a model loaded.
func (p *pod) loadedIn(id string) (out []string) {
	p.t.Helper()
	for _, c := range p.status(id).ModelCopyInfos {
		if c.CopyStatus == wire.ModelStatusInfo_LOADED {
			out = append(out, c.Location)
		}
	}
	return out
}

// traffic calls models all the time, and counts what failed.
type traffic struct {
	stop  context.CancelFunc
	done  sync.WaitGroup
	calls atomic.Int64

	mu       sync.Mutex
	failures []string
}

// load begins calls of models by all pods that are asked, each in turn.
func load(t testing.TB, workers int, models []string, pods func() []*pod) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &traffic{stop: cancel}
	t.Cleanup(cancel)
	for worker := range workers {
		l.done.Go(func() {
			for i := worker; ctx.Err() == nil; i++ {
				all := pods()
				p, id := all[i%len(all)], models[i%len(models)]
				asked, end := context.WithTimeout(ctx, patience)
				_, _, _, err := p.call(asked, "hello", "mm-model-id", id)
				end()
				l.calls.Add(1)
				if err != nil && ctx.Err() == nil {
					l.mu.Lock()
					l.failures = append(l.failures, fmt.Sprintf("%s by %s: %v", id, p.name, err))
					l.mu.Unlock()
				}
			}
		})
	}
	return l
}

// more waits for so many further calls.
func (l *traffic) more(t testing.TB, n int64) {
	t.Helper()
	want := l.calls.Load() + n
	eventually(t, "calls go on", func() error {
		if got := l.calls.Load(); got < want {
			return fmt.Errorf("%d of %d", got, want)
		}
		return nil
	})
}

func (l *traffic) end(t testing.TB) {
	t.Helper()
	l.stop()
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("%d calls, %d failed", l.calls.Load(), len(l.failures))
	for i, failure := range l.failures {
		if i == 10 {
			break
		}
		t.Error(failure)
	}
}
