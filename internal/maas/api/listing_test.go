// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/maas/selection"
)

// light is a server for tests in which the database does not matter.
func light(t *testing.T) *server {
	t.Helper()
	return start(t, "sqlite://"+filepath.Join(t.TempDir(), "db"))
}

// TestModels: everybody sees the models that they get answers from, and no others.
func TestModels(t *testing.T) {
	s := light(t)
	r := s.as(ann, "GET", "/v1/models", "").is(s, 200, `"object":"list"`, `"id":"publishers/models/models/llama"`, `"owned_by":"models/llama"`, `"created":7`, `"url":"https://models.example"`,
		`"kind":"LLMInferenceService"`, `"ready":true`, `"modelDetails":{"displayName":"Llama","modelCapabilities":["chat"]}`, `"aliases":["llama"]`,
		`"subscriptions":[{"name":"free"},{"name":"gold","displayName":"Gold","description":"the best"}]`)
	if strings.Contains(r.text, "falcon") { // no auth policy opens it
		s.Error("a model is listed at which the caller is refused")
	}
	if r.header.Get("Cache-Control") != "no-store" || r.header.Get("X-Access-Checked-At") == "" {
		s.Errorf("the headers are %v", r.header)
	}
	s.as(ann, "GET", "/v1/models", "", "X-MaaS-Subscription: free").is(s, 200, `"subscriptions":[{"name":"free"}]`)
	s.as(ann, "GET", "/v1/models", "", "X-MaaS-Subscription: gold", "X-MaaS-Subscription: free", "X-MaaS-Subscription: ").is(s, 200, `"subscriptions":[{"name":"free"}]`)
	denied := s.as(ann, "GET", "/v1/models", "", "X-MaaS-Subscription: theirs").is(s, 403, `{"error":{"message":"`, `"type":"permission_error"`)
	if missing := s.as(ann, "GET", "/v1/models", "", "X-MaaS-Subscription: none").is(s, 403); missing.text != denied.text {
		s.Errorf("somebody else's is told from one that is not there: %s, %s", missing.text, denied.text)
	}
	s.as(ann, "GET", "/v1/models", "", "X-MaaS-Subscription: failed").is(s, 403, "permission_error", "Failed")
	s.call("GET", s.public+"/v1/models", "").is(s, 200, `{"object":"list","data":[]}`)
	s.as("nobody", "GET", "/v1/models", "").is(s, 401)
	s.as(broken, "GET", "/v1/models", "").is(s, 503, `"type":"server_error"`)

	_, key := s.make(ann, `{"name":"k","subscription":"free"}`)
	if r := s.as(key, "GET", "/v1/models", "", "X-MaaS-Subscription: gold").is(s, 200, `"subscriptions":[{"name":"free"}]`); strings.Contains(r.text, "gold") {
		s.Error("a key lists what is not its own subscription")
	}
	s.call("GET", s.public+"/v1/models", "", "X-Api-Key: "+key).is(s, 200, `"subscriptions":[{"name":"free"}]`)
	s.as(key[:len(key)-1], "GET", "/v1/models", "").is(s, 401, "key not found")
	_, pending := s.make(ann, `{"name":"k","subscription":"pending"}`)
	s.as(pending, "GET", "/v1/models", "").is(s, 403, "permission_error", "Pending")

	gateway := []string{"X-MaaS-Gateway-Token: " + gatewaySecret, "X-MaaS-Username: ann", `X-MaaS-Group: ["team"]`}
	s.call("GET", s.public+"/v1/models", "", gateway...).is(s, 401, `"type":"authentication_error"`)
	s.call("GET", s.public+"/v1/models", "", append(gateway, "Authorization: Bearer sk-oai-a_b")...).is(s, 403, "API key has no subscription bound")
}

