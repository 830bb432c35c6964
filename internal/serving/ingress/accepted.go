// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"cmp"
	"fmt"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Reasons of our own; when a gateway refuses a route the reason is the gateway's.
const (
	ReasonNotWritten  = "IngressNotWritten"
	ReasonNotAnswered = "ParentStatusNotAvailable"
)

// Key is how Accepted finds the live counterpart of a wanted object: its kind and name.
func Key(obj client.Object) string {
	return obj.GetObjectKind().GroupVersionKind().Kind + "/" + obj.GetName()
}

// Accepted is nil when the gateway took every wanted route as it is now, and else why it did not and what to do.
// live holds what exists, by Key of the wanted object. Kinds that no gateway answers for are accepted when they exist.
//
// What is wrong with the gateway itself is told first, then what it refused, then what it has not answered yet. The words
// depend on the gateway and its reasons rather than on how many routes were written or answered so far, so that they stay
// the same while answers come in.
func Accepted(wanted []client.Object, live map[string]client.Object, door Door) *Answer {
	var first *Answer
	for _, want := range wanted {
		a := answerFor(want, live[Key(want)], door)
		if a != nil && (first == nil || a.Refused && !first.Refused) {
			first = a
		}
	}
	return first
}

// Answer is why requests do not come through.
type Answer struct {
	Reason, Message string
	// Refused says that waiting alone will not help.
	Refused bool
}

func answerFor(want, live client.Object, door Door) *Answer {
	route, ok := want.(*gatewayv1.HTTPRoute)
	if !ok {
		if live == nil {
			return &Answer{Reason: ReasonNotWritten, Message: fmt.Sprintf("%s %s/%s is not written yet. If this stays, look at the events of the service.",
				want.GetObjectKind().GroupVersionKind().Kind, want.GetNamespace(), want.GetName())}
		}
		return nil
	}
	have := &gatewayv1.HTTPRoute{}
	if live != nil {
		var err error
		if have, err = asHTTPRoute(live); err != nil {
			return &Answer{Reason: "RouteUnreadable", Refused: true,
				Message: fmt.Sprintf("HTTPRoute %s/%s cannot be read: %v. Check which version of the Gateway API is installed.",
					route.Namespace, route.Name, err)}
		}
	}
	for _, ref := range route.Spec.ParentRefs {
		p := parentOf(ref, route.Namespace)
		if a := door.shut(p); a != nil {
			return a
		}
		if !sameDoor(route, have) {
			return notAnswered(p)
		}
		if a := parentAnswer(p, have); a != nil {
			return a
		}
	}
	return nil
}

func notAnswered(p parent) *Answer {
	return &Answer{Reason: ReasonNotAnswered, Message: fmt.Sprintf("The gateway %s/%s has not answered yet. "+
		"Check that a Gateway of that name exists and that its controller runs.", p.namespace, p.name)}
}

func asHTTPRoute(obj client.Object) (*gatewayv1.HTTPRoute, error) {
	switch obj := obj.(type) {
	case *gatewayv1.HTTPRoute:
		return obj, nil
	case *unstructured.Unstructured:
		route := &gatewayv1.HTTPRoute{}
		return route, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, route)
	}
	return nil, fmt.Errorf("unexpected type %T", obj)
}

// sameDoor tells whether the live route already asks the same gateways for the same hosts; an answer to another
// question says nothing. A route that does not exist asks nothing.
func sameDoor(want, have *gatewayv1.HTTPRoute) bool {
	return slices.Equal(want.Spec.Hostnames, have.Spec.Hostnames) &&
		slices.EqualFunc(want.Spec.ParentRefs, have.Spec.ParentRefs, func(a, b gatewayv1.ParentReference) bool {
			return parentOf(a, want.Namespace) == parentOf(b, want.Namespace)
		})
}

// parent is a parent reference with its defaults filled in.
type parent struct{ group, kind, namespace, name, section, port string }

func parentOf(ref gatewayv1.ParentReference, routeNamespace string) parent {
	port := ""
	if ref.Port != nil {
		port = fmt.Sprint(*ref.Port)
	}
	return parent{
		group:     string(ptr.Deref(ref.Group, gatewayv1.GroupName)),
		kind:      string(ptr.Deref(ref.Kind, "Gateway")),
		namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(routeNamespace))),
		name:      string(ref.Name),
		section:   string(ptr.Deref(ref.SectionName, "")),
		port:      port,
	}
}

// parentAnswer is what one gateway said about a route, nil when it took it.
func parentAnswer(p parent, route *gatewayv1.HTTPRoute) *Answer {
	accepted := false
	var nobody *Answer
	for _, status := range route.Status.Parents {
		if parentOf(status.ParentRef, route.Namespace) != p {
			continue
		}
		if a := refusal(p, route, status.Conditions); a != nil {
			return a
		}
		c := current(status.Conditions, gatewayv1.RouteConditionAccepted, route.Generation)
		accepted = accepted || c != nil && c.Status == metav1.ConditionTrue && !stale(status.Conditions, route.Generation)
		nobody = cmp.Or(nobody, nobodyBehind(p, route, status.Conditions))
	}
	if accepted {
		return nobody
	}
	return notAnswered(p)
}

