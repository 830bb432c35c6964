// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

// Hosts of Envoy: one whose requests are looked at on their way to the model, and one whose are not.
const checkedHost, plainHost = "checked.example.com", "plain.example.com"

// object of Envoy's configuration.
type object = map[string]any

const (
	types  = "type.googleapis.com/envoy."
	filter = "envoy.filters.http.ext_proc.payload-processing"
)

// plugins are those of the platform where the processor checks requests itself.
const plugins = `apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- type: body-field-to-header
  parameters: {fieldName: model, headerName: X-Gateway-Model-Name}
- type: maas-enforcement
- type: maas-headers-guard
- type: model-provider-resolver
- type: stream-usage-enforcer
- type: api-translation
- type: apikey-injection
profiles:
- name: default
  plugins:
    request:
    - pluginRef: body-field-to-header
    - pluginRef: maas-enforcement
    - pluginRef: maas-headers-guard
    - pluginRef: model-provider-resolver
    - pluginRef: stream-usage-enforcer
    - pluginRef: api-translation
    - pluginRef: apikey-injection
    response:
    - pluginRef: api-translation
`

// gateway is an Envoy in front of a model, with the payload processor beside it, which asks a server of the API about keys.
type gateway struct {
	envoy, processor *testkit.Program
	url, metrics     string
	client           *http.Client
	// keys are so many, of one subscription: every step-th of all.
	keys, step int
}

// usedKeys are how many different keys come through the gateway.
const usedKeys = 100

// newGateway starts the model, the processor and Envoy. most is how many requests there are at the same time.
func (o options) newGateway(b *bed, s *server, most int) *gateway {
	b.Helper()
	model, grpc, health, metrics, port := testkit.FreePort(b), testkit.FreePort(b), testkit.FreePort(b), testkit.FreePort(b), testkit.FreePort(b)
	g := &gateway{
		url: address(port) + "/v1/chat/completions", metrics: address(metrics) + "/metrics", client: newClient(most, nil),
		keys: min(usedKeys, o.keys/o.sizes[0]), step: o.sizes[0],
	}
	g.client.Timeout = 2 * time.Minute
	b.Cleanup(g.client.CloseIdleConnections)
	own := exec.Command(b.self)
	own.Env = append(os.Environ(), fmt.Sprintf("%s=127.0.0.1:%d", modelVariable, model))
	if _, err := own.StdinPipe(); err != nil { // it ends when this closes
		b.Fatal(err)
	}
	testkit.RunProgram(b, "model", own)
	args := []string{
		"payload-processing", "--kubeconfig=" + b.kubeconfig, "--config-file=" + b.file("config.yaml", []byte(plugins)), "--tenant=" + tenant,
		"--tenant-namespace=" + s.namespace, "--maas-api-url=" + s.internal, "--maas-api-ca-file=" + b.file("ca.crt", b.pair.Roots),
		"--maas-api-token-file=" + b.file("token", []byte(b.token)), "--listen=127.0.0.1:" + strconv.Itoa(grpc),
		"--health-probe-bind-address=127.0.0.1:" + strconv.Itoa(health), "--metrics-bind-address=127.0.0.1:" + strconv.Itoa(metrics),
		"--log-level=warn", "--shutdown-delay=0s",
	}
	if o.held > 0 {
		args = append(args, "--max-body="+strconv.Itoa(max(1<<20, 2*o.prompt)), "--max-held="+strconv.Itoa(o.held))
	}
	g.processor = testkit.RunProgram(b, "payload-processing", exec.Command(b.binary, args...))
	b.wait(g.processor, func(ctx context.Context) error { return get(ctx, http.DefaultClient, address(health)+"/readyz") })
	g.envoy = testkit.RunProgram(b, "envoy", b.envoy(o.envoy, bootstrap(port, grpc, model)))
	b.wait(g.envoy, func(ctx context.Context) error {
		return errors.Join(g.ask(ctx, plainHost, prompt(modelOf(0), 100, false)), g.ask(ctx, checkedHost, prompt(modelOf(0), 100, false)))
	})
	return g
}

func address(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }

func (b *bed) envoy(program string, config object) *exec.Cmd {
	b.Helper()
	if program == "" {
		root, err := checkout.Dir()
		if err != nil {
			b.Fatal(err)
		}
		find := exec.CommandContext(b.Context(), "go", "run", "./hack/envoy", "binary")
		find.Dir, find.Stderr = root, os.Stderr
		out, err := find.Output()
		if err != nil {
			b.Fatalf("no Envoy: %v; name one with -envoy", err)
		}
		program = strings.TrimSpace(string(out))
	}
	text, err := json.Marshal(config)
	if err != nil {
		b.Fatal(err)
	}
	return exec.Command(program, "--config-path", b.file("envoy.json", text), "--log-level", "warn", "--use-dynamic-base-id")
}

