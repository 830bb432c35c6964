// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelplane/modelplane/internal/config"
)

// meshGateway is Istio's name for callers inside the mesh.
const meshGateway = "mesh"

// explainBelow is explainPath behind some other path; the part in brackets is what remains of it.
const explainBelow = `(/v1/models/[\w-]+:explain)$`

// istio makes the VirtualService of one service. The few fields that are needed are written as they are on the wire,
// so that Istio's own types need not be linked in.
type istio struct {
	k          KnativeService
	cfg        *config.Config
	external   string // host
	internal   bool
	additional []string // hosts
}

func virtualService(k KnativeService, cfg *config.Config) (*unstructured.Unstructured, error) {
	external, err := k.externalHost()
	if err != nil {
		return nil, err
	}
	external, _, _ = strings.Cut(external, ":") // a port is no part of what Istio takes for a host
	v := istio{k: k, cfg: cfg, external: external, internal: k.internal(external)}
	if !v.internal {
		v.additional, _ = k.additionalHosts(external, cfg)
	}
	path := ""
	if cfg.Ingress.PathTemplate != "" && !v.internal {
		if path, err = pathFor(k.Name, k.Namespace, cfg); err != nil {
			return nil, err
		}
	}
	out := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.istio.io/v1beta1",
		"kind":       "VirtualService",
		"spec":       map[string]any{"hosts": v.hosts(path != ""), "gateways": v.gateways(), "http": v.routes(path)},
	}}
	out.SetName(k.Name)
	out.SetNamespace(k.Namespace)
	if len(k.Labels) > 0 {
		out.SetLabels(maps.Clone(k.Labels))
	}
	if annotations := cfg.FilterAnnotations(k.Annotations); len(annotations) > 0 {
		out.SetAnnotations(annotations)
	}
	return out, nil
}

func (v istio) hosts(byPath bool) []any {
	hosts := []any{v.k.clusterHost()}
	add := func(host string) {
		if !slices.Contains(hosts, any(host)) {
			hosts = append(hosts, host)
		}
	}
	if !v.internal {
		add(v.external)
	}
	if byPath {
		add(v.cfg.Ingress.IngressDomain)
	}
	for _, host := range v.additional {
		add(host)
	}
	return hosts
}

func (v istio) gateways() []any {
	gateways := []any{v.cfg.Ingress.LocalGateway, meshGateway}
	if !v.internal {
		gateways = append(gateways, v.cfg.Ingress.IngressGateway)
	}
	return gateways
}

// routes are tried in their order: explanations by host, everything else by host, then the same by path.
func (v istio) routes(path string) []any {
	var routes []any
	explainer := v.k.Explainer
	if explainer != nil && explainer.URL == "" {
		explainer = nil
	}
	if explainer != nil {
		routes = append(routes, v.route(explainer.Name, v.byHost(map[string]any{"regex": explainPath}), nil))
	}
	top := v.k.top()
	routes = append(routes, v.route(top.Name, v.byHost(nil), nil))
	if path == "" {
		return routes
	}
	if explainer != nil {
		pattern := regexp.QuoteMeta(path) + explainBelow
		routes = append(routes, v.route(explainer.Name, v.byPath(map[string]any{"regex": pattern}),
			map[string]any{"uriRegexRewrite": map[string]any{"match": pattern, "rewrite": `\1`}}))
	}
	return append(routes, v.route(top.Name, v.byPath(map[string]any{"prefix": path + "/"}, map[string]any{"exact": path}),
		map[string]any{"uri": "/"}))
}

// route leads to Knative's local gateway, which finds the component by its cluster host.
func (v istio) route(component string, match []any, rewrite map[string]any) map[string]any {
	route := map[string]any{
		"match": match,
		"route": []any{map[string]any{
			"destination": map[string]any{
				"host": v.cfg.Ingress.KnativeLocalGatewayService,
				"port": map[string]any{"number": int64(httpPort)},
			},
			"weight": int64(100),
		}},
		"headers": map[string]any{"request": map[string]any{"set": map[string]any{
			"Host":          serviceHost(component, v.k.Namespace, v.k.ClusterDomain),
			headerName:      v.k.Name,
			headerNamespace: v.k.Namespace,
		}}},
	}
	if rewrite != nil {
		route["rewrite"] = rewrite
	}
	return route
}

// byHost matches the cluster host from inside and, unless the service is internal, the other hosts from outside.
func (v istio) byHost(uri map[string]any) []any {
	match := func(host string, gateways ...any) map[string]any {
		m := map[string]any{
			"authority": map[string]any{"regex": hostPattern(host, v.k.ClusterDomain)},
			"gateways":  gateways,
		}
		if uri != nil {
			m["uri"] = maps.Clone(uri)
		}
		return m
	}
	matches := []any{match(v.k.clusterHost(), v.cfg.Ingress.LocalGateway, meshGateway)}
	if v.internal {
		return matches
	}
	for _, host := range append([]string{v.external}, v.additional...) {
		matches = append(matches, match(host, v.cfg.Ingress.IngressGateway))
	}
	return matches
}

// byPath matches the host that all services share, from outside.
func (v istio) byPath(uris ...map[string]any) []any {
	var matches []any
	for _, uri := range uris {
		matches = append(matches, map[string]any{
			"uri":       uri,
			"authority": map[string]any{"regex": hostPattern(v.cfg.Ingress.IngressDomain, v.k.ClusterDomain)},
			"gateways":  []any{v.cfg.Ingress.IngressGateway},
		})
	}
	return matches
}

// hostPattern matches a host with or without a port, and a host inside the cluster also in its shorter forms.
func hostPattern(host, domain string) string {
	const port = `(?::\d{1,5})?`
	domain = clusterDomain(domain)
	short, local := strings.CutSuffix(host, ".svc."+domain)
	if !local {
		return "^" + regexp.QuoteMeta(host) + port + "$"
	}
	return "^" + regexp.QuoteMeta(short) + `(\.svc(` + regexp.QuoteMeta("."+domain) + `)?)?` + port + "$"
}
