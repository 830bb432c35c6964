// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// StillLeads tells whether requests may still be sent to a Service that the wanted routes no longer name: a live route
// names it, or a gateway that knows the route has not answered for its latest change. A gateway that never answered is
// not waited for, nor one that is gone: they send nothing.
func StillLeads(wanted []client.Object, live map[string]client.Object, door Door, service string) bool {
	return !door.missing() && slices.ContainsFunc(wanted, func(want client.Object) bool {
		obj := live[Key(want)]
		if obj == nil {
			return false
		}
		route, err := asHTTPRoute(obj)
		return err == nil && (names(route, service) || !answeredNow(route))
	})
}

func names(route *gatewayv1.HTTPRoute, service string) bool {
	return slices.ContainsFunc(route.Spec.Rules, func(rule gatewayv1.HTTPRouteRule) bool {
		return slices.ContainsFunc(rule.BackendRefs, func(ref gatewayv1.HTTPBackendRef) bool { return string(ref.Name) == service })
	})
}

// answeredNow tells whether every gateway that speaks of a route speaks of it as it is now. What a gateway said which the
// route no longer asks stays there for ever.
func answeredNow(route *gatewayv1.HTTPRoute) bool {
	for _, status := range route.Status.Parents {
		said := parentOf(status.ParentRef, route.Namespace)
		if !slices.ContainsFunc(route.Spec.ParentRefs, func(ref gatewayv1.ParentReference) bool { return parentOf(ref, route.Namespace) == said }) {
			continue
		}
		for _, c := range status.Conditions {
			if c.Type == string(gatewayv1.RouteConditionAccepted) && c.ObservedGeneration != 0 && c.ObservedGeneration < route.Generation {
				return false
			}
		}
	}
	return true
}
