// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/gateways"
)

// verified makes gateways speak TLS to a service and look at its certificate.
func (p *planner) verified(namespace, app, base string, port int, c Certificate) {
	istio, other := p.flavours()
	if istio {
		p.verifiedByIstio(namespace, app, base, port, c)
	}
	if !other {
		return
	}
	service := p.name(app)
	meta := p.edge(app, base)
	meta.Namespace = namespace
	ca := caName(service)
	if app == preProcessorName {
		ca = caName(p.name(processorName))
	}
	p.add(2, gateways.Object(gateways.BackendTLSPolicy, meta, map[string]any{
		"targetRefs": []any{map[string]any{"group": "", "kind": "Service", "name": service}},
		"validation": map[string]any{"hostname": p.certified(namespace, app), "caCertificateRefs": []any{map[string]any{"group": "", "kind": "ConfigMap", "name": ca}}},
	}))
}

// verifiedByIstio does it for Istio, whose gateways read what they trust from a Secret beside them.
func (p *planner) verifiedByIstio(namespace, app, base string, port int, c Certificate) {
	host := fmt.Sprintf("%s.%s.svc.cluster.local", p.name(app), namespace)
	meta := p.edge(app, app)
	meta.Name = caName(meta.Name)
	p.add(0, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"cacert": c.Pair.Roots, caKey: c.Pair.Roots}})
	p.add(2, gateways.Object(gateways.DestinationRule, p.edge(app, base), map[string]any{
		"host": host,
		"trafficPolicy": map[string]any{"portLevelSettings": []any{map[string]any{
			"port": map[string]any{"number": int64(port)},
			"tls":  map[string]any{"mode": "SIMPLE", "credentialName": meta.Name, "sni": host, "subjectAltNames": []any{p.certified(namespace, app)}},
		}}},
	}))
}

// flavours tells whether gateways of the tenant are Istio's, and whether some are not.
func (p *planner) flavours() (istio, other bool) {
	for _, at := range p.seen.all() {
		istio, other = istio || at.Flavour == gateways.Istio, other || at.Flavour != gateways.Istio
	}
	return istio, other
}

// certified is the name that the certificate of a service is good for. Both stages of the processor have the same.
func (p *planner) certified(namespace, app string) string {
	if app == preProcessorName {
		app = processorName
	}
	return fmt.Sprintf("%s.%s.svc.cluster.local", p.name(app), namespace)
}

// wiring puts the payload processor into the proxies of the gateways. A request that it could not look at is refused.
func (p *planner) wiring() {
	var envoys []string
	for _, at := range p.seen.all() {
		switch {
		case at.Flavour == gateways.EnvoyGateway:
			envoys = append(envoys, at.Key.Name)
		case at.Flavour == gateways.Istio:
			p.envoyFilter(at.Key)
		case !p.builtIn:
			p.warnings = append(p.warnings, warning{reason: "PrerequisitesWarning",
				message: fmt.Sprintf("Nothing is known of the implementation of Gateway %s, so that the payload processor is not wired into it. Use Envoy Gateway or Istio.", at.Key)})
		}
	}
	if len(envoys) > 0 {
		p.extensionPolicies(envoys)
	}
}

// unwired is the problem of a gateway at which nobody would check requests.
func (p *planner) unwired() *engine.Problem {
	if !p.builtIn || p.seen.Gateway.Flavour != gateways.Other {
		return nil
	}
	return engine.WaitFor("GatewayNotReady", "Nothing is known of the implementation of Gateway %s, so that the payload processor is not wired into it and requests for models are not checked. Use a Gateway of Envoy Gateway or Istio, or install Kuadrant.", p.seen.Gateway.Key)
}

// processingTime bounds how long the processor may take for one message.
const processingTime = "60s"

// extensionPolicies are for Envoy Gateway: one for its gateways, and one that takes the route of maas-api out, which checks its
// callers itself.
func (p *planner) extensionPolicies(names []string) {
	target := func(kind string, names ...string) (out []any) {
		for _, name := range names {
			out = append(out, map[string]any{"group": gateways.Gateway.Group, "kind": kind, "name": name})
		}
		return out
	}
	slices.Sort(names) // one that comes or goes leaves the others where they are
	body := map[string]any{"body": "FullDuplexStreamed"}
	meta := p.edge(processorName, processorName)
	var stages []any
	if !p.builtIn {
		stages = append(stages, p.stageOf(preProcessorName, map[string]any{"request": body}))
	}
	stages = append(stages, p.stageOf(processorName, map[string]any{"request": body, "response": body, "allowModeOverride": true}))
	p.add(2, gateways.Object(gateways.EnvoyExtensionPolicy, meta, map[string]any{
		"targetRefs": target("Gateway", names...), "extProc": stages,
	}))
	if p.builtIn {
		p.add(2, gateways.Object(gateways.EnvoyExtensionPolicy, p.infra(processorName, routeBase), map[string]any{
			"targetRefs": target("HTTPRoute", p.name(routeBase)),
		}))
	}
	p.unnamed()
}

