// SPDX-License-Identifier: Apache-2.0

package kuadrant

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
)

// language is what Kuadrant evaluates expressions with.
func language(t testing.TB) *cel.Env {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("request", cel.DynType), cel.Variable("auth", cel.DynType), ext.Strings())
	if err != nil {
		t.Fatal(err)
	}
	return env
}

func program(t testing.TB, env *cel.Env, expression string) cel.Program {
	t.Helper()
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	p, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// full is a policy with everything in it.
func full() Auth {
	return Auth{
		Namespace: "openshift-ingress", Gateway: "door", Name: "maas-gateway-auth", API: "https://maas-api", Pass: "a-pass", Audience: "kubernetes", KeyHeader: true,
		OIDC: &v1alpha1.OIDCConfig{IssuerURL: "https://id", ClientID: "maas"}, MetadataTTL: 60, AuthorizationTTL: 60,
	}
}

// TestExpressionsCompile: each of them is one, in all policies.
func TestExpressionsCompile(t *testing.T) {
	env := language(t)
	policies := []any{full().Policy().Object, Auth{}.Policy().Object, Deny("a", "b", "c").Object, Limits{Grants: []Grant{{Name: "a"}, {Name: "b"}}}.Policy().Object}
	found := 0
	var walk func(value any)
	walk = func(value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, inner := range v {
				if text, ok := inner.(string); ok && (key == "expression" || key == "predicate") {
					program(t, env, text)
					found++
				}
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	for _, p := range policies {
		walk(p)
	}
	if found < 60 {
		t.Errorf("only %d expressions were found", found)
	}
}

// TestNoKeyIsRemembered: nothing is kept by a key.
func TestNoKeyIsRemembered(t *testing.T) {
	rules, _ := json.Marshal(full().Policy().Object)
	for _, part := range strings.Split(string(rules), `"cache":`)[1:] {
		key, _, _ := strings.Cut(part, `"ttl"`)
		if strings.Contains(key, "substring") || strings.Contains(key, `request.headers[\"x-api-key\"])`) {
			t.Errorf("an answer is kept by the key: %s", key)
		}
	}
}

// TestAsksWithAPass: whoever asks the tenant's service shows a pass, which is not in the policy itself.
func TestAsksWithAPass(t *testing.T) {
	metadata, _, err := unstructured.NestedMap(full().Policy().Object, "spec", "defaults", "rules", "metadata")
	if err != nil || len(metadata) != 2 {
		t.Fatalf("%d questions: %v", len(metadata), err)
	}
	for name, rule := range metadata {
		asked, _ := rule.(map[string]any)["http"].(map[string]any)
		want := map[string]any{
			"sharedSecretRef": map[string]any{"name": "a-pass", "key": "pass"},
			"credentials":     map[string]any{"customHeader": map[string]any{"name": "X-MaaS-Pass"}},
		}
		for field, value := range want {
			if diff := cmp.Diff(value, asked[field]); diff != "" {
				t.Errorf("%s: %s: %s", name, field, diff)
			}
		}
	}
}

type values = map[string]any

// plainly writes a value without the types of the language.
func plainly(value any) string {
	switch v := value.(type) {
	case []any:
		words := make([]string, 0, len(v))
		for _, item := range v {
			words = append(words, plainly(item))
		}
		return fmt.Sprint(words)
	case []ref.Val:
		words := make([]string, 0, len(v))
		for _, item := range v {
			words = append(words, plainly(item.Value()))
		}
		return fmt.Sprint(words)
	}
	return fmt.Sprint(value)
}

// TestWhoAsks: what the gateway makes of requests.
func TestWhoAsks(t *testing.T) {
	a, env := full(), language(t)
	key := values{"valid": true, "username": "ann", "userId": "uuid", "groups": []any{"gold"}, "subscription": "gold", "keyId": "1", "keyName": "laptop"}
	for name, c := range map[string]struct {
		path    string
		headers values
		auth    values
		want    map[string]string
	}{
		"a key": {
			path: "/llm/llama/v1/chat/completions", headers: values{"authorization": "Bearer sk-oai-a_b"},
			auth: values{"identity": "Bearer sk-oai-a_b", "metadata": values{"apiKeyValidation": key}},
			want: map[string]string{a.isKey(): "true", a.rawKey(): "sk-oai-a_b", a.username(): "ann", a.userID(): "uuid", a.groups(): "[gold]", a.subscription(): "gold",
				modelAvailable: "true", modelIdentity: "llm/llama", asJSON(a.groups()): `["gold"]`},
		},
		"a key in the other header": {
			path: "/v1/messages", headers: values{"x-api-key": "sk-oai-c_d", "x-gateway-model-name": "claude"},
			auth: values{"identity": "sk-oai-c_d", "metadata": values{"apiKeyValidation": key}},
			want: map[string]string{a.isKey(): "true", a.rawKey(): "sk-oai-c_d", headerKey: "true", modelIdentity: "claude", modelAvailable: "true"},
		},
		"a key that nobody could check": {
			path: "/v1/models", headers: values{"authorization": "Bearer sk-oai-a_b"}, auth: values{"identity": "x", "metadata": values{}},
			want: map[string]string{a.username(): "", a.groups(): "[]", a.subscription(): "", asJSON(a.groups()): "[]", modelAvailable: "false", modelIdentity: ""},
		},
		"a token of Kubernetes": {
			path: "/maas-api/v1/api-keys", headers: values{"authorization": "Bearer a.b.c", "x-maas-subscription": "gold"},
			auth: values{"identity": values{"user": values{"username": "system:serviceaccount:a:b", "groups": []any{"system:authenticated", "gold"}}}, "metadata": values{}},
			want: map[string]string{a.isKey(): "false", bearerJWT: "true", a.username(): "system:serviceaccount:a:b", a.groups(): "[gold system:authenticated]",
				a.subscription(): "gold", a.fromOIDC(): "false", modelAvailable: "false"},
		},
		"a token of the identity provider": {
			path: "/llm/llama", headers: values{"authorization": "Bearer a.b.c"},
			auth: values{"identity": values{"iss": "https://id", "preferred_username": "ann", "sub": "7", "azp": "maas"}, "metadata": values{}},
			want: map[string]string{a.username(): "ann", a.groups(): "[system:authenticated]", a.fromOIDC(): "true", a.madeOutFor("maas"): "true", a.madeOutFor("other"): "false"},
		},
		"a token without azp": {
			path: "/", headers: values{"authorization": "Bearer a.b.c"}, auth: values{"identity": values{"iss": "https://id", "sub": "7", "aud": []any{"account", "maas"}}, "metadata": values{}},
			want: map[string]string{a.username(): "7", a.madeOutFor("maas"): "true", a.madeOutFor("other"): "false"},
		},
		"a provider's token that looks like the cluster's": {
			path: "/", headers: values{"authorization": "Bearer a.b.c"},
			auth: values{"identity": values{"iss": "https://id", "sub": "7", "user": values{"username": "system:admin", "groups": []any{"system:masters"}}}, "metadata": values{}},
			want: map[string]string{a.username(): "7", a.groups(): "[system:authenticated]", a.fromOIDC(): "true"},
		},
		"a token for nobody": {
			path: "/", headers: values{}, auth: values{"identity": values{"iss": "https://id"}, "metadata": values{}},
			want: map[string]string{a.madeOutFor("maas"): "false", a.isKey(): "false", bearerJWT: "false"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for expression := range c.want {
				out, _, err := program(t, env, expression).Eval(values{"request": values{"url_path": c.path, "headers": c.headers, "method": "POST"}, "auth": c.auth})
				if err != nil {
					t.Fatalf("%s: %v", expression, err)
				}
				got[expression] = plainly(out.Value())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// predicates of a rule of a policy.
func predicates(t testing.TB, policy *unstructured.Unstructured, path ...string) []string {
	t.Helper()
	list, found, err := unstructured.NestedSlice(policy.Object, path...)
	if err != nil || !found {
		t.Fatalf("%v: %v", path, err)
	}
	var out []string
	for _, item := range list {
		out = append(out, item.(map[string]any)["predicate"].(string))
	}
	return out
}

// holds tells whether all predicates do.
func holds(t testing.TB, env *cel.Env, in values, all []string) bool {
	t.Helper()
	for _, p := range all {
		out, _, err := program(t, env, p).Eval(in)
		if err != nil || out.Value() != true {
			return false // a rule that fails refuses
		}
	}
	return true
}

// TestNamesOfTheCluster: an identity provider gives nobody a name or a group that only Kubernetes gives.
func TestNamesOfTheCluster(t *testing.T) {
	env := language(t)
	rule := predicates(t, full().Policy(), "spec", "defaults", "rules", "authorization", "oidc-names-safe", "patternMatching", "patterns")
	for name, c := range map[string]struct {
		identity values
		want     bool
	}{
		"anybody":              {values{"iss": "i", "preferred_username": "ann", "groups": []any{"gold", "my-system:x"}}, true},
		"without groups":       {values{"iss": "i", "sub": "7"}, true},
		"a group of the API":   {values{"iss": "i", "preferred_username": "ann", "groups": []any{"gold", "system:masters"}}, false},
		"in capitals":          {values{"iss": "i", "preferred_username": "ann", "groups": []any{"System:Masters"}}, false},
		"of a component":       {values{"iss": "i", "preferred_username": "ann", "groups": []any{"kube:admin"}}, false},
		"a name of the API":    {values{"iss": "i", "preferred_username": "system:admin"}, false},
		"a subject of the API": {values{"iss": "i", "sub": "kube:admin"}, false},
		"nobody":               {values{"iss": "i"}, false},
		"groups that are one":  {values{"iss": "i", "sub": "7", "groups": "system:masters"}, false},
		"a number for a group": {values{"iss": "i", "sub": "7", "groups": []any{int64(7)}}, false},
	} {
		in := values{"request": values{"headers": values{}}, "auth": values{"identity": c.identity, "metadata": values{}}}
		if got := holds(t, env, in, rule); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestDeniedByDefault: what the tenant's API serves to people costs no tokens, and everything else is denied where no route says otherwise.
func TestDeniedByDefault(t *testing.T) {
	env := language(t)
	denied := predicates(t, Deny("a", "b", "c"), "spec", "defaults", "limits", "deny-all-by-default", "when")
	for path, want := range map[string]bool{
		"/maas-api/v1/api-keys": false, "/maas-api/health": false, "/v1/models": false, "/v1/subscriptions": false, "/v1/api-keys": false, "/v1/api-keys/search": false,
		"/v1/model/gpt/subscriptions": false, "/v1/usage": false, "/v1/usage/export": false,
		"/v1/chat/completions": true, "/llm/gpt/v1/models": true, "/v1/usages": true, "/v1/modelling": true, "/v1/models-of-others": true, "/maas-apis": true, "/": true, "/v1": true,
	} {
		if got := holds(t, env, values{"request": values{"url_path": path}}, denied); got != want {
			t.Errorf("%s: denied is %v", path, got)
		}
	}
}
