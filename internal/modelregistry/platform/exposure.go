// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Annotations of Services: the address that other tools are told, and the Secret that OpenShift is to make.
const (
	AnnotationAddress     = "routing.opendatahub.io/external-address-rest"
	AnnotationServingCert = "service.beta.openshift.io/serving-cert-secret-name"
)

// EncryptedRoute leads to a port of a Service that speaks TLS itself. Without a host the router chooses one.
func EncryptedRoute(meta metav1.ObjectMeta, host, service, port string) *unstructured.Unstructured {
	spec := map[string]any{
		"to": map[string]any{"kind": "Service", "name": service}, "port": map[string]any{"targetPort": port},
		"tls": map[string]any{"termination": "reencrypt"}, "wildcardPolicy": "None",
	}
	if host != "" {
		spec["host"] = host
	}
	return ForeignObject(Route, meta, spec)
}

// Ingress leads to a port of a Service; the class is the cluster's default if empty.
func Ingress(meta metav1.ObjectMeta, host, service, port, class string) *networkingv1.Ingress {
	out := &networkingv1.Ingress{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"}, ObjectMeta: meta,
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
			Host: host,
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix),
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: service, Port: networkingv1.ServiceBackendPort{Name: port}}},
			}}}},
		}}},
	}
	if class != "" {
		out.Spec.IngressClassName = &class
	}
	return out
}

// EncryptedIngress is an Ingress to a port that speaks TLS itself.
func EncryptedIngress(meta metav1.ObjectMeta, host, service, port, class string) *networkingv1.Ingress {
	out := Ingress(meta, host, service, port, class)
	out.Annotations = map[string]string{"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}
	out.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{host}}}
	return out
}

// BehindGateway is the route of a gateway to a Service, which sees paths without the prefix.
func BehindGateway(meta metav1.ObjectMeta, gateway client.ObjectKey, prefix string, service client.ObjectKey, port int32) *unstructured.Unstructured {
	return ForeignObject(HTTPRoute, meta, map[string]any{
		"parentRefs": []any{map[string]any{"group": HTTPRoute.Group, "kind": "Gateway", "name": gateway.Name, "namespace": gateway.Namespace}},
		"rules": []any{map[string]any{
			"matches": []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": prefix}}},
			"filters": []any{map[string]any{"type": "URLRewrite", "urlRewrite": map[string]any{
				"path": map[string]any{"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}},
			"backendRefs": []any{map[string]any{
				"group": "", "kind": "Service", "name": service.Name, "namespace": service.Namespace, "port": int64(port), "weight": int64(1)}},
		}},
	})
}

// Grant permits routes of another namespace to lead to a Service of this one; to all of them, if none is named.
func Grant(meta metav1.ObjectMeta, routes, service string) *unstructured.Unstructured {
	to := map[string]any{"group": "", "kind": "Service"}
	if service != "" {
		to["name"] = service
	}
	return ForeignObject(ReferenceGrant, meta, map[string]any{
		"from": []any{map[string]any{"group": HTTPRoute.Group, "kind": "HTTPRoute", "namespace": routes}}, "to": []any{to},
	})
}

// RouteProblem is why the router of OpenShift does not lead to a Route; empty if it does. The Route is nil while it is not seen.
func RouteProblem(key client.ObjectKey, route *unstructured.Unstructured) string {
	if route == nil {
		return fmt.Sprintf("Route %s is being made.", key)
	}
	why := "no router has answered yet"
	ingresses, _, _ := unstructured.NestedSlice(route.Object, "status", "ingress")
	for _, ingress := range ingresses {
		for _, condition := range conditionsOf(ingress) {
			if condition["type"] != "Admitted" {
				continue
			}
			if condition["status"] == "True" {
				return ""
			}
			why = said(condition, why)
		}
	}
	return fmt.Sprintf("Route %s is not admitted: %s. Look at it with kubectl describe route.", key, why)
}

func conditionsOf(status any) (out []map[string]any) {
	m, _ := status.(map[string]any)
	conditions, _, _ := unstructured.NestedSlice(m, "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok {
			out = append(out, condition)
		}
	}
	return out
}

// said is the message of a condition, or what was known before.
func said(condition map[string]any, otherwise string) string {
	if text, _ := condition["message"].(string); text != "" {
		return strings.TrimSuffix(text, ".")
	}
	return otherwise
}

// GatewayProblem is why a gateway does not lead to an HTTPRoute; empty if it does. The route is nil while it is not seen.
func GatewayProblem(key, gateway client.ObjectKey, route *unstructured.Unstructured) string {
	if route == nil {
		return fmt.Sprintf("HTTPRoute %s is being made.", key)
	}
	accepted := false
	for _, condition := range answers(route, gateway) {
		switch yes := condition["status"] == "True"; {
		case condition["type"] == "Accepted" && yes:
			accepted = true
		case condition["type"] == "Accepted", condition["type"] == "ResolvedRefs" && !yes:
			return notAccepted(key, gateway, said(condition, "it does not say why"))
		}
	}
	if accepted {
		return ""
	}
	return notAccepted(key, gateway, "it has not answered yet")
}

// answers are the conditions with which a gateway speaks of a route as it is now.
func answers(route *unstructured.Unstructured, gateway client.ObjectKey) (out []map[string]any) {
	parents, _, _ := unstructured.NestedSlice(route.Object, "status", "parents")
	for _, parent := range parents {
		p, _ := parent.(map[string]any)
		ref, _, _ := unstructured.NestedMap(p, "parentRef")
		if ref["name"] != gateway.Name || ref["namespace"] != nil && ref["namespace"] != gateway.Namespace {
			continue
		}
		for _, condition := range conditionsOf(parent) {
			if of, _ := condition["observedGeneration"].(int64); of == 0 || of >= route.GetGeneration() {
				out = append(out, condition)
			}
		}
	}
	return out
}

func notAccepted(key, gateway client.ObjectKey, why string) string {
	return fmt.Sprintf("HTTPRoute %s is not accepted by Gateway %s: %s. Look at both with kubectl describe.", key, gateway, why)
}
