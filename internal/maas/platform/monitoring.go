// SPDX-License-Identifier: Apache-2.0

package platform

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/maas/gateways"
)

// monitoring plans what is measured, where somebody measures.
func (p *planner) monitoring() {
	if p.seen.HasMonitors {
		p.monitor(p.infra(apiName, "maas-api-metrics"), apiName)
		p.monitor(p.edge(processorName, "payload-processing-metrics"), processorName)
	}
	t := p.config.Spec.Telemetry
	if t == nil || !ptr.Deref(t.Enabled, true) {
		return
	}
	if p.seen.HasTelemetry && !p.builtIn {
		p.telemetry(t.Metrics)
	}
	if p.seen.Gateway.Flavour == gateways.Istio && p.seen.HasIstioTelemetry {
		p.latency()
	}
}

func (p *planner) monitor(meta metav1.ObjectMeta, app string) {
	labels := map[string]any{}
	for key, value := range p.selector(app) {
		labels[key] = value
	}
	p.add(2, gateways.Object(podMonitor, meta, map[string]any{
		"selector": map[string]any{"matchLabels": labels}, "podMetricsEndpoints": []any{map[string]any{"port": "metrics", "path": "/metrics"}},
	}))
}

// telemetry is what Kuadrant counts tokens by.
func (p *planner) telemetry(m *v1alpha1.TelemetryMetrics) {
	if m == nil {
		m = &v1alpha1.TelemetryMetrics{}
	}
	labels := map[string]any{"subscription": "auth.identity.selected_subscription", "cost_center": "auth.identity.subscription_info.costCenter"}
	for label, l := range map[string]struct {
		on         bool
		expression string
	}{
		"organization_id": {ptr.Deref(m.CaptureOrganization, true), "auth.identity.subscription_info.organizationId"},
		"user":            {ptr.Deref(m.CaptureUser, false), "auth.identity.userid"},
		"group":           {ptr.Deref(m.CaptureGroup, false), "auth.identity.groups_str"},
		"model":           {ptr.Deref(m.CaptureModelUsage, true), "responseBodyJSON(\"/model\")"},
	} {
		if l.on {
			labels[label] = l.expression
		}
	}
	p.add(2, gateways.Object(telemetryPolicy, p.edge(processorName, "maas-telemetry"), map[string]any{
		"targetRef": map[string]any{"group": gateways.Gateway.Group, "kind": gateways.Gateway.Kind, "name": p.seen.Gateway.Key.Name},
		"metrics":   map[string]any{"default": map[string]any{"labels": labels}},
	}))
}

// latency lets Istio tell subscriptions apart in how long requests take.
func (p *planner) latency() {
	p.add(2, gateways.Object(gateways.Telemetry, p.edge(processorName, "latency-per-subscription"), map[string]any{
		"targetRefs": []any{map[string]any{"group": gateways.Gateway.Group, "kind": gateways.Gateway.Kind, "name": p.seen.Gateway.Key.Name}},
		"metrics": []any{map[string]any{
			"providers": []any{map[string]any{"name": "prometheus"}},
			"overrides": []any{map[string]any{
				"match":        map[string]any{"metric": "REQUEST_DURATION", "mode": "CLIENT_AND_SERVER"},
				"tagOverrides": map[string]any{"subscription": map[string]any{"operation": "UPSERT", "value": "request.headers[\"x-maas-subscription\"] | \"none\""}},
			}},
		}},
	}))
}
