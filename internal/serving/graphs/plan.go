// SPDX-License-Identifier: Apache-2.0

package graphs

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/knative"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// planner decides about one graph.
type planner struct {
	graph *v1alpha1.InferenceGraph
	seen  *Seen
	// uncertified is why the router has no certificate yet.
	uncertified *engine.Problem
	// rest recognises the router but for its program; empty where that is not ours.
	rest string
}

// Plan implements engine.Kind.
func (graphs) Plan(graph *v1alpha1.InferenceGraph, seen Seen) engine.Plan {
	p := &planner{graph: graph, seen: &seen}
	if stopped(graph) {
		return engine.Plan{Status: p.stoppedStatus()}
	}
	if seen.ConfigProblem != nil {
		return p.heldByConfig()
	}
	if problem := p.refusal(); problem != nil {
		return p.hold(problem, nil)
	}
	if problem := p.unprotected(); problem != nil && (problem.Reason != reasonNoCertificate || p.live() != nil) {
		return p.hold(problem, nil)
	} else if problem != nil {
		p.uncertified = problem
	}
	targets := p.targets()
	for _, t := range targets {
		if t.url == "" {
			return p.hold(firstProblem(targets), targets)
		}
	}
	pod, err := p.pod(p.resolved(targets))
	if err != nil {
		return p.hold(engine.MustChange("InvalidGraph", "The graph cannot be encoded for the router: %s. Correct the spec.", err.Error()), nil)
	}
	if seen.Mode == config.ModeKnative {
		return p.knative(pod, targets)
	}
	return p.standard(pod, targets)
}

// refusal is why the graph cannot run in its mode.
func (p *planner) refusal() *engine.Problem {
	metric := ptr.Deref(p.graph.Spec.ScaleMetric, v1beta1.MetricCPU)
	switch {
	case p.seen.Mode == config.ModeModelMesh:
		return engine.MustChange("DeploymentModeUnsupported", "A graph cannot run in the mode %s. Set the annotation %s to Standard or Knative.",
			p.seen.Mode, v1beta1.AnnotationDeploymentMode)
	case p.seen.Mode == config.ModeKnative && !p.seen.HasKnative:
		instead := "set"
		if p.graph.Status.DeploymentMode != "" {
			instead = "make the graph anew with"
		}
		return engine.WaitFor("ServerlessModeRejected",
			"The graph is to run in Knative mode, but the cluster does not serve %s. Install Knative Serving, or %s the annotation %s: Standard.",
			knativeService.GroupVersion(), instead, v1beta1.AnnotationDeploymentMode)
	case p.seen.Mode == config.ModeStandard && (metric == v1beta1.MetricConcurrency || metric == v1beta1.MetricRPS):
		return engine.MustChange("ScaleMetricUnsupported", "spec.scaleMetric is %s, which only Knative measures. Set it to cpu or memory.", metric)
	}
	return nil
}

// hold leaves what runs alone and says what is in the way: a problem of the
// graph itself if there are no targets, else the first of theirs.
func (p *planner) hold(problem *engine.Problem, targets []*target) engine.Plan {
	s := p.newStatus()
	s.URL = p.graph.Status.URL
	s.DeploymentMode = p.graph.Status.DeploymentMode // a mode in which nothing ever ran may still be changed
	own := kube.Condition{Status: metav1.ConditionTrue}
	if len(targets) == 0 {
		own = kube.Condition{Status: metav1.ConditionFalse, Reason: problem.Reason, Message: problem.Message}
	}
	p.conclude(s, targets, own, nil)
	return engine.Plan{KeepChildren: true, Status: s, Problem: problem}
}

// heldByConfig is the plan while a part of the configuration is not known: it was
// wrong already when we started. A router goes on as it is, and says so.
func (p *planner) heldByConfig() engine.Plan {
	problem := engine.WaitFor(reasonInvalidConfig, "%s", p.doubt())
	if p.live() == nil {
		return p.hold(problem, nil)
	}
	targets := p.targets()
	var router kube.Condition
	var said kube.Conditions
	if p.seen.Mode == config.ModeKnative {
		var now v1beta1.ComponentStatusSpec
		now, said = knative.Status(p.seen.Knative, v1beta1.ComponentStatusSpec{URL: p.graph.Status.URL}, nil)
		router = p.serverless(said, now)
	} else {
		router = p.standing()
	}
	status := p.status(targets, router, said, ptr.Deref(p.graph.Status.URL, ""))
	return engine.Plan{KeepChildren: true, Status: status, Events: []engine.Event{{Warning: true, Reason: problem.Reason, Message: problem.Message}}}
}

