// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/naming"
)

// routeBase is the name of the route to maas-api.
const routeBase = "maas-api-route"

// offered are the paths of maas-api that people may ask for.
var offered = naming.OfferedPaths()

// prefix is before paths that older clients ask for.
const prefix = "/maas-api"

// routeRule is one rule of the route.
func (p *planner) routeRule(path, becomes string) map[string]any {
	rule := map[string]any{
		"matches":     []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": path}}},
		"backendRefs": []any{map[string]any{"name": p.name(apiName), "port": int64(apiPort)}},
	}
	if becomes != path {
		rule["filters"] = []any{map[string]any{"type": "URLRewrite", "urlRewrite": map[string]any{
			"path": map[string]any{"type": "ReplacePrefixMatch", "replacePrefixMatch": becomes}}}}
	}
	return rule
}

// rules of the route, in an order that the wiring of the payload processor counts on.
func (p *planner) rules() []any {
	var out []any
	for _, path := range offered {
		out = append(out, p.routeRule(path, path))
	}
	for _, path := range offered {
		out = append(out, p.routeRule(prefix+path, path))
	}
	return append(out, p.routeRule(prefix+"/health", "/health"))
}

// parents of every route are the tenant's gateways alone.
func (p *planner) parents() []any {
	var out []any
	for _, at := range p.seen.all() {
		out = append(out, map[string]any{"group": gateways.Gateway.Group, "kind": gateways.Gateway.Kind, "namespace": at.Key.Namespace, "name": at.Key.Name})
	}
	return out
}

// route leads people to maas-api.
func (p *planner) route() {
	p.add(2, gateways.Object(gateways.HTTPRoute, p.infra(apiName, routeBase), map[string]any{"parentRefs": p.parents(), "rules": p.rules()}))
	p.verified(p.infra(apiName, apiName).Namespace, apiName, "maas-api-backend-tls", apiPort, p.seen.API)
}

// unnamedBase is the name of the route for requests whose path names no model.
const unnamedBase = "maas-model-route"

// noModel is a path that maas-api does not have.
const noModel = "/no-such-model"

// unnamed takes every request that no other route takes. Envoy Gateway shows only requests with a route to the processor, which
// finds the model in the body and has the route chosen anew. What has none then either is told so by maas-api, which is asked
// for nothing that the client says.
func (p *planner) unnamed() {
	rule := p.routeRule("/", "/")
	rule["filters"] = []any{map[string]any{"type": "URLRewrite", "urlRewrite": map[string]any{
		"path": map[string]any{"type": "ReplaceFullPath", "replaceFullPath": noModel}}}}
	p.add(2, gateways.Object(gateways.HTTPRoute, p.infra(processorName, unnamedBase), map[string]any{
		"parentRefs": p.parents(), "rules": []any{rule},
	}))
}
