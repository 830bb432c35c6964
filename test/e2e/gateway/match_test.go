// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Two services under their own hosts, and one below a path of a host that many share.
const testRoutes = `
- metadata: {name: iris}
  spec:
    hostnames: [iris.example.com]
    rules:
    - matches: [{path: {type: RegularExpression, value: '^/v1/models/[\w-]+:explain$'}}]
      backendRefs: [{name: explainer, port: 80}]
    - matches: [{path: {type: RegularExpression, value: '^/.*$'}}]
      filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: Who, value: iris}], remove: [Secret]}}]
      backendRefs: [{name: predictor, port: 80}]
    - matches: [{path: {type: RegularExpression, value: '^/.*$'}, headers: [{type: RegularExpression, name: content-type, value: ^application/grpc.*}]}]
      backendRefs: [{name: grpc, port: 81}]
- metadata: {name: below}
  spec:
    hostnames: [example.com]
    rules:
    - matches: [{path: {type: PathPrefix, value: /team}}]
      filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]
      backendRefs: [{name: team, port: 80}]
    - matches: [{path: {type: PathPrefix, value: /team/iris}}]
      filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]
      backendRefs: [{name: iris, port: 80}]
    - matches: [{path: {type: Exact, value: /team/iris/why}}]
      filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /explain}}}]
      backendRefs: [{name: why, port: 80}]
- metadata: {name: wild}
  spec:
    hostnames: ["*.example.com"]
    rules: [{backendRefs: [{name: wild, port: 80}]}]
`

func testTable(t *testing.T, text string) table {
	t.Helper()
	var routes []*gatewayv1.HTTPRoute
	if err := yaml.UnmarshalStrict([]byte(text), &routes); err != nil {
		t.Fatal(err)
	}
	all, err := newTable(routes)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestFind(t *testing.T) {
	routes := testTable(t, testRoutes)
	for asked, want := range map[string]struct{ backend, path string }{
		"iris.example.com/v1/models/iris:predict": {"predictor", "/v1/models/iris:predict"},
		"IRIS.example.com:8080/v2":                {"predictor", "/v2"},
		"iris.example.com/v1/models/iris:explain": {"explainer", "/v1/models/iris:explain"},
		"iris.example.com/grpc":                   {"grpc", "/grpc"},
		"example.com/team/iris/v1/models/iris":    {"iris", "/v1/models/iris"},
		"example.com/team/iris":                   {"iris", "/"},
		"example.com/team/irises":                 {"team", "/irises"},
		"example.com/team/iris/why":               {"why", "/explain"},
		"digits.example.com/anything":             {"wild", "/anything"},
		"example.com/other":                       {},
		"elsewhere.org/v1/models/iris:predict":    {},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://"+asked, nil)
		if r.URL.Path == "/grpc" {
			r.Header.Set("Content-Type", "application/grpc+proto")
		}
		e, found := routes.find(r)
		if !found {
			if want.backend != "" {
				t.Errorf("%s: no route", asked)
			}
			continue
		}
		e.alter(r)
		if got := string(e.rule.BackendRefs[0].Name); got != want.backend || r.URL.Path != want.path {
			t.Errorf("%s goes to %s as %s, want %+v", asked, got, r.URL.Path, want)
		}
	}
}

func TestHeaders(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "http://iris.example.com/", nil)
	r.Header = http.Header{"Who": {"somebody"}, "Secret": {"x"}, "Kept": {"y"}}
	e, _ := testTable(t, testRoutes).find(r)
	e.alter(r)
	if diff := cmp.Diff(http.Header{"Who": {"iris"}, "Kept": {"y"}}, r.Header); diff != "" {
		t.Error(diff)
	}
}

func TestChoose(t *testing.T) {
	var refs []gatewayv1.HTTPBackendRef
	if err := yaml.Unmarshal([]byte(`[{name: none, weight: 0}, {name: most, weight: 75}, {name: some, weight: 25}]`), &refs); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for range 10000 {
		ref, ok := choose(refs)
		if !ok {
			t.Fatal("there is a backend")
		}
		got[string(ref.Name)]++
	}
	if got["none"] != 0 || got["some"] < 2200 || got["some"] > 2800 {
		t.Errorf("drawn: %v", got)
	}
	if ref, ok := choose(refs[:1]); ok {
		t.Errorf("drawn without weight: %v", ref.Name)
	}
	if _, ok := choose([]gatewayv1.HTTPBackendRef{{}}); !ok {
		t.Error("a weight that is not given is one")
	}
}