func (p *planner) doubt() string {
	return p.seen.ConfigProblem.Fault + " Correct it; until then nothing is made or changed."
}

// firstProblem is what somebody has to act on first, nil if waiting will do.
func firstProblem(targets []*target) *engine.Problem {
	for _, t := range targets {
		if t.problem != nil {
			return t.problem
		}
	}
	return nil
}

// standard runs the router on a Deployment.
func (p *planner) standard(pod corev1.PodSpec, targets []*target) engine.Plan {
	part, cfg := p.part(pod), p.seen.Config
	deployment, service := workload.Deployment(part, cfg), workload.Service(part, cfg)
	p.encrypt(service)
	p.mark(deployment, targets)
	child := engine.Child{Object: deployment}
	if workload.InitialReplicas(part) {
		child.Initial = []string{"spec.replicas"}
	}
	plan := engine.Plan{Children: append(p.trusted(), child), Problem: cmp.Or(firstProblem(targets), p.uncertified)}
	if !workload.Irreconcilable(p.seen.Service, service) { // else it goes, and is made when it is gone
		plan.Children = append(plan.Children, engine.Child{Object: service})
	}
	for _, scaler := range workload.Autoscaler(part, cfg) {
		if workload.Class(part.Annotations) == workload.ClassKEDA && !p.seen.HasKEDA {
			plan.Problem = cmp.Or(plan.Problem, noKEDA())
			continue // the router need not wait for it
		}
		if workload.Class(part.Annotations) == workload.ClassKEDA && p.seen.HasHPA {
			continue // KEDA refuses it until our own HPA, which goes now, is gone
		}
		plan.Children = append(plan.Children, engine.Child{Object: scaler})
	}
	router, outline := p.standing(), p.outline(service)
	routes, reached, problem := p.routes(outline)
	for _, route := range routes {
		plan.Children = append(plan.Children, engine.Child{Object: route})
	}
	if plan.Problem = cmp.Or(plan.Problem, problem); router.Status == metav1.ConditionTrue {
		router = reached
	}
	urls, err := ingress.URLs(outline, cfg)
	if problem := noAddress(err); problem != nil {
		router = kube.Condition{Status: metav1.ConditionFalse, Reason: problem.Reason, Message: problem.Message}
		plan.Problem = cmp.Or(plan.Problem, problem)
	}
	if p.uncertified != nil {
		router = kube.Condition{Status: metav1.ConditionFalse, Reason: p.uncertified.Reason, Message: p.uncertified.Message}
	}
	plan.Status = p.status(targets, router, nil, p.urlOf(urls.Components[v1beta1.PredictorComponent]))
	return plan
}

func noKEDA() *engine.Problem {
	return engine.WaitFor("ScaledObjectMissing",
		"The graph is to be scaled by a ScaledObject, but the cluster does not serve %s. Install KEDA (nothing needs a restart), or change the annotation %s.",
		scaledObject.GroupVersion(), v1beta1.AnnotationAutoscalerClass)
}

// knative runs the router on a Knative Service.
func (p *planner) knative(pod corev1.PodSpec, targets []*target) engine.Plan {
	service, note := p.ksvc(pod)
	p.mark(service, targets)
	plan := engine.Plan{Children: append(p.trusted(), engine.Child{Object: service}), Problem: firstProblem(targets)}
	if note != "" {
		plan.Events = []engine.Event{{Warning: true, Reason: "InitialScaleIgnored", Message: note}}
	}
	now, said := knative.Status(p.seen.Knative, v1beta1.ComponentStatusSpec{URL: p.graph.Status.URL}, nil)
	plan.Status = p.status(targets, p.serverless(said, now), said, ptr.Deref(now.URL, ""))
	return plan
}
