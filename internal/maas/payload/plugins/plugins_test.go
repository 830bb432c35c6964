// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/maas/payload/config"
	"github.com/modelplane/modelplane/internal/maas/payload/directory"
	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
	"github.com/modelplane/modelplane/internal/maas/payload/jsonbody"
)

// chain makes plugins of the types, in this order.
func chain(t *testing.T, w World, types ...string) Chain {
	t.Helper()
	text := "apiVersion: llm-d.ai/v1alpha1\nkind: PayloadProcessorConfig\nplugins:\n"
	for _, name := range types {
		text += "- {type: " + name + "}\n"
	}
	text += "profiles:\n- plugins:\n    request:\n"
	for _, name := range types {
		text += "    - pluginRef: " + name + "\n"
	}
	pipeline, err := config.Parse([]byte(text), Known)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Make(pipeline, w)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// request goes through a chain.
func request(t *testing.T, c Chain, path, body string, headers ...string) (*exchange.Exchange, error) {
	t.Helper()
	h := http.Header{":path": {path}, ":method": {"POST"}, ":authority": {"gateway"}}
	for i := 0; i+1 < len(headers); i += 2 {
		h[headers[i]] = []string{headers[i+1]}
	}
	x := exchange.New(h)
	if body != "" {
		d, err := jsonbody.Parse([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		x.Body = d
	}
	for _, p := range c.Request {
		if err := p.Request(t.Context(), x); err != nil {
			return x, err
		}
	}
	return x, nil
}

func table() *directory.Table {
	d := directory.New()
	ref := func(provider string, weight int) directory.ProviderRef {
		return directory.ProviderRef{Provider: provider, TargetModel: "target", Format: "openai-chat", Path: "/v1/chat/completions", Weight: weight}
	}
	for _, name := range []string{"a", "b", "c"} {
		d.PutProvider(directory.Key{Namespace: "team", Name: name}, directory.ProviderSpec{Kind: "openai", Endpoint: name + ".test", Auth: directory.Auth{Type: "apikey", Secret: directory.Key{Namespace: "team", Name: name}}})
	}
	d.PutModel(directory.Key{Namespace: "team", Name: "gpt"}, directory.ModelSpec{Refs: []directory.ProviderRef{ref("a", 3), ref("b", 1), ref("c", 0)}})
	d.PutModel(directory.Key{Namespace: "team", Name: "off"}, directory.ModelSpec{Refs: []directory.ProviderRef{ref("a", 0)}})
	return d
}

// TestOnePick: two stages, each with plugins of its own, choose the same provider for a request, whatever the client says,
// and over many requests by weight.
func TestOnePick(t *testing.T) {
	before, after := chain(t, World{Directory: table()}, Resolver), chain(t, World{Directory: table()}, Resolver)
	count := map[string]int{}
	const requests = 4000
	for i := range requests {
		id := fmt.Sprintf("request-%d", i)
		one, err := request(t, before, "/v1/chat/completions", `{"model":"gpt"}`, "x-request-id", id, "x-ipp-selected-provider", "c")
		if err != nil {
			t.Fatal(err)
		}
		picked := one.Headers.Get(exchange.ProviderHeader)
		two, err := request(t, after, "/v1/chat/completions", `{"model":"gpt"}`, "x-request-id", id, "x-ipp-selected-provider", picked)
		if err != nil || two.Provider.Name != picked || !one.Reroute || two.Reroute {
			t.Fatalf("%v: %s and %s", err, picked, two.Provider.Name)
		}
		count[picked]++
	}
	if share := float64(count["a"]) / requests; count["c"] > 0 || share < 0.71 || share > 0.79 {
		t.Errorf("shares are %v", count)
	}
	// Without an id the second stage follows the first, and the first chooses at random.
	w := World{Directory: table(), Pick: func() uint64 { return 3 }}
	for picked, want := range map[string]string{"": "b", "a": "a", "c": "b"} {
		x, err := request(t, chain(t, w, Resolver), "/v1/chat/completions", `{"model":"gpt"}`, "x-ipp-selected-provider", picked)
		if err != nil || x.Provider.Name != want {
			t.Errorf("after %q: %v, %+v", picked, err, x.Provider)
		}
	}
}

func TestResolver(t *testing.T) {
	c := chain(t, World{Directory: table(), Cluster: "here"}, FieldToHeader, Resolver)
	x, err := request(t, c, "/v1/chat/completions", `{"model":"publishers/team/models/llama/8b"}`, "x-ipp-selected-provider", "forged", "x-gateway-model-name", "forged")
	if err != nil || x.Provider != nil || x.Body.String("model") != "llama/8b" || x.Headers.Get(exchange.ProviderHeader) != "" ||
		x.Headers.Get(exchange.ModelHeader) != "publishers/team/models/llama/8b" || !x.Reroute {
		t.Errorf("%v: %+v", err, x)
	}
	// The path says which model it is, whatever the body says.
	x, err = request(t, c, "/team/gpt/v1/chat/completions", `{"model":"off"}`)
	if err != nil || x.Provider == nil || x.Headers.Get(exchange.ModelHeader) != "gpt" {
		t.Errorf("%v: %+v", err, x)
	}
	x, err = request(t, c, "/team/llama/v1/chat/completions", `{"model":"gpt"}`, "x-gateway-model-name", "forged")
	if err != nil || x.Provider != nil || x.Headers.Get(exchange.ModelHeader) != "" {
		t.Errorf("%v: %+v", err, x)
	}
	for _, test := range []struct {
		body, origin string
		status       int
	}{{`{"model":"off"}`, "", http.StatusServiceUnavailable}, {`{"model":"gpt"}`, "here", http.StatusLoopDetected}} {
		_, err := request(t, c, "/v1/chat/completions", test.body, "x-origin-cluster", test.origin)
		if refusal, is := errors.AsType[*exchange.Refusal](err); !is || refusal.Status != test.status {
			t.Errorf("%s: %v", test.body, err)
		}
	}
	if x, err := request(t, c, "/v1/models", "", "x-gateway-model-name", "forged"); err != nil || x.Headers.Get(exchange.ModelHeader) != "" {
		t.Errorf("%v: %+v", err, x)
	}
}

func TestStreamUsage(t *testing.T) {
	c := chain(t, World{Directory: table()}, StreamUsage)
	for _, test := range []struct{ path, in, want string }{
		{"/v1/chat/completions", `{"stream":true}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		{"/v1/completions", `{"stream":true,"stream_options":null}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		{"/v1/chat/completions", `{"stream_options":{"x":1,"include_usage":false},"stream":true}`, `{"stream_options":{"include_usage":true,"x":1},"stream":true}`},
		{"/v1/chat/completions", `{"stream":false}`, `{"stream":false}`},
		{"/v1/messages", `{"stream":true}`, `{"stream":true}`},
		{"/v1/responses", `{"stream":true}`, `{"stream":true}`},
	} {
		x, err := request(t, c, test.path, test.in)
		if err != nil || string(x.Body.Bytes()) != test.want {
			t.Errorf("%s: %v, %s", test.in, err, x.Body.Bytes())
		}
	}
	if _, err := request(t, c, "/v1/chat/completions", `{"stream":true,"stream_options":[]}`); err == nil {
		t.Error("a list was taken for options")
	}
}

// TestKeys: each provider gets its key where it looks for it, and without one nobody is asked. No error holds a key.
func TestKeys(t *testing.T) {
	d := directory.New()
	put := func(kind, auth string, data map[string][]byte) {
		secret := directory.Key{Namespace: "team", Name: kind}
		if data != nil {
			d.PutSecret(secret, data)
		}
		d.PutProvider(secret, directory.ProviderSpec{Kind: kind, Endpoint: "x.test", Auth: directory.Auth{Type: auth, Secret: secret}})
		d.PutModel(secret, directory.ModelSpec{Refs: []directory.ProviderRef{{Provider: kind, TargetModel: "t", Format: "openai-chat", Path: "/p", Weight: 1}}})
	}
	key := map[string][]byte{"api-key": []byte(" s3cret\n")}
	for _, kind := range []string{"openai", "anthropic", "azure", "vertex", "aws-bedrock"} {
		put(kind, "apikey", key)
	}
	put("missing", "apikey", nil)
	put("empty", "apikey", map[string][]byte{"key": []byte("s3cret")})
	put("other", "password", key)
	c := chain(t, World{Directory: d}, HeadersGuard, Resolver, APITranslation, KeyInjection)
	for kind, want := range map[string]string{
		"openai": "authorization: Bearer s3cret", "anthropic": "x-api-key: s3cret", "azure": "api-key: s3cret",
		"vertex": "authorization: Bearer s3cret", "aws-bedrock": "authorization: Bearer s3cret",
	} {
		x, err := request(t, c, "/v1/chat/completions", `{"model":"`+kind+`"}`, "authorization", "Bearer client", "x-api-key", "client", "x-maas-group", "g")
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		name, value, _ := strings.Cut(want, ": ")
		if x.Headers.Get(name) != value || x.Headers.Get("x-maas-group") != "" || x.Headers.Get(":path") != "/p" || x.Body.String("model") != "t" {
			t.Errorf("%s: %+v", kind, x.Headers)
		}
		for _, other := range []string{"authorization", "x-api-key", "api-key"} {
			if other != name && x.Headers.Get(other) != "" {
				t.Errorf("%s: %s is %s", kind, other, x.Headers.Get(other))
			}
		}
	}
	for _, kind := range []string{"missing", "empty", "other"} {
		if _, err := request(t, c, "/v1/chat/completions", `{"model":"`+kind+`"}`); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestRefusedConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		"- type: body-field-to-header\n  parameters: {fieldName: ''}\n":    "line 4: plugin body-field-to-header",
		"- type: apikey-injection\n  parameters: {key: x}\n":               "line 4: plugin apikey-injection",
		"- type: model-provider-resolver\n  parameters: {hubMode: true}\n": "CLUSTER_NAME",
		"- type: maas-enforcement\n":                                       "line 4: plugin maas-enforcement: this process was started without",
	} {
		name := strings.TrimPrefix(strings.SplitN(text, "\n", 2)[0], "- type: ")
		pipeline, err := config.Parse([]byte("apiVersion: llm-d.ai/v1alpha1\nkind: PayloadProcessorConfig\nplugins:\n"+text+"profiles:\n- plugins: {request: [{pluginRef: "+name+"}]}\n"), Known)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Make(pipeline, World{Directory: directory.New()}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// says is an enforcer that always says the same.
type says enforcer.Decision

func (s says) Decide(context.Context, enforcer.Request) (enforcer.Decision, error) {
	return enforcer.Decision(s), nil
}

// TestTheRouteFollowsTheDecision: the headers by which routes to models are chosen name what was decided about, wherever in the
// list the decision is, and none for a request that is for no model.
func TestTheRouteFollowsTheDecision(t *testing.T) {
	forged := []string{exchange.ModelHeader, "off", exchange.ProviderHeader, "b"}
	for _, order := range [][]string{{Enforcement, Resolver}, {FieldToHeader, Enforcement, Resolver}, {Enforcement, FieldToHeader, Resolver}} {
		for _, c := range []struct {
			path, body      string
			noModel         bool
			model, provider string
		}{
			{"/v1/chat/completions", `{"model":"own"}`, false, "own", ""},
			{"/team/own/v1/chat/completions", `{"model":"off"}`, false, "", ""},
			{"/team/gpt/v1/chat/completions", `{"model":"off"}`, false, "gpt", "some"},
			{"/v1/api-keys", `{"model":"gpt"}`, true, "", ""},
			{"/maas-api/v1/api-keys", `{"model":"team/gpt"}`, true, "", ""},
		} {
			w := World{Directory: table(), Enforcer: says{NoModel: c.noModel}}
			x, err := request(t, chain(t, w, order...), c.path, c.body, forged...)
			if err != nil {
				t.Fatal(err)
			}
			provider := x.Headers.Get(exchange.ProviderHeader)
			if x.Headers.Get(exchange.ModelHeader) != c.model || (provider != "") != (c.provider != "") || (x.Provider != nil) != (c.provider != "") || !x.Reroute {
				t.Errorf("%v %s %s: model %q, provider %q, rerouted %v", order, c.path, c.body, x.Headers.Get(exchange.ModelHeader), provider, x.Reroute)
			}
		}
	}
	// Of a header that came twice none may stay, though the first value is right.
	x := exchange.New(http.Header{":path": {"/v1/chat/completions"}, exchange.ModelHeader: {"own", "off"}})
	x.Lead(exchange.ModelHeader, "own")
	if set, _ := x.Headers.Changes(); set[exchange.ModelHeader] != "own" || !x.Reroute {
		t.Errorf("set %v", set)
	}
}

// TestFormerModels: a model of the former kind is answered by its provider, in the API that the client speaks; one of the other
// kind with its name goes before it.
func TestFormerModels(t *testing.T) {
	d := table()
	secret := directory.Key{Namespace: "team", Name: "a"}
	d.PutSecret(secret, map[string][]byte{"api-key": []byte("k")})
	provider := directory.Provider{Name: "old", Kind: "openai", Endpoint: "old.test", TargetModel: "target", Weight: 1, Auth: directory.Auth{Type: "apikey", Secret: secret}}
	d.PutFormer(directory.Key{Namespace: "team", Name: "old"}, directory.Former{Provider: provider})
	d.PutFormer(directory.Key{Namespace: "team", Name: "gpt"}, directory.Former{Provider: provider})
	c := chain(t, World{Directory: d}, FieldToHeader, Resolver, APITranslation, KeyInjection)
	for path, want := range map[string]string{
		"/v1/chat/completions":          "/v1/chat/completions",
		"/team/old/v1/embeddings":       "/v1/embeddings",
		"/team/old/v1/messages":         "/v1/chat/completions",
		"/team/old/v1/chat/completions": "/v1/chat/completions",
	} {
		x, err := request(t, c, path, `{"model":"old","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if x.Headers.Get(":path") != want || x.Headers.Get(exchange.ModelHeader) != "old" || x.Body.String("model") != "target" || x.Headers.Get("authorization") != "Bearer k" {
			t.Errorf("%s: %s, model %s", path, x.Headers.Get(":path"), x.Body.String("model"))
		}
	}
	if m, _ := d.Model("gpt"); len(m.Providers) == 0 || m.Providers[0].Name == "old" {
		t.Errorf("%+v", m)
	}
	d.RemoveNamespace("team")
	for _, name := range []string{"old", "team/old", "gpt", "off"} {
		if _, has := d.Model(name); has {
			t.Errorf("%s is known of a namespace that is gone", name)
		}
	}
}
