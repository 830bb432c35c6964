// SPDX-License-Identifier: Apache-2.0

// Package serverless runs the components of an InferenceService on Knative: the Knative Services themselves, the routes
// that lead there, and what all that says in the status.
//
// It is pure, and takes components as they were resolved: it looks at no runtime and no model.
package serverless

import (
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/knative"
	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/resolve"
	"github.com/modelplane/modelplane/internal/serving/status"
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

// Missing is why nothing can be made in a cluster without Knative; nil in one with it.
func Missing(seen *observed.State) *resolve.Failure {
	if seen.Has(observed.KnativeService) {
		return nil
	}
	return &resolve.Failure{Of: v1beta1.PredictorComponent, Problem: engine.WaitFor("ServerlessModeRejected",
		"The service is to run in Knative mode, but the cluster does not serve %s. Install Knative Serving, or make the service anew with annotation %s: Standard.",
		observed.KnativeService.GroupVersion(), v1beta1.AnnotationDeploymentMode)}
}

// Plan goes on with a plan that was begun with what a service needs in every mode.
func Plan(isvc *v1beta1.InferenceService, seen *observed.State, parts *resolve.Components, begun engine.Plan) engine.Plan {
	p := newPlanner(isvc, seen, parts, begun)
	now := p.addServices()
	front := p.front(now)
	objects, err := ingress.KnativeObjects(front, p.cfg)
	if err != nil {
		return p.invalidHost(err)
	}
	for _, o := range objects {
		p.plan.Children = append(p.plan.Children, engine.Child{Object: o})
	}
	urls, err := ingress.KnativeURLs(front, p.cfg)
	if err != nil {
		return p.invalidHost(err)
	}
	told := p.status(now, urls, ingress.KnativeIgnored(front, p.cfg))
	p.plan.Status = told
	p.plan.Events = append(p.plan.Events, p.judge.Events(told, p.plan.Problem)...)
	return p.plan
}

func (p *planner) invalidHost(err error) engine.Plan {
	return p.judge.Fail(&resolve.Failure{Problem: engine.MustChange("InvalidHost", "%s", err.Error())})
}

// Services adds the Knative Services of components, without routes, and tells how those are that exist: for a service
// whose predictor is elsewhere.
func Services(isvc *v1beta1.InferenceService, seen *observed.State, parts *resolve.Components, begun engine.Plan) (
	engine.Plan, kube.Conditions, map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec) {
	p := newPlanner(isvc, seen, parts, begun)
	cs, s := kube.Conditions{}, &v1beta1.InferenceServiceStatus{}
	p.judgeServices(&cs, s, p.addServices())
	return p.plan, cs, s.Components
}

// Judge tells how the components are that exist, without planning anything.
func Judge(judge status.Judge, cs *kube.Conditions, s *v1beta1.InferenceServiceStatus) {
	p := newPlanner(judge.Isvc, judge.Seen, judge.Parts, engine.Plan{})
	now := p.live()
	p.judgeServices(cs, s, now)
	s.ModelStatus = p.modelStatus(now, cs.IsTrue(status.PredictorReady))
}

// addServices adds the Knative Services of components and reads what became
// of those that exist.
func (p *planner) addServices() live {
	now := p.live()
	for _, c := range p.parts.List() {
		annotations, note := knative.InitialScale(c.Annotations, p.seen.KnativeAutoscaler)
		if note != "" && p.plan.Problem == nil {
			p.plan.Events = append(p.plan.Events, engine.Event{Warning: true, Reason: "InitialScaleIgnored", Message: note})
		}
		service := knative.Service(knative.Part{
			Component: c.Component, Name: c.Name, Namespace: c.Namespace,
			Labels: c.Labels, Annotations: annotations, Pod: c.Pod, Scale: c.Scale,
		}, now.components[c.Component], p.cfg)
		c.Mark(service)
		p.plan.Children = append(p.plan.Children, engine.Child{Object: service})
	}
	return now
}

// front is how the service is reached.
func (p *planner) front(now live) ingress.KnativeService {
	part := func(c *resolve.Component) ingress.KnativePart {
		return ingress.KnativePart{Name: c.Name, URL: ptr.Deref(now.components[c.Component].URL, "")}
	}
	k := ingress.KnativeService{
		Name: p.isvc.Name, Namespace: p.isvc.Namespace, Labels: p.isvc.Labels, Annotations: p.isvc.Annotations,
		Domains: slices.Sorted(maps.Keys(p.seen.KnativeDomains)),
		NoIstio: !p.seen.Has(observed.VirtualService),
	}
	if p.parts.Predictor != nil {
		k.Predictor = part(p.parts.Predictor)
	}
	if p.parts.Transformer != nil {
		t := part(p.parts.Transformer)
		// Until it has a URL for the first time, requests go on to the predictor.
		k.Transformer, k.ThroughTransformer = &t, t.URL != "" || p.isvc.Status.URL == nil
	}
	if p.parts.Explainer != nil {
		e := part(p.parts.Explainer)
		k.Explainer = &e
	}
	return k
}