func TestSubscriptions(t *testing.T) {
	s := light(t)
	r := s.as(ann, "GET", "/v1/subscriptions", "").is(s, 200)
	var list []map[string]any
	if err := json.Unmarshal([]byte(r.text), &list); err != nil || len(list) != 2 || list[0]["subscription_id_header"] != "gold" {
		s.Fatalf("it is %s (%v)", r.text, err)
	}
	r.is(s, 200, `"subscription_description":"the best"`, `"display_name":"Gold"`, `"priority":10`, `"model_refs":[{"name":"llama","model_name":"publishers/models/models/llama","display_name":"Llama","source":"internal","token_rate_limits":[{"limit":100,"window":"1m"}],"billing_rate":{"per_token":"0.001"}}]`,
		`"organization_id":"org"`, `"cost_center":"cc"`, `"labels":{"a":"b"}`)
	s.as(bob, "GET", "/v1/model/llama/subscriptions", "").is(s, 200, `[{"subscription_id_header":"free"`)
	s.as(ann, "GET", "/v1/model/falcon/subscriptions", "").is(s, 200, `[]`)
	s.as(ann, "GET", "/v1/model/none/subscriptions", "").is(s, 200, `[]`)
	s.call("GET", s.public+"/v1/subscriptions", "").is(s, 200, `[]`)
	s.call("GET", s.public+"/v1/model/llama/subscriptions", "").is(s, 200, `[]`)
	_, key := s.make(ann, `{"name":"k","subscription":"free"}`)
	if r := s.as(key, "GET", "/v1/subscriptions", "").is(s, 200, `"free"`); strings.Contains(r.text, "gold") {
		s.Error("a key lists subscriptions that it is not bound to")
	}
}

// TestSelect: every answer is 200, and says in its body what is wrong.
func TestSelect(t *testing.T) {
	s := light(t)
	for body, contains := range map[string]string{
		`{"username":"ann","groups":["team"],"requestedModel":"models/llama"}`:                                   `"name":"gold","namespace":"maas","displayName":"Gold","description":"the best","priority":10`,
		`{"username":"ann","groups":["team"],"requestedModel":"llama"}`:                                          `"accessAllowed":false,"phase":"Active","ready":true`,
		`{"username":"ann","groups":["system:authenticated"],"requestedModel":"publishers/models/models/llama"}`: `"resolvedModel":"models/llama","accessAllowed":true,"phase":"Active"`,
		`{"username":"ann","groups":["team"],"requestedSubscription":"going"}`:                                   `"deletionTimestamp":"1970-01-01T00:00:01Z"`,
		`{}`:       `"accessAllowed":false,"phase":"","error":"bad_request","message":"`,
		`nonsense`: `"error":"bad_request"`,
		`{"username":"dora","requestedModel":"llama"}`:                                                              `"error":"not_found"`,
		`{"username":"ann","groups":["team"],"requestedSubscription":"theirs"}`:                                     `"error":"access_denied"`,
		`{"username":"ann","groups":["team"],"requestedSubscription":"gold","requestedModel":"x"}`:                  `"error":"model_not_in_subscription"`,
		`{"username":"ann","groups":["team"],"requestedSubscription":"failed","requestedModel":"llama"}`:            `"error":"model_unhealthy"`,
		`{"groups":["` + strings.Repeat(`g","`, maxGroups+1) + `g"],"requestedModel":"llama"}`:                      `"error":"bad_request"`,
		`{"username":"'; DROP TABLE x","groups":["%"],"requestedSubscription":"../../x","requestedModel":"\u0000"}`: `"error":"not_found"`,
	} {
		s.inside("POST", "/internal/v1/subscriptions/select", body).is(s, 200, contains)
	}
	s.api.Index.PutSubscription(&selection.Subscription{Namespace: "maas", Name: "gold2", Priority: 10, Groups: []string{"team"}, Phase: selection.Active, Models: []selection.SubscribedModel{{Model: llama}}})
	s.inside("POST", "/internal/v1/subscriptions/select", `{"groups":["team"],"requestedModel":"llama"}`).is(s, 200, `"error":"multiple_subscriptions"`)
	s.api.Synced = func() bool { return false }
	s.inside("POST", "/internal/v1/subscriptions/select", `{"groups":["team"],"requestedModel":"llama"}`).is(s, 200, `"error":"internal_error"`)
	s.call("GET", s.public+"/readyz", "").is(s, 503, "not read yet")
}

