// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/testkit/freeport"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// asAgent makes the test's program the agent itself, for tests that kill it.
const asAgent = "TEST_AS_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		os.Exit(command.Execute(NewCommand(), os.Args[1:], os.Stderr))
	}
	os.Exit(m.Run())
}

func freePort(t *testing.T) int {
	t.Helper()
	return freeport.At(t, "127.0.0.1")
}

// running is an agent in this process, at a real address.
type running struct {
	flags
	address string
	stop    context.CancelFunc
	ended   chan error
	log     *lines
}

type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start runs an agent before a model server, with flags as on a command line.
func start(t *testing.T, model string, env map[string]string, args ...string) *running {
	t.Helper()
	r := &running{ended: make(chan error, 1), log: &lines{}}
	r.env = func(name string) string { return env[name] }
	c := NewCommand()
	c.ResetFlags()
	r.register(c)
	r.registerLogger(c)
	port := freePort(t)
	_, modelPort, err := net.SplitHostPort(model)
	if err != nil {
		t.Fatal(err)
	}
	all := append([]string{"--port", strconv.Itoa(port), "--component-port", modelPort, "--shutdown-delay", "0s", "--shutdown-timeout", "10s"}, args...)
	if err := c.ParseFlags(all); err != nil {
		t.Fatal(err)
	}
	if probe, given := env["SERVING_READINESS_PROBE"]; given {
		t.Setenv("SERVING_READINESS_PROBE", probe)
	}
	if err := r.check(c.Flags().Changed); err != nil {
		t.Fatal(err)
	}
	r.socket = ""
	r.address = "127.0.0.1:" + strconv.Itoa(port)
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.ended <- r.run(ctx, slog.New(slog.NewTextHandler(r.log, nil))) }()
	t.Cleanup(func() { r.end(t) })
	waitFor(t, r.address)
	return r
}

func (r *running) end(t *testing.T) {
	t.Helper()
	if r.stop == nil {
		return
	}
	r.stop()
	r.stop = nil
	select {
	case err := <-r.ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it does not end")
	}
}

func waitFor(t *testing.T, address string) {
	t.Helper()
	eventually(t, func() error {
		connection, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = connection.Close()
		}
		return err
	})
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-ticker.C {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func newModel(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func hostOf(s *httptest.Server) string { return s.Listener.Addr().String() }

func request(t *testing.T, method, to, body string, header http.Header) (status int, text string, h http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, to, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		if name == "Host" {
			req.Host = values[0]
		}
		req.Header[name] = values
	}
	got, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	all, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(all), got.Header
}

// TestHealth: probes are known by their headers, whatever their path.
func TestHealth(t *testing.T) {
	model := newModel(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("model")) })
	r := start(t, hostOf(model), map[string]string{"SERVING_READINESS_PROBE": ""})
	for _, c := range []struct {
		agent, probe, hash string
		status             int
		body               string
	}{
		{"kube-probe/1.33", "queue", "", 200, "queue"},
		{"Knative-Activator-Probe", "queue", "", 200, "queue"},
		{"kube-probe/1.33", "other", "", 400, "unexpected probe header value: other\n"},
		{"kube-probe/1.33", "", "", 400, "unexpected probe header value: \n"},
		{"curl/8", "probe", "abc", 200, ""},
		{"curl/8", "probe", "", 400, "a probe has header K-Network-Hash\n"},
		{"curl/8", "queue", "", 200, "model"},
		{"curl/8", "", "", 200, "model"},
	} {
		h := http.Header{"User-Agent": {c.agent}}
		if c.probe != "" {
			h.Set(probeHeader, c.probe)
		}
		if c.hash != "" {
			h.Set(hashHeader, c.hash)
		}
		status, body, header := request(t, http.MethodGet, "http://"+r.address+"/any/path", "", h)
		if status != c.status || body != c.body || header.Get(hashHeader) != c.hash {
			t.Errorf("%+v: %d %q %s", c, status, body, header.Get(hashHeader))
		}
	}
}