func (p *planner) stageOf(app string, mode map[string]any) map[string]any {
	return map[string]any{
		"backendRefs":    []any{map[string]any{"name": p.name(app), "port": int64(processorPort)}},
		"failOpen":       false,
		"messageTimeout": processingTime,
		"processingMode": mode,
	}
}

// Names of the filters of the two stages, and of those that they stand around.
const (
	filterPre      = "envoy.filters.http.ext_proc.ipp-pre"
	filterPost     = "envoy.filters.http.ext_proc.ipp"
	filterWasm     = "envoy.filters.http.wasm"
	filterRouter   = "envoy.filters.http.router"
	filterPriority = 10
)

// envoyFilter is for Istio. Where Kuadrant checks requests, the stages stand before and after its filter, by both names that it
// is known by; where the processor does, it stands before the router.
func (p *planner) envoyFilter(gateway client.ObjectKey) {
	var patches []any
	if p.builtIn {
		patches = append(patches, p.filterPatch(filterRouter, "INSERT_BEFORE", filterPost, processorName, true))
	} else {
		plugin := fmt.Sprintf("extensions.istio.io/wasmplugin/%s.kuadrant-%s", gateway.Namespace, gateway.Name)
		for _, anchor := range []string{plugin, filterWasm} {
			patches = append(patches,
				p.filterPatch(anchor, "INSERT_BEFORE", filterPre, preProcessorName, false),
				p.filterPatch(anchor, "INSERT_AFTER", filterPost, processorName, true))
		}
	}
	for i := range p.rules() {
		patches = append(patches, p.withoutProcessing(i))
	}
	meta := p.edge(processorName, processorName)
	meta.Name += p.seen.Suffixes[gateway]
	p.add(2, gateways.Object(gateways.EnvoyFilter, meta, map[string]any{
		"priority":         int64(filterPriority),
		"workloadSelector": map[string]any{"labels": map[string]any{"gateway.networking.k8s.io/gateway-name": gateway.Name}},
		"configPatches":    patches,
	}))
}

// filterPatch inserts a stage beside another filter.
func (p *planner) filterPatch(anchor, operation, filter, app string, answers bool) map[string]any {
	mode := map[string]any{"request_header_mode": "SEND", "request_body_mode": "FULL_DUPLEX_STREAMED", "request_trailer_mode": "SEND", "response_header_mode": "SKIP", "response_body_mode": "NONE", "response_trailer_mode": "SKIP"}
	if answers {
		mode["response_header_mode"], mode["response_body_mode"], mode["response_trailer_mode"] = "SEND", "FULL_DUPLEX_STREAMED", "SEND"
	}
	cluster := fmt.Sprintf("outbound|%d||%s.%s.svc.cluster.local", processorPort, p.name(app), p.GatewayNamespace)
	return map[string]any{
		"applyTo": "HTTP_FILTER",
		"match": map[string]any{"context": "GATEWAY", "listener": map[string]any{"filterChain": map[string]any{"filter": map[string]any{
			"name": "envoy.filters.network.http_connection_manager", "subFilter": map[string]any{"name": anchor}}}}},
		"patch": map[string]any{"operation": operation, "value": map[string]any{"name": filter, "typed_config": map[string]any{
			"@type":               "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
			"failure_mode_allow":  false,
			"mutation_rules":      map[string]any{"allow_all_routing": true},
			"allow_mode_override": answers,
			"message_timeout":     processingTime,
			"grpc_service":        map[string]any{"envoy_grpc": map[string]any{"cluster_name": cluster}, "timeout": "300s"},
			"processing_mode":     mode,
		}}},
	}
}

// withoutProcessing takes one rule of the route of maas-api out of both stages.
func (p *planner) withoutProcessing(index int) map[string]any {
	off := map[string]any{"@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute", "disabled": true}
	filters := map[string]any{filterPost: off}
	if !p.builtIn {
		filters[filterPre] = off
	}
	return map[string]any{
		"applyTo": "HTTP_ROUTE",
		"match": map[string]any{"context": "GATEWAY", "routeConfiguration": map[string]any{"vhost": map[string]any{"route": map[string]any{
			"name": fmt.Sprintf("%s.%s.%d", p.InfraNamespace, p.name(routeBase), index)}}}},
		"patch": map[string]any{"operation": "MERGE", "value": map[string]any{"typed_per_filter_config": filters}},
	}
}
