// SPDX-License-Identifier: Apache-2.0

// Package routes reads what HTTPRoutes and the gateways they hang on say.
package routes

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// names tells whether a reference of a route means a gateway.
func names(ref gatewayv1.ParentReference, route *gatewayv1.HTTPRoute, gateway types.NamespacedName) bool {
	return ptr.Deref(ref.Kind, "Gateway") == "Gateway" && ptr.Deref(ref.Group, gatewayv1.GroupName) == gatewayv1.GroupName &&
		string(ref.Name) == gateway.Name && string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(route.Namespace))) == gateway.Namespace
}

// HangsOn tells whether a route asks for a gateway.
func HangsOn(route *gatewayv1.HTTPRoute, gateway types.NamespacedName) bool {
	return slices.ContainsFunc(route.Spec.ParentRefs, func(ref gatewayv1.ParentReference) bool { return names(ref, route, gateway) })
}

// Accepted tells whether the gateway has taken the route as it is now, and else what it says.
func Accepted(route *gatewayv1.HTTPRoute, gateway types.NamespacedName) (bool, string) {
	said := ""
	for _, p := range route.Status.Parents {
		if !names(p.ParentRef, route, gateway) {
			continue
		}
		for _, c := range p.Conditions {
			if c.Type != string(gatewayv1.RouteConditionAccepted) || c.ObservedGeneration != 0 && c.ObservedGeneration < route.Generation {
				continue
			}
			if c.Status == metav1.ConditionTrue {
				return true, ""
			}
			said = c.Reason
		}
	}
	return false, said
}