// bootstrap has Envoy hand requests to a model, those of one host past the processor as the platform wires it into a gateway.
func bootstrap(port, processor, model int) object {
	route := func(host string, more object) object {
		r := object{"match": object{"prefix": "/"}, "route": object{"cluster": "model", "timeout": "120s"}}
		for key, value := range more {
			r[key] = value
		}
		return object{"name": host, "domains": []string{host}, "routes": []object{r}}
	}
	return object{"static_resources": object{
		"listeners": []object{{"name": "http", "address": socket(port), "filter_chains": []object{{"filters": []object{{
			"name": "envoy.filters.network.http_connection_manager",
			"typed_config": object{
				"@type":       types + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
				"stat_prefix": "http", "use_remote_address": true,
				"http_filters": []object{
					{"name": filter, "typed_config": processing()},
					{"name": "envoy.filters.http.router", "typed_config": object{"@type": types + "extensions.filters.http.router.v3.Router"}},
				},
				"route_config": object{"virtual_hosts": []object{
					route(checkedHost, nil),
					route(plainHost, object{"typed_per_filter_config": object{filter: object{"@type": types + "extensions.filters.http.ext_proc.v3.ExtProcPerRoute", "disabled": true}}}),
				}},
			},
		}}}}}},
		"clusters": []object{cluster("model", model, nil), cluster("processor", processor, object{
			"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
				"@type":                types + "extensions.upstreams.http.v3.HttpProtocolOptions",
				"explicit_http_config": object{"http2_protocol_options": object{}},
			}},
			"transport_socket": object{"name": "envoy.transport_sockets.tls", "typed_config": object{
				"@type": types + "extensions.transport_sockets.tls.v3.UpstreamTlsContext",
			}},
		})},
	}}
}

func processing() object {
	return object{
		"@type":        types + "extensions.filters.http.ext_proc.v3.ExternalProcessor",
		"grpc_service": object{"envoy_grpc": object{"cluster_name": "processor"}, "timeout": "300s"}, "message_timeout": "60s",
		"failure_mode_allow": false, "mutation_rules": object{"allow_all_routing": true}, "allow_mode_override": true,
		"processing_mode": object{
			"request_header_mode": "SEND", "request_body_mode": "FULL_DUPLEX_STREAMED", "request_trailer_mode": "SEND",
			"response_header_mode": "SEND", "response_body_mode": "FULL_DUPLEX_STREAMED", "response_trailer_mode": "SEND",
		},
	}
}

// cluster with room for as many requests as come: what bounds them is measured, and not Envoy.
func cluster(name string, port int, more object) object {
	const many = 10_000
	out := object{
		"name": name, "type": "STATIC", "connect_timeout": "10s",
		"circuit_breakers": object{"thresholds": []object{{"max_connections": many, "max_pending_requests": many, "max_requests": many}}},
		"load_assignment": object{"cluster_name": name, "endpoints": []object{{
			"lb_endpoints": []object{{"endpoint": object{"address": socket(port)}}},
		}}},
	}
	for key, value := range more {
		out[key] = value
	}
	return out
}

func socket(port int) object {
	return object{"socket_address": object{"address": "127.0.0.1", "port_value": port}}
}

// send a request that bears one of the keys.
func (g *gateway) send(ctx context.Context, host string, body io.Reader, length int) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url, body)
	if err != nil {
		return nil, err
	}
	request.Host, request.ContentLength = host, int64(length)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+keyOf(g.step*rand.IntN(g.keys))) //nolint:gosec // any will do
	return g.client.Do(request)
}

// refused is an answer that is not the model's.
type refused struct {
	status int
	text   string
}

func (r *refused) Error() string { return fmt.Sprintf("%d: %s", r.status, r.text) }

// ask for an answer as a whole.
func (g *gateway) ask(ctx context.Context, host string, body []byte) error {
	response, err := g.send(ctx, host, bytes.NewReader(body), len(body))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return &refused{response.StatusCode, fmt.Sprintf("%.200s", text)}
	case string(text) != whole:
		return fmt.Errorf("the answer is %.200s", text)
	}
	return nil
}

// stream reads all events of an answer and tells how long the first one took.
func (g *gateway) stream(ctx context.Context, host string, body io.Reader, length int) (first time.Duration, err error) {
	began := time.Now()
	response, err := g.send(ctx, host, body, length)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 200)) // the status is enough
		return 0, &refused{response.StatusCode, string(text)}
	}
	seen, last := 0, ""
	scanner := bufio.NewScanner(response.Body)
	for scanner.Scan() {
		if data, found := strings.CutPrefix(scanner.Text(), "data: "); found {
			if seen++; seen == 1 {
				first = time.Since(began)
			}
			last = data
		}
	}
	if scanner.Err() != nil || seen != events+1 || last != "[DONE]" {
		return 0, fmt.Errorf("%d of %d events came, the last one is %.100s: %w", seen, events+1, last, errors.Join(scanner.Err(), io.ErrUnexpectedEOF))
	}
	return first, nil
}

// slow is a body whose last byte is not sent before it is released.
type slow struct {
	content []byte
	release <-chan struct{}
}

func (s *slow) Read(p []byte) (int, error) {
	switch len(s.content) {
	case 0:
		return 0, io.EOF
	case 1:
		<-s.release
	}
	n := copy(p, s.content[:max(1, len(s.content)-1)])
	s.content = s.content[n:]
	return n, nil
}
