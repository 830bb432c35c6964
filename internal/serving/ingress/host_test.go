// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/internal/config"
)

func TestNotAHost(t *testing.T) {
	long := strings.Repeat("a", 63)
	tests := map[string]string{
		"iris.example.com":                          "",
		long + ".example.com":                       "",
		"":                                          "it is empty",
		"iris":                                      "it has no dot",
		long + "a.example.com":                      "64 characters, and 63 are allowed between dots",
		strings.Repeat(long+".", 4) + "com":         "it has 259 characters, and 253 are allowed",
		"Iris.example.com":                          `"Iris" is not made of lower-case letters`,
		"iris_v1.example.com":                       `"iris_v1" is not made of`,
		"iris..example.com":                         `"" is not made of`,
		"iris.example.com.":                         `"" is not made of`,
		"iris-.example.com":                         `"iris-" is not made of`,
		"iris.<no value>.example.com":               "an annotation or label that the template uses is missing",
		"iris.example.com/path":                     `"com/path" is not made of`,
		"*.example.com":                             `"*" is not made of`,
		"iris.example.com:8080":                     `"com:8080" is not made of`,
		"iris.flowers.svc.cluster.local":            "",
		"0iris.1example.2com":                       "",
		"iris." + strings.Repeat("b", 64) + ".test": "64 characters",
	}
	for host, want := range tests {
		t.Run(host, func(t *testing.T) {
			if got := notAHost(host); (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestPathFor(t *testing.T) {
	tests := map[string]string{
		"/serving/{{ .Namespace }}/{{ .Name }}":  "/serving/flowers/iris",
		"/serving/{{ .Namespace }}/{{ .Name }}/": "/serving/flowers/iris",
		"/{{ .Name }}":                           "/iris",
		"/v1.0/~{{ .Name }}@here":                "/v1.0/~iris@here",
		"{{ .Name }}":                            "",
		"":                                       "",
		"/":                                      "",
		"//":                                     "",
		"//evil.example.com/{{ .Name }}":         "",
		"/a//{{ .Name }}":                        "",
		"/a/./{{ .Name }}":                       "",
		"/a/../{{ .Name }}":                      "",
		"/{{ .Name }}/..":                        "",
		"/{{ .Name }}?x=y":                       "",
		"/{{ .Name }}#x":                         "",
		"/{{ .Name }} x":                         "",
		"/{{ .Name }}%2fx":                       "",
		"/[{{ .Name }}]":                         "",
		"/{{ .Labels }}":                         "",
		"/{{ .Name":                              "",
	}
	for template, want := range tests {
		t.Run(template, func(t *testing.T) {
			cfg := config.Default()
			cfg.Ingress.PathTemplate = template
			got, err := pathFor("iris", "flowers", cfg)
			if got != want || (err == nil) != (want != "") {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
			if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("ingress.pathTemplate %q", template)) {
				t.Errorf("the error does not name the setting: %v", err)
			}
		})
	}
}

// TestTemplatesAreBounded proves that changing templates for ever does not fill the memory.
func TestTemplatesAreBounded(t *testing.T) {
	for i := range 10 * maxTemplates {
		if got, err := render(fmt.Sprintf("%d-{{ .Name }}", i), pathData{Name: "iris"}); err != nil || got != fmt.Sprintf("%d-iris", i) {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	templates.Lock()
	defer templates.Unlock()
	if len(templates.parsed) > maxTemplates {
		t.Errorf("%d templates are kept", len(templates.parsed))
	}
}

// TestSharedHostIsNotTaken proves for every golden case that the host which all services share is only ever asked for
// below a service's own path.
func TestSharedHostIsNotTaken(t *testing.T) {
	cases, err := filepath.Glob(filepath.Join("testdata", "standard", "gateway-*", "in.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	routes := 0
	for _, path := range cases {
		in, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c := readStandard(t, in)
		objects, err := Objects(c.Service, c.config())
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, obj := range objects {
			route := obj.(*gatewayv1.HTTPRoute)
			for _, host := range route.Spec.Hostnames {
				if string(host) == c.Ingress.IngressDomain {
					routes++
					below(t, route, c)
				}
			}
		}
	}
	if routes == 0 {
		t.Error("no case has a route for the shared host")
	}
}

func below(t *testing.T, route *gatewayv1.HTTPRoute, c standardCase) {
	t.Helper()
	prefix, err := pathFor(c.Service.Name, c.Service.Namespace, c.config())
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range route.Spec.Rules {
		for _, match := range rule.Matches {
			kind, value := *match.Path.Type, *match.Path.Value
			ok := kind == gatewayv1.PathMatchPathPrefix && value == prefix ||
				kind == gatewayv1.PathMatchExact && strings.HasPrefix(value, prefix+"/")
			if !ok {
				t.Errorf("%s takes %s %q of the shared host; its own path is %q", Key(route), kind, value, prefix)
			}
		}
		if len(rule.Matches) == 0 {
			t.Errorf("%s has a rule that takes everything", Key(route))
		}
	}
}

// TestManyHosts: a service with many hosts gets as many routes as these take, each of which the API server takes, and beyond a
// thousand says what is left out.
func TestManyHosts(t *testing.T) {
	cfg := config.Default()
	cfg.Ingress.EnableGatewayAPI, cfg.Ingress.KServeIngressGateway, cfg.Ingress.IngressDomain = true, "a/b", "models.test"
	s := Service{Name: "iris", Namespace: "team", Predictor: Backend{Service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "iris-predictor"}}}}
	for _, c := range []struct{ domains, hosts, routes, ignored int }{{0, 1, 1, 0}, {15, 16, 1, 0}, {16, 17, 2, 0}, {99, 100, 7, 0}, {999, 1000, 63, 0}, {1200, 1000, 63, 1}} {
		cfg.Ingress.AdditionalIngressDomains = nil
		for i := range c.domains {
			cfg.Ingress.AdditionalIngressDomains = append(cfg.Ingress.AdditionalIngressDomains, fmt.Sprintf("d%d.test", i))
		}
		objects, err := Objects(s, cfg)
		if err != nil {
			t.Fatal(err)
		}
		hosts, names := map[gatewayv1.Hostname]bool{}, []string{}
		for _, o := range objects {
			route := o.(*gatewayv1.HTTPRoute)
			names = append(names, route.Name)
			if route.Name == "iris-predictor" {
				continue
			}
			if n := len(route.Spec.Hostnames); n < 1 || n > 16 {
				t.Errorf("%d domains: %s has %d hosts", c.domains, route.Name, n)
			}
			for _, host := range route.Spec.Hostnames {
				hosts[host] = true
			}
		}
		wanted := RouteNames(s, cfg)
		slices.Sort(names)
		slices.Sort(wanted)
		if len(hosts) != c.hosts || len(names) != c.routes+1 || !slices.Equal(names, wanted) || len(Ignored(s, cfg)) != c.ignored {
			t.Errorf("%d domains: %d hosts, routes %v, names %v, ignored %v", c.domains, len(hosts), names, wanted, Ignored(s, cfg))
		}
		if led := HostsOf(objects, "iris-predictor"); len(led) != c.hosts+1 {
			t.Errorf("%d domains: %d hosts lead to the predictor", c.domains, len(led))
		}
	}
}
