// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"github.com/modelplane/modelplane/internal/maas/gateways"
)

// routeBase is the name of the route to maas-api.
const routeBase = "maas-api-route"

// offered are the paths of maas-api that people may ask for. Whatever is not in this list is not reached through a gateway:
// neither what gateways and jobs ask, nor the list of tenants.
var offered = []string{"/v1/models", "/v1/subscriptions", "/v1/api-keys", "/v1/model", "/v1/usage"}

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

// route leads people to maas-api.
func (p *planner) route() {
	gateway := p.seen.Gateway.Key
	p.add(2, gateways.Object(gateways.HTTPRoute, p.infra(apiName, routeBase), map[string]any{
		"parentRefs": []any{map[string]any{"group": gateways.Gateway.Group, "kind": gateways.Gateway.Kind, "namespace": gateway.Namespace, "name": gateway.Name}},
		"rules":      p.rules(),
	}))
	p.verified(p.infra(apiName, apiName).Namespace, apiName, "maas-api-backend-tls", apiPort, p.seen.API)
}
