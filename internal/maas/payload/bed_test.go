// SPDX-License-Identifier: Apache-2.0

package payload_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/maas/payload"
	"github.com/modelplane/modelplane/internal/maas/payload/directory"
	"github.com/modelplane/modelplane/internal/maas/payload/plugins"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

// configuration of one stage that does everything.
const allPlugins = `apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- type: body-field-to-header
  parameters: {fieldName: model, headerName: X-Gateway-Model-Name}
- type: maas-headers-guard
- type: stream-usage-enforcer
- type: model-provider-resolver
- type: api-translation
- type: apikey-injection
%sprofiles:
- name: default
  plugins:
    request:
    - pluginRef: body-field-to-header
%s    - pluginRef: maas-headers-guard
    - pluginRef: stream-usage-enforcer
    - pluginRef: model-provider-resolver
    - pluginRef: api-translation
    - pluginRef: apikey-injection
    response:
    - pluginRef: api-translation
`

func plainConfig() string { return fmt.Sprintf(allPlugins, "", "") }

func enforcedConfig() string {
	return fmt.Sprintf(allPlugins, "- type: maas-enforcement\n", "    - pluginRef: maas-enforcement\n")
}

const secretKey = "sk-very-secret"

// models are one of the cluster and two of providers.
func models() *directory.Table {
	t := directory.New()
	secret := directory.Key{Namespace: "team", Name: "key"}
	t.PutSecret(secret, map[string][]byte{"api-key": []byte(secretKey + "\n")})
	auth := directory.Auth{Type: "apikey", Secret: secret}
	t.PutProvider(directory.Key{Namespace: "team", Name: "anthropic"}, directory.ProviderSpec{Kind: "anthropic", Endpoint: "api.anthropic.test", Auth: auth})
	t.PutProvider(directory.Key{Namespace: "team", Name: "openai"}, directory.ProviderSpec{Kind: "openai", Endpoint: "api.openai.test", Auth: auth})
	t.PutModel(directory.Key{Namespace: "team", Name: "claude"}, directory.ModelSpec{Refs: []directory.ProviderRef{
		{Provider: "anthropic", TargetModel: "claude-target", Format: "messages", Path: "/v1/messages", Weight: 1},
	}})
	t.PutModel(directory.Key{Namespace: "team", Name: "gpt"}, directory.ModelSpec{Refs: []directory.ProviderRef{
		{Provider: "openai", TargetModel: "gpt-target", Format: "openai-chat", Path: "/v1/chat/completions", Weight: 1},
	}})
	return t
}

// logged is a log that can be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// processor runs one; it ends with the test.
type processor struct {
	port int
	log  *logged
	stop func() // asks it to end, and waits
}

func startProcessor(t testing.TB, config string, change func(*payload.Options)) processor {
	t.Helper()
	certificate, err := payload.SelfSigned(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p := processor{port: testkit.FreePort(t), log: &logged{}}
	o := payload.Options{
		Log: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Config: []byte(config), World: plugins.World{Directory: models()},
		Bounds: payload.Bounds{Body: 1 << 20, Held: 64 << 20}, Streams: 1000,
		Listen: net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)), Certificate: certificate, Timeout: 10 * time.Second,
	}
	if change != nil {
		change(&o)
	}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- payload.Run(ctx, o) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		p.stop()
		if strings.Contains(p.log.String(), secretKey) {
			t.Error("the key is in the log")
		}
	})
	return p
}

// backend is a model's server of the test's own.
func backend(t testing.TB, handler http.HandlerFunc) int {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

type object = map[string]any

const types = "type.googleapis.com/envoy."

// gateway is an Envoy with the processors, in this order, in front of two backends: that of providers and that of the
// cluster's own models.
type gateway struct {
	stages         []processor
	external, own  int
	body           string // how bodies are sent
	requestBody    string // those of requests, if in another way
	externalByName map[string]int
}

// start tells where it listens.
func (g gateway) start(t testing.TB) string {
	t.Helper()
	port := testkit.FreePort(t)
	config, err := json.Marshal(g.bootstrap(port))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "envoy.json")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		t.Fatal(err)
	}
	envoy := testkit.RunProgram(t, "envoy", exec.Command(envoyProgram(t), "--config-path", path, "--log-level", "warn", "--use-dynamic-base-id", "--concurrency", "1"))
	url := "http://127.0.0.1:" + strconv.Itoa(port)
	testkit.Eventually(t, time.Minute, "Envoy to answer", func() error {
		select {
		case <-envoy.Ended():
			t.Fatalf("Envoy has ended:\n%s", envoy.Output())
		default:
		}
		response, err := http.Get(url + "/ready")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(response.Body)
			return fmt.Errorf("%s: %s", response.Status, text)
		}
		return nil
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(envoy.Output())
		}
	})
	return url
}

