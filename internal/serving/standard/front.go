// SPDX-License-Identifier: Apache-2.0

package standard

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/resolve"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// frontDoor is how a service is reached.
type frontDoor struct {
	objects []client.Object
	urls    ingress.URLSet
	// problem is why there are no routes; everything else is made nevertheless.
	problem *engine.Problem
	// keep leaves the objects as they are in the cluster, because of what ignored says.
	keep    bool
	ignored []string
}

// routes are the objects that a gateway answers for. An Ingress is nobody's to
// accept.
func (f *frontDoor) routes() []client.Object {
	return slices.DeleteFunc(slices.Clone(f.objects), func(o client.Object) bool {
		_, ok := o.(*gatewayv1.HTTPRoute)
		return !ok
	})
}

// front makes the routes. They are there from the start; what may wait is a
// change of where they lead, until the new destination can answer.
func (p *planner) front() *frontDoor {
	s := ingress.Service{
		Name:               p.isvc.Name,
		Namespace:          p.isvc.Namespace,
		Labels:             p.isvc.Labels,
		Annotations:        p.isvc.Annotations,
		PredictorHostName:  p.isvc.Name + "-predictor",
		Predictor:          p.backend(p.parts.Predictor),
		ThroughTransformer: p.throughTransformer(),
	}
	for _, c := range p.parts.Canaries {
		if p.seen.Available(c.Name) {
			s.Predictor.Canaries = append(s.Predictor.Canaries, ingress.Share{Service: c.Name, Percent: c.Percent})
		}
	}
	if p.parts.Transformer != nil {
		b := p.backend(p.parts.Transformer)
		s.Transformer = &b
	}
	if p.parts.Explainer != nil {
		b := p.backend(p.parts.Explainer)
		b.Model = resolve.Argument(p.parts.Explainer.Pod.Containers[0].Args, resolve.ArgModelName)
		s.Explainer = &b
	}
	door := &frontDoor{}
	var err error
	if door.urls, err = ingress.URLs(s, p.cfg); err == nil {
		door.objects, err = ingress.Objects(s, p.cfg)
	}
	switch {
	case err != nil:
		door.problem = engine.MustChange("InvalidHost", "%s", err.Error())
	case len(door.objects) > 0 && p.cfg.Ingress.EnableGatewayAPI && !p.seen.Has(observed.HTTPRoute):
		door.objects = nil
		door.problem = engine.WaitFor("GatewayAPIMissing",
			"The platform's configuration asks for HTTPRoutes (ingress.enableGatewayApi), but the cluster does not serve the Gateway API. Install it; nothing needs a restart.")
	default:
		p.refuseAnnotations(door)
		p.giveWay(door)
	}
	door.ignored = append(door.ignored, ingress.Ignored(s, p.cfg)...)
	if p.plan.Problem == nil {
		p.plan.Problem = door.problem
	}
	return door
}

// giveWay makes no routes to an address that another service has.
func (p *planner) giveWay(door *frontDoor) {
	if len(door.objects) == 0 {
		return
	}
	address, by := ingress.Taken(p.isvc, p.seen.Rivals, p.cfg)
	if by == nil {
		return
	}
	whose := "a service in another namespace" // of which no more is told
	if by.Namespace == p.isvc.Namespace {
		whose = "InferenceService " + by.Name
	}
	door.objects, door.urls = nil, ingress.URLSet{Address: door.urls.Address}
	door.problem = engine.WaitFor("HostTaken", "%s is the address of %s, so that nothing leads to this one from outside. Give this service "+
		"another name, or change ingress.domainTemplate (a dot between name and namespace keeps them apart); it gets the address when it is free.",
		address, whose)
}

// refuseAnnotations makes no Ingress with annotations that reach beyond the service, nor one without them: they may be
// what protects it. An Ingress that is older than the refusal stays as it is.
func (p *planner) refuseAnnotations(door *frontDoor) {
	refusals := ingress.Refusals(p.isvc.Annotations, p.cfg)
	if len(refusals) == 0 || len(door.objects) == 0 {
		return
	}
	first := "annotation " + refusals[0].Annotation + " is refused, because " + refusals[0].Advice() + "."
	if p.seen.Ingress {
		door.keep, door.ignored = true, []string{"The Ingress is left as it is and follows no change: " + first}
		return
	}
	door.objects = nil
	door.problem = engine.MustChange("AnnotationRefused", "The service gets no Ingress: %s", first)
}

func (p *planner) backend(c *resolve.Component) ingress.Backend {
	b := ingress.Backend{Service: workload.Service(c.Part, p.cfg), Timeout: c.Scale.TimeoutSeconds}
	if c.Activation != nil {
		b.Address = c.Activation.Address(p.isvc.Namespace, c.Name)
	}
	return b
}

// throughTransformer tells whether requests go to the transformer. One that is
// added to a running service gets them when it can answer, and keeps them.
func (p *planner) throughTransformer() bool {
	if p.parts.Transformer == nil {
		return false
	}
	route, ok := p.seen.Routes[observed.HTTPRoute.Kind+"/"+p.isvc.Name].(*gatewayv1.HTTPRoute)
	if !ok || p.seen.Available(p.parts.Transformer.Name) {
		return true
	}
	for _, rule := range route.Spec.Rules {
		for _, ref := range rule.BackendRefs {
			if string(ref.Name) == p.parts.Transformer.Name {
				return true
			}
		}
	}
	return false
}
