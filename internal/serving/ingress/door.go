// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/internal/config"
)

// ReasonGatewayMissing is ours: who is not there cannot give one.
const ReasonGatewayMissing = "GatewayMissing"

// Door is the Gateway that routes attach to. What a gateway once said of a route stays on the route when the gateway goes,
// so that the routes alone do not tell whether anything comes through.
type Door struct {
	// Known says that we can tell whether the Gateway exists: the cluster serves the kind, and we may look at its namespace.
	Known bool
	// Gateway is nil while there is none of that name.
	Gateway *gatewayv1.Gateway
}

// GatewayKey is the Gateway that the platform's configuration names; false where routes need none.
func GatewayKey(cfg *config.Config) (client.ObjectKey, bool) {
	if !cfg.Ingress.EnableGatewayAPI || cfg.Ingress.DisableIngressCreation {
		return client.ObjectKey{}, false
	}
	namespace, name, found := strings.Cut(cfg.Ingress.KServeIngressGateway, "/")
	return client.ObjectKey{Namespace: namespace, Name: name}, found && namespace != "" && name != ""
}

// TrimGateway keeps of a Gateway what it says of itself as a whole. The rest changes with every route that comes or goes,
// and would wake all services for each.
func TrimGateway(obj client.Object) {
	g, ok := obj.(*gatewayv1.Gateway)
	if !ok {
		return
	}
	var kept []metav1.Condition
	for _, c := range g.Status.Conditions {
		if c.Type != string(gatewayv1.GatewayConditionAccepted) && c.Type != string(gatewayv1.GatewayConditionProgrammed) {
			continue
		}
		c.LastTransitionTime = metav1.Time{}
		if c.Status == metav1.ConditionTrue {
			c.Message = "" // counts proxies
		}
		kept = append(kept, c)
	}
	g.Labels, g.Annotations = nil, nil
	g.Spec, g.Status = gatewayv1.GatewaySpec{}, gatewayv1.GatewayStatus{Conditions: kept}
}

// TrimRoute keeps of an HTTPRoute what gateways say of it, and where it leads.
func TrimRoute(obj client.Object) {
	if r, ok := obj.(*gatewayv1.HTTPRoute); ok {
		for i := range r.Spec.Rules {
			r.Spec.Rules[i] = gatewayv1.HTTPRouteRule{BackendRefs: r.Spec.Rules[i].BackendRefs}
		}
	}
}

// missing tells that nobody can send requests by any route.
func (d Door) missing() bool { return d.Known && d.Gateway == nil }

// shut is why nothing comes through a gateway, whatever it says of single routes; nil if something may. A gateway without
// an address of its own is reached in other ways, and one that has not looked at its last change works as before it.
func (d Door) shut(p parent) *Answer {
	switch {
	case d.missing():
		return &Answer{Refused: true, Reason: ReasonGatewayMissing, Message: fmt.Sprintf("There is no Gateway %s/%s, so that nothing leads to this service "+
			"from outside. Create it, or name another one in ingress.kserveIngressGateway of inferenceservice-config; nothing needs a restart.", p.namespace, p.name)}
	case d.Gateway == nil:
		return nil
	}
	for _, name := range []gatewayv1.GatewayConditionType{gatewayv1.GatewayConditionAccepted, gatewayv1.GatewayConditionProgrammed} {
		c := apimeta.FindStatusCondition(d.Gateway.Status.Conditions, string(name))
		switch {
		case c == nil, c.Status == metav1.ConditionTrue, c.ObservedGeneration != 0 && c.ObservedGeneration < d.Gateway.Generation,
			c.Reason == string(gatewayv1.GatewayReasonAddressNotAssigned):
		case c.Status == metav1.ConditionFalse && c.Reason != string(gatewayv1.GatewayReasonPending):
			return &Answer{Refused: true, Reason: c.Reason, Message: fmt.Sprintf("The gateway %s/%s does not work (%s). Look at the conditions of this "+
				"Gateway, at its controller, and at the pods of its proxy.", p.namespace, p.name, saidBy(c))}
		case name == gatewayv1.GatewayConditionAccepted: // nobody looks after it yet
			return notAnswered(p)
		}
	}
	return nil
}

// saidBy has the words of a condition for the middle of a sentence.
func saidBy(c *metav1.Condition) string {
	message := strings.TrimRight(strings.TrimSpace(c.Message), ".")
	if message == "" || message == c.Reason {
		return c.Reason
	}
	return c.Reason + ": " + message
}