// envoyProgram is found or fetched once.
var envoyProgram = func() func(testing.TB) string {
	find := sync.OnceValues(func() (string, error) {
		root, err := checkout.Dir()
		if err != nil {
			return "", err
		}
		c := exec.Command("go", "run", "./hack/envoy", "binary")
		c.Dir, c.Stderr = root, os.Stderr
		out, err := c.Output()
		return strings.TrimSpace(string(out)), err
	})
	return func(t testing.TB) string {
		t.Helper()
		path, err := find()
		if err != nil {
			t.Fatalf("no Envoy: %v", err)
		}
		return path
	}
}()

func (g gateway) bootstrap(port int) object {
	filters, clusters := []object{}, []object{cluster("own", g.own, nil), cluster("external", g.external, nil)}
	for i, stage := range g.stages {
		name := fmt.Sprintf("processor%d", i)
		filters = append(filters, object{"name": "envoy.filters.http.ext_proc." + name, "typed_config": g.processing(name)})
		clusters = append(clusters, cluster(name, stage.port, object{
			"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
				"@type":                types + "extensions.upstreams.http.v3.HttpProtocolOptions",
				"explicit_http_config": object{"http2_protocol_options": object{}},
			}},
			"transport_socket": object{"name": "envoy.transport_sockets.tls", "typed_config": object{
				"@type": types + "extensions.transport_sockets.tls.v3.UpstreamTlsContext",
			}},
		}))
	}
	routes := []object{
		{"match": object{"path": "/ready"}, "direct_response": object{"status": 200}, "typed_per_filter_config": g.off()},
		{"match": object{"prefix": "/", "headers": []object{{"name": "x-ipp-selected-provider", "present_match": true}}}, "route": object{"cluster": "external", "timeout": "60s"}},
		{"match": object{"prefix": "/", "headers": []object{{"name": "x-gateway-model-name", "present_match": true}}}, "route": object{"cluster": "own", "timeout": "60s"}},
	}
	for name, port := range g.externalByName {
		clusters = append(clusters, cluster(name, port, nil))
		routes = append([]object{{
			"match": object{"prefix": "/", "headers": []object{{"name": "x-ipp-selected-provider", "string_match": object{"exact": name}}}},
			"route": object{"cluster": name, "timeout": "60s"},
		}}, routes...)
	}
	filters = append(filters, object{"name": "envoy.filters.http.router", "typed_config": object{"@type": types + "extensions.filters.http.router.v3.Router"}})
	return object{"static_resources": object{
		"listeners": []object{{"name": "http", "address": socket(port), "filter_chains": []object{{"filters": []object{{
			"name": "envoy.filters.network.http_connection_manager",
			"typed_config": object{
				"@type":       types + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
				"stat_prefix": "http", "http_filters": filters,
				"route_config": object{"virtual_hosts": []object{{"name": "all", "domains": []string{"*"}, "routes": routes}}},
			},
		}}}}}},
		"clusters": clusters,
	}}
}

func (g gateway) off() object {
	out := object{}
	for i := range g.stages {
		out[fmt.Sprintf("envoy.filters.http.ext_proc.processor%d", i)] = object{
			"@type": types + "extensions.filters.http.ext_proc.v3.ExtProcPerRoute", "disabled": true,
		}
	}
	return out
}

func (g gateway) processing(name string) object {
	trailers := func(body string) string {
		if body == "FULL_DUPLEX_STREAMED" {
			return "SEND"
		}
		return "SKIP"
	}
	requestBody := cmp.Or(g.requestBody, g.body)
	return object{
		"@type":        types + "extensions.filters.http.ext_proc.v3.ExternalProcessor",
		"grpc_service": object{"envoy_grpc": object{"cluster_name": name}, "timeout": "60s"}, "message_timeout": "30s",
		"failure_mode_allow": false, "mutation_rules": object{"allow_all_routing": true},
		"processing_mode": object{
			"request_header_mode": "SEND", "response_header_mode": "SEND", "request_body_mode": requestBody, "response_body_mode": g.body,
			"request_trailer_mode": trailers(requestBody), "response_trailer_mode": trailers(g.body),
		},
	}
}

func cluster(name string, port int, more object) object {
	out := object{"name": name, "type": "STATIC", "connect_timeout": "10s", "load_assignment": object{
		"cluster_name": name, "endpoints": []object{{"lb_endpoints": []object{{"endpoint": object{"address": socket(port)}}}}},
	}}
	for key, value := range more {
		out[key] = value
	}
	return out
}

func socket(port int) object {
	return object{"socket_address": object{"address": "127.0.0.1", "port_value": port}}
}

// post asks, and reads all of the answer.
func post(t testing.TB, url, body string, headers ...string) (status int, text string) {
	t.Helper()
	response := send(t, url, body, headers...)
	defer func() { _ = response.Body.Close() }()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(all)
}

func send(t testing.TB, url, body string, headers ...string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}