// TestProbes: the agent is ready when the model server is.
func TestProbes(t *testing.T) {
	var wanted string
	model := newModel(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/ready" || req.URL.RawQuery != "x=1" || req.Header.Get("X-A") != wanted || req.Host != "name" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	_, modelPort, err := net.SplitHostPort(hostOf(model))
	if err != nil {
		t.Fatal(err)
	}
	gone := freePort(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := health.NewServer()
	rpc := grpc.NewServer()
	healthpb.RegisterHealthServer(rpc, service)
	go func() { _ = rpc.Serve(listener) }()
	defer rpc.Stop()
	service.SetServingStatus("off", healthpb.HealthCheckResponse_NOT_SERVING)
	rpcPort := listener.Addr().(*net.TCPAddr).Port
	get := `{"httpGet":{"path":"/ready?x=1","port":` + modelPort + `,"httpHeaders":[{"name":"Host","value":"name"},{"name":"X-A","value":"%s"}]},"periodSeconds":1,"timeoutSeconds":5}`
	wanted = "1"
	for name, c := range map[string]struct {
		probe               string
		unset, several, h2c bool
		ready               bool
	}{
		"none":               {unset: true, ready: true},
		"empty":              {probe: "", ready: true},
		"http":               {probe: fmt.Sprintf(get, "1"), ready: true},
		"http not ready":     {probe: fmt.Sprintf(get, "2")},
		"http, h2c first":    {probe: fmt.Sprintf(get, "1"), h2c: true, ready: true},
		"a named port":       {probe: `{"tcpSocket":{"port":"http1"},"periodSeconds":1}`, ready: true},
		"tcp":                {probe: `{"tcpSocket":{"port":` + modelPort + `},"periodSeconds":1}`, ready: true},
		"tcp, nobody there":  {probe: fmt.Sprintf(`{"tcpSocket":{"port":%d},"periodSeconds":1}`, gone)},
		"grpc":               {probe: fmt.Sprintf(`{"grpc":{"port":%d},"periodSeconds":1,"timeoutSeconds":5}`, rpcPort), ready: true},
		"grpc not serving":   {probe: fmt.Sprintf(`{"grpc":{"port":%d,"service":"off"},"periodSeconds":1,"timeoutSeconds":5}`, rpcPort)},
		"exec":               {probe: `{"exec":{"command":["true"]},"periodSeconds":1}`},
		"eager":              {probe: fmt.Sprintf(`{"tcpSocket":{"port":%s},"successThreshold":3}`, modelPort), ready: true},
		"several":            {probe: `[` + fmt.Sprintf(get, "1") + `,{"tcpSocket":{"port":` + modelPort + `}}]`, several: true, ready: true},
		"several, one wrong": {probe: `[` + fmt.Sprintf(get, "1") + `,` + fmt.Sprintf(get, "2") + `]`, several: true},
	} {
		t.Run(name, func(t *testing.T) {
			number, err := strconv.Atoi(modelPort)
			if err != nil {
				t.Fatal(err)
			}
			p, err := newProber(c.probe, !c.unset, c.several, c.h2c, number)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.ready(t.Context()); (err == nil) != c.ready {
				t.Errorf("it says %v", err)
			}
		})
	}
	if _, err := newProber("{", true, false, false, 1); err == nil {
		t.Error("nonsense is a probe")
	}
}

// TestCallersShareOneLook at the server.
func TestCallersShareOneLook(t *testing.T) {
	looks, release := make(chan struct{}, 10), make(chan struct{})
	model := newModel(t, func(http.ResponseWriter, *http.Request) { looks <- struct{}{}; <-release })
	_, port, err := net.SplitHostPort(hostOf(model))
	if err != nil {
		t.Fatal(err)
	}
	p, err := newProber(`{"httpGet":{"port":`+port+`},"periodSeconds":1,"timeoutSeconds":10}`, true, false, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if err := p.ready(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	<-looks
	eventually(t, func() error { // all of them have asked
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.now == nil {
			return fmt.Errorf("nobody looks")
		}
		return nil
	})
	close(release)
	all.Wait()
	if len(looks) > 1 { // one of them may have come after
		t.Errorf("%d looks", len(looks)+1)
	}
}

// TestProxy: requests reach the model as they came.
func TestProxy(t *testing.T) {
	seen := make(chan *http.Request, 1)
	model := newModel(t, func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		seen <- req
		w.Header().Set("X-Model", "yes")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(body)
	})
	r := start(t, hostOf(model), nil)
	status, body, header := request(t, http.MethodPut, "http://"+r.address+"/a%2Fb/c?x=1;y=2&z", "body",
		http.Header{"Host": {"iris.example.com"}, "X-Forwarded-For": {"10.0.0.1, 2001:db8::1"}, "X-Forwarded-Proto": {"https"}, "Accept-Encoding": {"br"}})
	if status != http.StatusTeapot || body != "body" || header.Get("X-Model") != "yes" {
		t.Errorf("the client gets %d %q %v", status, body, header)
	}
	req := <-seen
	got := map[string]string{
		"method": req.Method, "uri": req.RequestURI, "host": req.Host, "for": req.Header.Get("X-Forwarded-For"),
		"proto": req.Header.Get("X-Forwarded-Proto"), "forwarded": req.Header.Get("Forwarded"), "encoding": req.Header.Get("Accept-Encoding"),
	}
	want := map[string]string{
		"method": "PUT", "uri": "/a%2Fb/c?x=1;y=2&z", "host": "iris.example.com", "for": "10.0.0.1, 2001:db8::1, 127.0.0.1", "proto": "https",
		"forwarded": `for=10.0.0.1;proto=https, for="[2001:db8::1]"`, "encoding": "br",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	model.Close()
	if status, body, _ := request(t, http.MethodGet, "http://"+r.address+"/", "", nil); status != http.StatusBadGateway || !strings.Contains(body, "refused") {
		t.Errorf("without a model: %d %q", status, body)
	}
}

// TestGRPC: calls of both kinds pass, with their metadata, trailers and statuses, and are logged all the same.
func TestGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := health.NewServer()
	rpc := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		in, _ := metadata.FromIncomingContext(ctx)
		if err := grpc.SetTrailer(ctx, metadata.Pairs("echo", strings.Join(in.Get("x-a"), ","))); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}))
	healthpb.RegisterHealthServer(rpc, service)
	go func() { _ = rpc.Serve(listener) }()
	defer rpc.Stop()
	events := make(chan string, 10)
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { events <- req.Header.Get("Ce-Type") }))
	defer sink.Close()
	r := start(t, listener.Addr().String(), nil, "--log-url", sink.URL, "--enable-batcher")
	connection, err := grpc.NewClient(r.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close() //nolint:errcheck // nothing is sent any more
	client := healthpb.NewHealthClient(connection)
	var trailer metadata.MD
	got, err := client.Check(metadata.AppendToOutgoingContext(t.Context(), "x-a", "1"), &healthpb.HealthCheckRequest{}, grpc.Trailer(&trailer))
	if err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING || strings.Join(trailer.Get("echo"), "") != "1" {
		t.Errorf("%v, %v, trailer %v", got, err, trailer)
	}
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "unknown"}); status.Code(err) != codes.NotFound {
		t.Errorf("an error is %v", err)
	}
	for range 4 {
		<-events
	}
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{Service: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []healthpb.HealthCheckResponse_ServingStatus{
		healthpb.HealthCheckResponse_SERVICE_UNKNOWN, healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING,
	} {
		got, err := stream.Recv()
		if err != nil || got.GetStatus() != want {
			t.Fatalf("the stream says %v, %v, want %v", got, err, want)
		}
		switch want {
		case healthpb.HealthCheckResponse_SERVICE_UNKNOWN:
			service.SetServingStatus("s", healthpb.HealthCheckResponse_SERVING)
		case healthpb.HealthCheckResponse_SERVING:
			service.SetServingStatus("s", healthpb.HealthCheckResponse_NOT_SERVING)
		}
	}
	cancel()
}

