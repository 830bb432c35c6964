// SPDX-License-Identifier: Apache-2.0

package graphs

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/ingress"
)

// Optional APIs by which a graph is reached from outside.
var (
	httpRoute = schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: "v1", Kind: "HTTPRoute"}
	gateway   = schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: "v1", Kind: "Gateway"}
)

// front is how a graph is reached from outside, as far as that is known.
type front struct {
	// HasRoutes tells whether the cluster serves HTTPRoutes.
	HasRoutes bool
	Routes    map[string]client.Object // by ingress.Key
	Door      ingress.Door
	// Namesake is the InferenceService of the graph's name, which has the address of both.
	Namesake *v1beta1.InferenceService
}

// readFront reads what became of the route, and the Gateway that it attaches to.
func (o *observer) readFront(ctx context.Context) error {
	key, wanted := ingress.GatewayKey(o.seen.Config)
	if !wanted || o.seen.Mode != config.ModeStandard {
		return nil
	}
	own := client.ObjectKeyFromObject(o.graph)
	isvc := &v1beta1.InferenceService{}
	if err := o.Get(ctx, own, isvc); err == nil {
		o.seen.Front.Namesake = isvc
	} else if client.IgnoreNotFound(err) != nil {
		return err
	}
	if o.seen.Front.HasRoutes = o.HasAPI(httpRoute.GroupKind()); !o.seen.Front.HasRoutes {
		return nil
	}
	o.seen.Front.Routes = map[string]client.Object{}
	for _, name := range ingress.GraphRouteNames(outline(o.graph), o.seen.Config) {
		route := &gatewayv1.HTTPRoute{}
		route.Namespace, route.Name = own.Namespace, name
		if err := o.Child(ctx, route); err == nil {
			o.seen.Front.Routes[httpRoute.Kind+"/"+name] = route
		} else if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if !o.HasAPI(gateway.GroupKind()) {
		return nil
	}
	found := &gatewayv1.Gateway{}
	err := o.Get(ctx, key, found)
	if err == nil {
		o.seen.Front.Door.Gateway = found
	}
	o.seen.Front.Door.Known = !engine.OutOfSight(err)
	return client.IgnoreNotFound(err)
}

// outline is the graph as far as its address goes. A gateway gives requests as much time as the router does.
func (p *planner) outline(service *corev1.Service) ingress.Service {
	timeout := p.graph.Spec.TimeoutSeconds
	if limits := p.graph.Spec.RouterTimeouts; limits != nil {
		timeout = cmp.Or(limits.ServerWrite, timeout)
	}
	out := outline(p.graph)
	out.Predictor = ingress.Backend{Service: service, Timeout: timeout}
	return out
}

func outline(graph *v1alpha1.InferenceGraph) ingress.Service {
	return ingress.Service{
		Name: graph.Name, Namespace: graph.Namespace, Labels: graph.Labels, Annotations: graph.Annotations, PredictorHostName: graph.Name,
	}
}

// routes lead to the router from outside, none if nothing shall or can, and how that stands.
func (p *planner) routes(s ingress.Service) ([]client.Object, kube.Condition, *engine.Problem) {
	fine := kube.Condition{Status: metav1.ConditionTrue}
	wanted, err := ingress.GraphRoutes(s, p.seen.Config)
	if err == nil && wanted == nil {
		return nil, fine, nil
	}
	problem := noAddress(err)
	if err == nil {
		problem = p.noRoute(s)
	}
	if problem != nil {
		return nil, kube.Condition{Status: metav1.ConditionFalse, Reason: problem.Reason, Message: problem.Message}, problem
	}
	answer := ingress.Accepted(wanted, p.seen.Front.Routes, p.seen.Front.Door)
	switch {
	case answer == nil:
		return wanted, fine, nil
	case answer.Refused:
		return wanted, kube.Condition{Status: metav1.ConditionFalse, Reason: answer.Reason, Message: answer.Message}, nil
	}
	return wanted, kube.Condition{Status: metav1.ConditionUnknown, Reason: answer.Reason, Message: answer.Message}, nil
}

// noAddress is what makes no host of the graph's name.
func noAddress(err error) *engine.Problem {
	if err == nil {
		return nil
	}
	return engine.MustChange("InvalidHost", "The graph gets no URL: %s.", err.Error())
}

// noRoute is why none can be made.
func (p *planner) noRoute(s ingress.Service) *engine.Problem {
	if !p.seen.Front.HasRoutes {
		return engine.WaitFor("GatewayAPIMissing", "The platform's configuration asks for HTTPRoutes (ingress.enableGatewayApi), but the cluster does not serve "+
			"the Gateway API. Install it; nothing needs a restart.")
	}
	if p.seen.Front.Namesake == nil {
		return nil
	}
	mine, err := ingress.Claims(s, p.seen.Config)
	if err != nil {
		return noAddress(err)
	}
	if address := ingress.Shared(mine, ingress.ClaimsOf(p.seen.Front.Namesake, p.seen.Config)); address != "" {
		return engine.WaitFor("HostTaken", "%s is the address of InferenceService %s, so that nothing leads to this graph from outside. Give the graph "+
			"another name; it gets the address when it is free.", address, p.graph.Name)
	}
	return nil
}
