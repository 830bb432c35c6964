// SPDX-License-Identifier: Apache-2.0

package payload_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/modelplane/modelplane/internal/maas/payload"
	"github.com/modelplane/modelplane/internal/maas/payload/directory"
)

// The two stages around another filter, as a gateway with Kuadrant has them.
const (
	stageBefore = `apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- type: body-field-to-header
  name: model-extractor
  parameters: {fieldName: model, headerName: X-Gateway-Model-Name}
- type: model-provider-resolver
profiles:
- name: default
  plugins:
    request:
    - pluginRef: model-extractor
    - pluginRef: model-provider-resolver
`
	stageAfter = `apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- type: maas-headers-guard
- type: stream-usage-enforcer
- type: model-provider-resolver
- type: api-translation
- type: apikey-injection
profiles:
- name: default
  plugins:
    request:
    - pluginRef: maas-headers-guard
    - pluginRef: stream-usage-enforcer
    - pluginRef: model-provider-resolver
    - pluginRef: api-translation
    - pluginRef: apikey-injection
    response: []
`
)

// TestTwoStages: in a gateway with both stages a request is led to the provider that it is signed in at, always.
func TestTwoStages(t *testing.T) {
	table := models()
	table.PutSecret(directory.Key{Namespace: "team", Name: "other"}, map[string][]byte{"api-key": []byte("of-other")})
	table.PutProvider(directory.Key{Namespace: "team", Name: "other"}, directory.ProviderSpec{Kind: "openai", Endpoint: "api.other.test",
		Auth: directory.Auth{Type: "apikey", Secret: directory.Key{Namespace: "team", Name: "other"}}})
	table.PutModel(directory.Key{Namespace: "team", Name: "shared"}, directory.ModelSpec{Refs: []directory.ProviderRef{
		{Provider: "openai", TargetModel: "a", Format: "openai-chat", Path: "/a", Weight: 1},
		{Provider: "other", TargetModel: "b", Format: "openai-chat", Path: "/b", Weight: 1},
	}})
	with := func(o *payload.Options) { o.World.Directory = table }
	check := func(name, key, host string) (http.HandlerFunc, func() int) {
		var mu sync.Mutex
		count := 0
		return func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.Header.Get("Authorization") != "Bearer "+key || r.Host != host {
					t.Errorf("%s got a request for %s with %s", name, r.Host, r.Header.Get("X-Ipp-Selected-Provider"))
				}
				mu.Lock()
				count++
				mu.Unlock()
				fmt.Fprint(w, `{}`)
			}, func() int {
				mu.Lock()
				defer mu.Unlock()
				return count
			}
	}
	first, firstCount := check("openai", secretKey, "api.openai.test")
	second, secondCount := check("other", "of-other", "api.other.test")
	one, two := backend(t, first), backend(t, second)
	g := gateway{
		stages:   []processor{startProcessor(t, stageBefore, with), startProcessor(t, stageAfter, with)},
		external: one, own: one, externalByName: map[string]int{"openai": one, "other": two}, body: "FULL_DUPLEX_STREAMED",
	}
	url := g.start(t)
	const requests = 40
	for range requests {
		if status, text := post(t, url+"/v1/chat/completions", `{"model":"shared","messages":[]}`, "X-Ipp-Selected-Provider", "anthropic"); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	if firstCount()+secondCount() != requests || firstCount() == 0 || secondCount() == 0 {
		t.Errorf("%d and %d requests", firstCount(), secondCount())
	}
}

// TestBounded: many long prompts at once are answered, and those that there is no room for are told so at once.
func TestBounded(t *testing.T) {
	own := backend(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	const prompt, room = 220 << 10, 8
	stage := startProcessor(t, plainConfig(), func(o *payload.Options) { o.Bounds.Held = room * prompt })
	url := gateway{stages: []processor{stage}, external: own, own: own, body: "FULL_DUPLEX_STREAMED"}.start(t)
	body := `{"model":"llama","messages":[{"role":"user","content":"` + strings.Repeat("x", prompt) + `"}]}`
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for range 100 {
		all.Go(func() {
			status, text := post(t, url+"/v1/chat/completions", body)
			if status == http.StatusOK && text != fmt.Sprint(len(body)) {
				t.Errorf("%s of %d bytes arrived", text, len(body))
			}
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	all.Wait()
	if statuses[http.StatusOK] == 0 || statuses[http.StatusOK]+statuses[http.StatusServiceUnavailable] != 100 {
		t.Errorf("statuses are %v", statuses)
	}
	// Nothing is left of those that were refused.
	for range 20 {
		if status, text := post(t, url+"/v1/chat/completions", body); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
}