// TestUpgrades pass through the whole chain.
func TestUpgrades(t *testing.T) {
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		_, _ = connection.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"))
		line, err := buffered.ReadString('\n')
		if err != nil {
			t.Error(err)
		}
		_, _ = connection.Write([]byte("echo " + line))
	}))
	defer model.Close()
	r := start(t, hostOf(model), nil, "--log-url", "http://127.0.0.1:1", "--enable-batcher")
	connection, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_, _ = connection.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"))
	in := bufio.NewReader(connection)
	head, err := in.ReadString('\n')
	if err != nil || !strings.HasPrefix(head, "HTTP/1.1 101") {
		t.Fatalf("the connection says %q, %v", head, err)
	}
	_, _ = connection.Write([]byte("hello\n"))
	all, err := io.ReadAll(in)
	if err != nil || !strings.HasSuffix(string(all), "echo hello\n") {
		t.Errorf("the connection says %q, %v", all, err)
	}
}

// TestAllAtOnce: with the batcher behind it, the logger sees each request and its own part of the answer.
func TestAllAtOnce(t *testing.T) {
	model := newModel(t, func(w http.ResponseWriter, req *http.Request) {
		var in struct{ Instances []any }
		if json.NewDecoder(req.Body).Decode(&in) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"predictions": in.Instances})
	})
	type event struct{ kind, id, body, annotations string }
	events := make(chan event, 10)
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err == nil {
			events <- event{req.Header.Get("Ce-Type"), req.Header.Get("Ce-Id"), string(body), req.Header.Get("Ce-Annotations")}
		}
	}))
	defer sink.Close()
	r := start(t, hostOf(model), nil, "--enable-batcher", "--max-batchsize", "2", "--max-latency", "60000", "--log-url", sink.URL,
		"--logger-tls-skip-verify", "false", "--metadata-annotations", `a=1,"b=2,c=3",d=4,5`)
	var all sync.WaitGroup
	for _, id := range []string{"one", "two"} {
		all.Go(func() {
			status, body, _ := request(t, http.MethodPost, "http://"+r.address+"/v1/models/m:predict", `{"instances":["`+id+`"]}`, http.Header{"Ce-Id": {id}})
			if status != http.StatusOK || !strings.Contains(body, `"predictions":["`+id+`"]`) {
				t.Errorf("%s: %d %s", id, status, body)
			}
		})
	}
	all.Wait()
	for range 4 {
		e := <-events
		if !strings.Contains(e.body, `["`+e.id+`"]`) || e.annotations != `{"a":"1","b":"2,c=3","d":"4,5"}` {
			t.Errorf("the event is %+v", e)
		}
	}
}