// TestForgedHeaders: nobody becomes somebody else by saying so.
func TestForgedHeaders(t *testing.T) {
	s := light(t)
	forged := []string{"X-MaaS-Username: root", `X-MaaS-Group: ["admins","team"]`}
	s.call("POST", s.public+"/v1/api-keys", `{"name":"a"}`, forged...).is(s, 401)
	s.call("GET", s.public+"/v1/subscriptions", "", forged...).is(s, 200, `[]`)
	s.call("POST", s.public+"/v1/api-keys", `{"name":"a"}`, append(forged, "X-MaaS-Gateway-Token: guess")...).is(s, 401)
	s.call("POST", s.public+"/v1/api-keys", `{"name":"a"}`, append(forged, "X-MaaS-Gateway-Token: ")...).is(s, 401)
	r := s.as(bob, "POST", "/v1/api-keys", `{"name":"a"}`, forged...).is(s, 201)
	s.validate(r.get("key")).is(s, 200, `"username":"bob"`)
	s.as(bob, "POST", "/v1/api-keys/search", `{"filters":{"username":"ann"}}`, forged...).is(s, 403)

	// What the gateway says is believed.
	as := func(headers ...string) []string {
		return append(headers, "X-MaaS-Gateway-Token: "+gatewaySecret)
	}
	r = s.call("POST", s.public+"/v1/api-keys", `{"name":"a"}`, as("X-MaaS-Username: carl", `X-MaaS-Group: ["/realm/team","team"]`)...).is(s, 201, `"subscription":"gold"`)
	s.validate(r.get("key")).is(s, 200, `"username":"carl"`, `"groups":["/realm/team","team"]`)
	s.call("POST", s.public+"/v1/api-keys", `{"name":"a"}`, as("X-MaaS-Username: carl", `X-MaaS-Group: [x team]`)...).is(s, 201)
	s.call("POST", s.public+"/v1/api-keys", `{"name":"a"}`, as("X-MaaS-Username: carl", `X-MaaS-Group: ["a b"]`)...).is(s, 400, "group")
	for ref, headers := range map[string][]string{"001": {`X-MaaS-Group: ["team"]`}, "002": {"X-MaaS-Username: carl"}, "003": {"X-MaaS-Username: carl", "X-MaaS-Group: {"}} {
		for _, path := range []string{"/v1/api-keys/config", "/v1/subscriptions"} {
			s.call("GET", s.public+path, "", as(headers...)...).is(s, 500, `{"error":"Exception thrown while generating token","exceptionCode":"AUTH_FAILURE","refId":"`+ref+`"}`)
		}
	}
	s.call("GET", s.public+"/v1/subscriptions", "", as()...).is(s, 200, `[]`)
}

// TestInternalIsClosed: internal routes are not served where everybody comes, however they are called, and not to everybody where
// they are.
func TestInternalIsClosed(t *testing.T) {
	s := light(t)
	for _, path := range []string{"/internal/v1/api-keys/validate", "/internal/v1/api-keys/cleanup", "/internal/v1/subscriptions/select", "//internal/v1/api-keys/validate", "/v1/../internal/v1/api-keys/validate", "/%69nternal/v1/api-keys/validate", "/maas-api/internal/v1/api-keys/validate"} {
		if r := s.as(admin, "POST", path, `{}`); r.code != 404 {
			s.Errorf("%s answers %d %s", path, r.code, r.text)
		}
	}
	if r := s.as(admin, "DELETE", "/internal/v1/tenants/acme/api-keys", ""); r.code != 404 {
		s.Errorf("it answers %d", r.code)
	}
	for token, code := range map[string]int{"": 401, "nobody": 401, ann: 403, admin: 403, broken: 503, "sk-oai-a_b": 401, "gateway-account": 200} {
		s.call("POST", s.internal+"/internal/v1/api-keys/validate", `{"key":"x"}`, "Authorization: Bearer "+token).is(s, code)
	}
	s.call("POST", s.internal+"/internal/v1/api-keys/validate", `{"key":"x"}`, "X-MaaS-Gateway-Token: "+gatewaySecret).is(s, 401)
	s.inside("GET", "/v1/api-keys/config", "").is(s, 404)
	s.inside("POST", "/internal/v1/api-keys/validate", `{}`).is(s, 400, `{"error":"key is required"}`)
	if r := s.inside("POST", "/internal/v1/api-keys/validate", `{"key":"sk-oai-abc_SECRET`); strings.Contains(r.text, "SECRET") {
		s.Errorf("a key is repeated: %s", r.text)
	}
	s.validate("x").is(s, 200, `{"valid":false,"tenant":"acme","reason":"invalid key format"}`)
	s.validate("sk-oai-a_b").is(s, 200, `{"valid":false,"tenant":"acme","reason":"key not found"}`)
}

