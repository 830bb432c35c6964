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
		Namespace: "openshift-ingress", Gateway: "door", Name: "maas-gateway-auth", API: "https://maas-api", Audience: "kubernetes", KeyHeader: true,
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