// TestEnd: probes fail at once, requests are served until none come, what waits for others goes, and the log is sent.
func TestEnd(t *testing.T) {
	model := newModel(t, func(w http.ResponseWriter, req *http.Request) {
		var in struct{ Instances []any }
		_ = json.NewDecoder(req.Body).Decode(&in)
		_ = json.NewEncoder(w).Encode(map[string]any{"predictions": in.Instances})
	})
	arrived, slow := make(chan struct{}, 10), make(chan struct{})
	var taken atomic.Int64
	sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-slow
		taken.Add(1)
	}))
	defer sink.Close()
	r := start(t, hostOf(model), nil, "--enable-batcher", "--max-latency", "600000", "--log-url", sink.URL, "--shutdown-delay", "200ms")
	waiting := make(chan string, 1)
	go func() {
		_, body, _ := request(t, http.MethodPost, "http://"+r.address+"/v1/models/m:predict", `{"instances":[1]}`, nil)
		waiting <- body
	}()
	request(t, http.MethodPost, "http://"+r.address+"/v2/models/m/infer", `{}`, nil)
	for range 3 { // both events of the one, and the request that waits for others
		<-arrived
	}
	r.stop()
	eventually(t, func() error {
		status, body, _ := request(t, http.MethodGet, "http://"+r.address+"/", "", http.Header{"User-Agent": {"kube-probe/1"}, probeHeader: {"queue"}})
		if status != http.StatusServiceUnavailable || body != "shutting down\n" {
			return fmt.Errorf("a probe gets %d %q", status, body)
		}
		return nil
	})
	if body := <-waiting; !strings.Contains(body, `"predictions":[1]`) {
		t.Errorf("the request that waited gets %s", body)
	}
	close(slow)
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	if taken.Load() != 4 {
		t.Errorf("%d of 4 events arrived", taken.Load())
	}
	r.stop = nil
}