// TestLargeBodies: a body of a MiB is read, and one byte more is 413 on every route that reads one.
func TestLargeBodies(t *testing.T) {
	s := light(t)
	fits, over := `{"a":"`+strings.Repeat("x", maxBody-8)+`"}`, `{"a":"`+strings.Repeat("x", maxBody-7)+`"}`
	for _, path := range []string{"/v1/api-keys", "/v1/api-keys/search", "/v1/api-keys/bulk-revoke"} {
		s.as(ann, "POST", path, over).is(s, 413, `{"error":"`)
		if r := s.as(ann, "POST", path, fits); r.code == 413 {
			s.Errorf("%s answers %d", path, r.code)
		}
	}
	for _, path := range []string{"/internal/v1/api-keys/validate", "/internal/v1/subscriptions/select"} {
		s.inside("POST", path, over).is(s, 413)
		if r := s.inside("POST", path, fits); r.code == 413 {
			s.Errorf("%s answers %d", path, r.code)
		}
	}
}

// TestAround: what every request passes.
func TestAround(t *testing.T) {
	s := light(t)
	s.call("GET", s.public+"/health", "").is(s, 200, `{"status":"healthy"}`)
	s.call("GET", s.public+"/livez", "").is(s, 200)
	s.call("GET", s.public+"/readyz", "").is(s, 200, `{"status":"healthy"}`)
	if id := s.call("GET", s.public+"/health", "", "X-Request-ID: my-id.1").header.Get("X-Request-Id"); id != "my-id.1" {
		s.Errorf("the id is %q", id)
	}
	if id := s.call("GET", s.public+"/health", "", "X-Request-ID: <script>").header.Get("X-Request-Id"); len(id) != 36 {
		s.Errorf("the id is %q", id)
	}
	for _, path := range []string{"/", "/v1/api-keys", "/anything/else"} {
		r := s.call("OPTIONS", s.public+path, "", "Origin: http://localhost:3000").is(s, 204)
		if r.header.Get("Access-Control-Allow-Origin") != "" {
			s.Error("pages elsewhere may call")
		}
	}
	s.api.Debug = true
	if got := s.call("OPTIONS", s.public+"/v1/models", "", "Origin: http://localhost:3000").header.Get("Access-Control-Allow-Origin"); got != "http://localhost:3000" {
		s.Errorf("a page of this machine gets %q", got)
	}
	if got := s.call("OPTIONS", s.public+"/v1/models", "", "Origin: http://evil.example").header.Get("Access-Control-Allow-Origin"); got != "" {
		s.Errorf("a page elsewhere gets %q", got)
	}
	s.call("PUT", s.public+"/v1/models", "").is(s, 405)
	s.call("GET", s.public+"/nowhere", "").is(s, 404)
	s.call("GET", s.public+"/v1/tenants", "").is(s, 401, `"error":"`, `"details":"`)
	s.api.Store = nil
	s.as(ann, "GET", "/v1/api-keys/x", "").is(s, 500, "under request")
	s.call("GET", s.public+"/livez", "").is(s, 200)
}

// TestOpenAPI: the description names every route, and every field by which something is asked or answered.
func TestOpenAPI(t *testing.T) {
	s := light(t)
	r := s.call("GET", s.public+"/openapi.json", "").is(s, 200, `"openapi":"3.0.3"`)
	paths, _ := r.fields["paths"].(map[string]any)
	for _, route := range publicRoutes() {
		at, _ := paths[route.path].(map[string]any)
		if at[strings.ToLower(route.method)] == nil {
			s.Errorf("%s %s is missing", route.method, route.path)
		}
	}
	if strings.Contains(r.text, "/internal/") {
		s.Error("internal routes are described to everybody")
	}
	text, err := json.Marshal(document(internalRoutes()))
	if err != nil {
		s.Fatal(err)
	}
	r.text += string(text)
	for _, field := range []string{"labelsContain", "next_cursor", "ephemeral_max_expiration", "subscription_id_header", "requestedModel", "accessAllowed", "keyPrefix", "expiresIn"} {
		if !strings.Contains(r.text, fmt.Sprintf("%q", field)) {
			s.Errorf("%s is missing", field)
		}
	}
	var document struct {
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal([]byte(r.text[:strings.LastIndex(r.text, string(text))]), &document); err != nil {
		s.Fatal(err)
	}
	for _, part := range strings.Split(r.text, "#/components/schemas/")[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if document.Components.Schemas[name] == nil && !strings.Contains(string(text), `"`+name+`":{`) {
			s.Errorf("schema %s is not there", name)
		}
	}
}
