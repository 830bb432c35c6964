// SPDX-License-Identifier: Apache-2.0

package standard

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/activation"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/resolve"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// activate decides which components are scaled by their traffic. One that is no longer to be scaled so, or whose platform has
// switched the activator off, goes on until it has pods that answer; then its Service selects these again, and the activator
// stays behind it, too, until Kubernetes has done so.
func (p *planner) activate() {
	for _, c := range p.parts.List() {
		if !p.off() {
			c.Activation = workload.Activate(c.Part)
		}
		if c.Activation == nil && c.Worker == nil && (p.seen.Led(c.Name) || p.seen.Leaves(c.Name)) {
			if answers := p.seen.Available(c.Name); !answers || !p.seen.Fronted(c.Name) {
				c.Leaving, c.Activation = answers, leaving(c)
			}
		}
		if c.Activation != nil {
			c.Activation.Key = activation.KeyOf(p.isvc.UID, c.Name)
		}
	}
}

// off tells that the platform runs no activator, or is about to end it.
func (p *planner) off() bool { return p.cfg.Autoscaler.Activator == "" }

// lead decides whether requests for a component go through the activator: when the Service of its pods is there, with all
// that the activator has to know. By then it has heard of it as we have, and no request comes too early.
func (p *planner) lead(c *resolve.Component, front *frontDoor) {
	if c.Activation == nil {
		return
	}
	hosts := ingress.HostsOf(front.objects, c.Name)
	if left := c.Activation.Fit(hosts, p.addressOf(c)); left > 0 && !p.cfg.Ingress.EnableGatewayAPI { // a Gateway says it by a header
		front.ignored = append(front.ignored, fmt.Sprintf("Requests for %d hosts of the %s are not answered, because the activator can be told only of those until %q. "+
			"Remove domains from ingress.additionalIngressDomains in inferenceservice-config, or set ingress.enableGatewayApi.", left, c.Component, hosts[len(hosts)-left-1]))
	}
	known := p.seen.Services[activation.PodsService(c.Name)]
	c.Led = !c.Leaving && known != nil && (p.seen.Led(c.Name) || known.Annotations[activation.Annotation] == c.Activation.Encode())
}

// leaving brings the pods that the next autoscaler begins with.
func leaving(c *resolve.Component) *activation.Settings {
	least := max(ptr.Deref(c.Scale.MinReplicas, 1), 1)
	return &activation.Settings{Metric: activation.Concurrency, Target: 100, Min: least, Max: max(c.Scale.MaxReplicas, least)}
}

// addressOf is that of the Service of a component, by which requests come, too; empty while it has none.
func (p *planner) addressOf(c *resolve.Component) string {
	if s := p.seen.Services[c.Name]; s != nil && s.Spec.ClusterIP != corev1.ClusterIPNone {
		return s.Spec.ClusterIP
	}
	return ""
}

// addActivation adds what the activator knows a component by, and what leads requests there.
func (p *planner) addActivation(c *resolve.Component) {
	if c.Activation == nil {
		return
	}
	p.add(engine.Child{Object: workload.PodsService(c.Part)})
	if !c.Led && !c.Leaving {
		return
	}
	if p.off() && len(p.seen.Activators) == 0 { // its replicas may end more slowly than what told of them
		p.leaveActivators(c.Name)
		return
	}
	for _, slice := range workload.ActivatorSlices(c.Part, workload.Service(c.Part, p.cfg), p.seen.Activators) {
		p.add(engine.Child{Object: slice})
	}
}

// noActivator says why nobody takes requests for a component that goes through the activator.
func (p *planner) noActivator() string {
	if p.off() {
		return "The activator was switched off. Requests reach the service when its pods are ready."
	}
	return "Requests go through the activator, of which no replica is ready. Look at the pods of Service " +
		p.cfg.Autoscaler.Activator + " in namespace " + p.seen.ConfigNamespace + "."
}

// strandedAtZero tells that a component was scaled to zero and now has nobody who would surely bring its pods back: other
// autoscalers leave alone what has none.
func (p *planner) strandedAtZero(c *resolve.Component) bool {
	d := p.seen.Deployments[c.Name]
	return (c.Activation == nil || p.off()) && p.seen.Led(c.Name) && d != nil && d.Spec.Replicas != nil && *d.Spec.Replicas == 0
}

// ignoredZero says which components keep a pod although they need not.
func (p *planner) ignoredZero() []string {
	var out []string
	for _, c := range p.parts.List() {
		if c.Activation != nil && !p.off() || c.Scale.MinReplicas == nil || *c.Scale.MinReplicas > 0 || workload.Class(c.Annotations) != workload.ClassHPA || c.Worker != nil {
			continue
		}
		next := "Remove scaleMetric and autoScaling, and the annotation " + v1beta1.AnnotationAutoscalerClass + ", to scale it by its traffic."
		if p.cfg.Autoscaler.Activator == "" {
			next = "Let the platform run the activator (docs/scale-to-zero.md), which can."
		}
		out = append(out, "The "+string(c.Component)+" keeps one pod in spite of minReplicas: 0, because an HPA cannot do without. "+next)
	}
	return out
}
