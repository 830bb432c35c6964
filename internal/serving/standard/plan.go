// SPDX-License-Identifier: Apache-2.0

// Package standard runs the components of an InferenceService on Deployments: the Deployments themselves, with the
// Services and autoscalers beside them, the routes that lead there, and what all that says in the status.
//
// It is pure, and takes components as they were resolved: it looks at no runtime and no model.
package standard

import (
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/resolve"
	"github.com/modelplane/modelplane/internal/serving/status"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// planner decides about one service.
type planner struct {
	isvc  *v1beta1.InferenceService
	seen  *observed.State
	cfg   *config.Config
	parts *resolve.Components
	judge status.Judge
	plan  engine.Plan
}

func newPlanner(isvc *v1beta1.InferenceService, seen *observed.State, parts *resolve.Components, begun engine.Plan) *planner {
	return &planner{isvc: isvc, seen: seen, cfg: seen.Config, parts: parts, plan: begun,
		judge: status.Judge{Isvc: isvc, Seen: seen, Parts: parts}}
}

// Plan goes on with a plan that was begun with what a service needs in every mode.
func Plan(isvc *v1beta1.InferenceService, seen *observed.State, parts *resolve.Components, begun engine.Plan) engine.Plan {
	p := newPlanner(isvc, seen, parts, begun)
	p.relieve()
	p.activate()
	front := p.front()
	for _, c := range append(parts.List(), parts.Canaries...) {
		if c.Failed != nil {
			p.leave(c.Name, workload.HPA)
			continue
		}
		p.lead(c, front)
		p.addWorkload(c)
	}
	for _, route := range front.objects {
		p.add(engine.Child{Object: route, Unmanaged: front.keep})
	}
	p.keepDraining(front)
	told := p.status(front)
	p.plan.Status = told
	p.plan.Events = append(p.plan.Events, p.judge.Events(told, p.plan.Problem)...)
	return p.plan
}

// Workloads adds what runs, reaches and scales components, without routes: for a service whose predictor is elsewhere.
func Workloads(isvc *v1beta1.InferenceService, seen *observed.State, parts *resolve.Components, begun engine.Plan) engine.Plan {
	p := newPlanner(isvc, seen, parts, begun)
	for _, c := range parts.List() {
		p.addWorkload(c)
	}
	return p.plan
}

// Addresses are where the components of Workloads answer inside the cluster, from when they are ready for the first time.
func Addresses(isvc *v1beta1.InferenceService, seen *observed.State, parts *resolve.Components, cs kube.Conditions) map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec {
	p := newPlanner(isvc, seen, parts, engine.Plan{})
	out := map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec{}
	for _, c := range parts.List() {
		if isvc.Status.Components[c.Component].URL == nil && !cs.IsTrue(status.ReadyConditions[c.Component]) {
			continue
		}
		urls, err := ingress.URLs(ingress.Service{Name: isvc.Name, Namespace: isvc.Namespace, Predictor: p.backend(c)}, p.cfg)
		if err == nil { // else no host can be made as the platform wants it
			out[c.Component] = v1beta1.ComponentStatusSpec{URL: &urls.Address}
		}
	}
	return out
}

func (p *planner) add(child engine.Child) { p.plan.Children = append(p.plan.Children, child) }

// relieve takes the pods of canaries that work off the stable predictor, which
// always keeps one.
func (p *planner) relieve() {
	stable := p.parts.Predictor
	if stable.Scale.MinReplicas == nil {
		return
	}
	least := *stable.Scale.MinReplicas
	for _, c := range p.parts.Canaries {
		if p.seen.Available(c.Name) {
			least -= ptr.Deref(c.Replicas, 0)
		}
	}
	if least = max(least, 1); least < *stable.Scale.MinReplicas {
		stable.Scale.MinReplicas = &least
	}
}

// addWorkload adds what runs, reaches and scales one component.
func (p *planner) addWorkload(c *resolve.Component) {
	deployment := engine.Child{Object: workload.Deployment(c.Part, p.cfg)}
	c.Mark(deployment.Object)
	if workload.InitialReplicas(c.Part) && !p.strandedAtZero(c) {
		deployment.Initial = []string{"spec.replicas"}
	}
	p.add(deployment)
	p.addActivation(c)
	// A Service that is in the way is left out, and so removed; we are woken when it is gone.
	if service := workload.Service(c.Part, p.cfg); !workload.Irreconcilable(p.seen.Services[c.Name], service) {
		p.add(engine.Child{Object: service})
	}
	if c.Part.Worker != nil {
		p.add(engine.Child{Object: workload.WorkerDeployment(c.Part, p.cfg)})
		for _, service := range workload.MultiNodeServices(c.Part) {
			p.add(engine.Child{Object: service})
		}
	}
	for _, scaler := range workload.Autoscaler(c.Part, p.cfg) {
		if p.served(scaler) && !p.tooEarly(scaler) {
			p.add(engine.Child{Object: scaler})
		}
	}
}

// tooEarly holds a ScaledObject back while our own HPA still scales the same
// Deployment: KEDA refuses it. The HPA is not in the plan, and we are woken when
// it is gone.
func (p *planner) tooEarly(scaler client.Object) bool {
	return scaler.GetObjectKind().GroupVersionKind() == observed.ScaledObject && p.seen.HPAs[scaler.GetName()]
}

// served tells whether the cluster knows the kind of an autoscaler, and
// complains if not: the rest of the service need not wait for it.
func (p *planner) served(scaler client.Object) bool {
	gvk := scaler.GetObjectKind().GroupVersionKind()
	if gvk != observed.ScaledObject && gvk != observed.OTelCollector || p.seen.Has(gvk) {
		return true
	}
	p.plan.Problem = engine.WaitFor(gvk.Kind+"Missing",
		"The service is to be scaled by a %s, but the cluster does not serve %s. Install it (nothing needs a restart), or change the annotation %s.",
		gvk.Kind, gvk.GroupVersion(), v1beta1.AnnotationAutoscalerClass)
	return false
}