func TestForwarded(t *testing.T) {
	for _, c := range []struct{ xff, host, proto, want string }{
		{"", "", "", ""},
		{"1.2.3.4", "", "", "for=1.2.3.4"},
		{"1.2.3.4, 5.6.7.8", "a.example", "http", "for=1.2.3.4;host=a.example;proto=http, for=5.6.7.8"},
		{"", "a.example", "https", "host=a.example;proto=https"},
		{`1.2.3.4;by=evil, ::1`, "", "", `for="[::1]"`},
	} {
		h := http.Header{}
		for name, value := range map[string]string{"X-Forwarded-For": c.xff, "X-Forwarded-Host": c.host, "X-Forwarded-Proto": c.proto} {
			if value != "" {
				h.Set(name, value)
			}
		}
		if got := forwardedBy(h); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  map[string]string
		want string
	}{
		{[]string{"--max-batchsize", "0"}, nil, "--max-batchsize"},
		{[]string{"--max-latency", "soon"}, nil, "--max-latency"},
		{[]string{"--log-url", "http://x", "--log-mode", "some"}, nil, "--log-mode"},
		{[]string{"--log-url", "http://x", "--metadata-annotations", "a"}, nil, "KEY=VALUE"},
		{[]string{"--log-url", "ftp://x"}, nil, "--log-url is no address"},
		{[]string{"--log-url", "s3a://x/y"}, nil, "s3a://"},
		{[]string{"--log-url", "s3://x/y", "--log-marshaller-url", "somewhere"}, nil, "--log-marshaller-url"},
		{[]string{"--log-url", "abfs://x@y/z"}, nil, "AZURE_ACCOUNT_NAME"},
		{nil, map[string]string{"CONTAINER_CONCURRENCY": "many"}, "CONTAINER_CONCURRENCY"},
		{[]string{"--shutdown-delay", "2m", "--shutdown-timeout", "1m"}, nil, "--shutdown-timeout"},
		{[]string{"--log-level", "loud"}, nil, "--log-level"},
	} {
		f := &flags{env: func(name string) string { return c.env[name] }}
		cmd := NewCommand()
		cmd.ResetFlags()
		f.register(cmd)
		f.registerLogger(cmd)
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		if err := f.check(cmd.Flags().Changed); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %v: %v", c.args, c.env, err)
		}
	}
}

func TestPatience(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want patience
	}{
		{nil, patience{5 * time.Second, 25 * time.Second}},
		{map[string]string{"QUEUE_SERVING_PORT": "8012", "REVISION_TIMEOUT_SECONDS": "300"}, patience{30 * time.Second, 295 * time.Second}},
		{map[string]string{"QUEUE_SERVING_PORT": "8012", "REVISION_TIMEOUT_SECONDS": "10"}, patience{30 * time.Second, 40 * time.Second}},
	} {
		if got := patienceOf(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%v: %v", c.env, got)
		}
	}
	for config, want := range map[string]string{`{"level":"WARN"}`: "warn", "": "info", "nonsense": "info", `{"level":"fatal"}`: "error"} {
		if got := logLevel(func(name string) string { return map[string]string{"SERVING_LOGGING_CONFIG": config}[name] }); got != want {
			t.Errorf("%s: %s", config, got)
		}
	}
}

// TestKilled: a real process is killed while it fetches a model and logs requests; the next one puts everything in order.
func TestKilled(t *testing.T) {
	half := make(chan struct{})
	var once sync.Once
	var kill atomic.Bool
	kill.Store(true)
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", "2000000")
		_, _ = w.Write(make([]byte, 1_000_000))
		if kill.Load() {
			_ = http.NewResponseController(w).Flush()
			once.Do(func() { close(half) })
			<-req.Context().Done()
			return
		}
		_, _ = w.Write(make([]byte, 1_000_000))
	}))
	defer storage.Close()
	loaded := make(chan string, 10)
	model := newModel(t, func(_ http.ResponseWriter, req *http.Request) { loaded <- req.URL.Path })
	u, err := url.Parse(model.URL)
	if err != nil {
		t.Fatal(err)
	}
	config, models := t.TempDir(), t.TempDir()
	list := `[{"modelName":"a","modelSpec":{"storageUri":"` + storage.URL + `/weights","framework":"f","memory":"1"}}]`
	if err := os.WriteFile(config+"/models.json", []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	run := func() *exec.Cmd {
		c := exec.CommandContext(t.Context(), os.Args[0], "--port", strconv.Itoa(port), "--component-port", u.Port(), "--enable-puller", "--config-dir", config,
			"--model-dir", models, "--shutdown-delay", "0s")
		c.Env = append(os.Environ(), asAgent+"=1")
		if err := guard.Start(c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := run()
	<-half
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = guard.Wait(first)
	if _, err := os.Stat(models + "/a"); err == nil {
		t.Error("half a model is where the server looks")
	}
	kill.Store(false)
	second := run()
	if path := <-loaded; path != "/v2/repository/models/a/load" {
		t.Errorf("the server was asked for %s", path)
	}
	waitFor(t, "127.0.0.1:"+strconv.Itoa(port))
	if info, err := os.Stat(models + "/a/weights"); err != nil || info.Size() != 2_000_000 {
		t.Errorf("the model is %v, %v", info, err)
	}
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := guard.Wait(second); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