// backendsAvailable is a condition of Envoy Gateway: False while a Service that a route leads to has no pods.
const backendsAvailable gatewayv1.RouteConditionType = "BackendsAvailable"

// nobodyBehind is why a gateway that took a route answers for it with an error: it has not heard of any pod. Of several
// Services, such as those of canaries, one may be empty and the others answer.
func nobodyBehind(p parent, route *gatewayv1.HTTPRoute, conditions []metav1.Condition) *Answer {
	c := current(conditions, backendsAvailable, route.Generation)
	if c == nil || c.Status != metav1.ConditionFalse ||
		slices.ContainsFunc(route.Spec.Rules, func(r gatewayv1.HTTPRouteRule) bool { return len(r.BackendRefs) > 1 }) {
		return nil
	}
	return &Answer{Reason: c.Reason, Message: fmt.Sprintf("The gateway %s/%s knows of no pod to send requests to (%s). It is told of pods a moment after "+
		"they are ready. If this stays, check that its controller may read EndpointSlices in namespace %s.", p.namespace, p.name, saidBy(c), route.Namespace)}
}

// refusal is the first condition by which a gateway says that a route does not work as it is now.
func refusal(p parent, route *gatewayv1.HTTPRoute, conditions []metav1.Condition) *Answer {
	for _, bad := range []struct {
		condition gatewayv1.RouteConditionType
		status    metav1.ConditionStatus
	}{
		{gatewayv1.RouteConditionAccepted, metav1.ConditionFalse},
		{gatewayv1.RouteConditionResolvedRefs, metav1.ConditionFalse},
		{gatewayv1.RouteConditionPartiallyInvalid, metav1.ConditionTrue},
	} {
		c := current(conditions, bad.condition, route.Generation)
		if c == nil || c.Status != bad.status || c.Reason == string(gatewayv1.RouteReasonPending) {
			continue
		}
		return &Answer{Refused: true, Reason: c.Reason, Message: fmt.Sprintf("The gateway %s/%s does not serve this service (%s). %s",
			p.namespace, p.name, saidBy(c), nextStep(c.Reason, route))}
	}
	return nil
}

// current finds a condition that speaks of the route as it is now. A controller that does not say which generation
// it speaks of is taken at its word.
func current(conditions []metav1.Condition, name gatewayv1.RouteConditionType, generation int64) *metav1.Condition {
	c := apimeta.FindStatusCondition(conditions, string(name))
	if c == nil || c.ObservedGeneration != 0 && c.ObservedGeneration < generation {
		return nil
	}
	return c
}

// stale tells whether the references were last found wrong in an earlier generation and not looked at since.
func stale(conditions []metav1.Condition, generation int64) bool {
	c := apimeta.FindStatusCondition(conditions, string(gatewayv1.RouteConditionResolvedRefs))
	return c != nil && c.Status == metav1.ConditionFalse && current(conditions, gatewayv1.RouteConditionResolvedRefs, generation) == nil
}

// nextStep tells the person on call what to do about a gateway's reason.
func nextStep(reason string, route *gatewayv1.HTTPRoute) string {
	switch gatewayv1.RouteConditionReason(reason) {
	case gatewayv1.RouteReasonNotAllowedByListeners:
		return fmt.Sprintf("Allow HTTPRoutes from namespace %s in allowedRoutes of the Gateway's listeners.", route.Namespace)
	case gatewayv1.RouteReasonNoMatchingListenerHostname:
		return "Give the Gateway a listener whose hostname covers the hosts of this service, " +
			"or change ingressDomain or domainTemplate in inferenceservice-config."
	case gatewayv1.RouteReasonNoMatchingParent:
		return "Check kserveIngressGateway in inferenceservice-config and the listeners of that Gateway."
	case gatewayv1.RouteReasonUnsupportedValue, gatewayv1.RouteReasonIncompatibleFilters:
		return "Its controller lacks something that the routes use: if it is timeouts, set disableHTTPRouteTimeout in " +
			"inferenceservice-config, else use another gateway controller."
	case gatewayv1.RouteReasonBackendNotFound, "PortNotFound", "InvalidBackendRef":
		return fmt.Sprintf("Check that the Services of this service exist in namespace %s.", route.Namespace)
	case gatewayv1.RouteReasonRefNotPermitted:
		return fmt.Sprintf("Allow the Gateway's controller to reach Services in namespace %s.", route.Namespace)
	}
	return fmt.Sprintf("Look at the status of the HTTPRoutes in namespace %s and at the Gateway's controller.", route.Namespace)
}
