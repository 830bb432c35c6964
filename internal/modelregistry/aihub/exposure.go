// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/engine"
)

func (p *planner) service() *corev1.Service {
	meta := p.meta(name)
	meta.Annotations = map[string]string{}
	if p.seen.OpenShift {
		meta.Annotations["service.beta.openshift.io/serving-cert-secret-name"] = tlsSecret
	}
	if address := p.address(); address != "" {
		meta.Annotations["routing.opendatahub.io/external-address-rest"] = address
	}
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta,
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: podsOf(name),
			Ports: []corev1.ServicePort{{
				Name: nameHTTPS, Port: portHTTPS, TargetPort: intstr.FromInt32(portHTTPS), Protocol: corev1.ProtocolTCP, AppProtocol: ptr.To("https")}},
		},
	}
}

// host is the name at which the catalog is reached from outside; empty if nobody knows a domain.
func (p *planner) host() string {
	if domain := cmp.Or(p.seen.Settings.Domain, p.seen.ClusterDomain); domain != "" {
		return name + "." + domain
	}
	return ""
}

// address is what other tools are told of how to reach the catalog.
func (p *planner) address() string {
	if p.seen.HasGateways {
		return p.seen.Settings.GatewayDomain + "/catalog"
	}
	if host := p.host(); host != "" {
		return host + ":443"
	}
	return ""
}

// protection is what keeps others out: the certificate, what the proxy goes by, whom the server may ask, and which port is
// reached at all.
func (p *planner) protection() []engine.Child {
	out := at(stageNeeds, p.networkPolicy())
	if pair := p.seen.TLS.Own; pair != nil {
		out = append(out, engine.Child{Stage: stageNeeds, Object: &corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: p.meta(tlsSecret), Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{caKey: pair.Roots, corev1.TLSCertKey: pair.Certificate, corev1.TLSPrivateKeyKey: pair.Key},
		}})
	}
	if !p.authorizes() {
		out = append(out, at(stageNeeds, &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: p.meta(proxyConfig),
			Data: map[string]string{proxyFile: fmt.Sprintf(`authorization:
  resourceAttributes:
    apiVersion: v1
    resource: services
    verb: get
    namespace: %s
    name: %s
`, p.catalog.Namespace, name)},
		})...)
	}
	binding := &rbacv1.ClusterRoleBinding{
		TypeMeta: rbacMeta("ClusterRoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: delegator, Labels: labelsOf(name)},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: p.catalog.Namespace}},
	}
	binding.Labels[labelNamespace] = p.catalog.Namespace
	return append(out, engine.Child{Object: binding, Stage: stageAround, Replace: true, Adopt: true})
}

// networkPolicy lets in requests to the one port that is meant for others. On OpenShift they come from the router and from the
// platform's own namespaces.
func (p *planner) networkPolicy() *networkingv1.NetworkPolicy {
	rule := networkingv1.NetworkPolicyIngressRule{
		Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(portHTTPS))}},
	}
	if p.seen.OpenShift {
		for _, label := range [][2]string{{"network.openshift.io/policy-group", "ingress"}, {"opendatahub.io/generated-namespace", "true"}} {
			rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label[0]: label[1]}}})
		}
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"}, ObjectMeta: p.meta(policyName),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: podsOf(name)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{rule},
		},
	}
}

// exposure is what leads to the catalog from outside.
func (p *planner) exposure() []engine.Child {
	out := p.gateway()
	switch host := p.host(); {
	case p.seen.OpenShift:
		spec := map[string]any{
			"to": map[string]any{"kind": "Service", "name": name}, "port": map[string]any{"targetPort": nameHTTPS},
			"tls": map[string]any{"termination": "reencrypt"}, "wildcardPolicy": "None",
		}
		if host != "" {
			spec["host"] = host
		}
		out = append(out, at(stageAround, p.foreignObject(route, p.catalog.Namespace, routeName, spec))...)
	case host != "":
		out = append(out, at(stageAround, p.ingress(host))...)
	}
	return out
}

func (p *planner) foreignObject(gvk schema.GroupVersionKind, namespace, object string, spec map[string]any) *unstructured.Unstructured {
	u := foreign(gvk)
	u.SetNamespace(namespace)
	u.SetName(object)
	u.SetLabels(labelsOf(name))
	u.Object["spec"] = spec
	return u
}

// ingress leads to the catalog where there are no Routes: it needs a domain.
func (p *planner) ingress(host string) *networkingv1.Ingress {
	out := &networkingv1.Ingress{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"}, ObjectMeta: p.meta(routeName),
		Spec: networkingv1.IngressSpec{
			TLS: []networkingv1.IngressTLS{{Hosts: []string{host}}},
			Rules: []networkingv1.IngressRule{{
				Host: host,
				IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
					Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix),
					Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
						Name: name, Port: networkingv1.ServiceBackendPort{Name: nameHTTPS}}},
				}}}},
			}},
		},
	}
	out.Annotations = map[string]string{"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}
	if class := p.seen.Settings.IngressClass; class != "" {
		out.Spec.IngressClassName = &class
	}
	return out
}

// gateway is the route of a gateway, in a namespace that it takes routes from, and the permission for that route to lead here.
func (p *planner) gateway() []engine.Child {
	if !p.seen.HasGateways {
		return nil
	}
	to := p.seen.Settings
	out := at(stageAround, p.foreignObject(httpRoute, to.RouteNamespace, name, map[string]any{
		"parentRefs": []any{map[string]any{"group": httpRoute.Group, "kind": "Gateway", "name": to.GatewayName, "namespace": to.GatewayNamespace}},
		"rules": []any{map[string]any{
			"matches": []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": "/catalog/"}}},
			"filters": []any{map[string]any{"type": "URLRewrite", "urlRewrite": map[string]any{
				"path": map[string]any{"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}},
			"backendRefs": []any{map[string]any{
				"group": "", "kind": "Service", "name": name, "namespace": p.catalog.Namespace, "port": int64(portHTTPS), "weight": int64(1)}},
		}},
	}))
	if to.RouteNamespace == p.catalog.Namespace {
		return out
	}
	return append(out, at(stageAround, p.foreignObject(referenceGrant, p.catalog.Namespace, grantName, map[string]any{
		"from": []any{map[string]any{"group": httpRoute.Group, "kind": "HTTPRoute", "namespace": to.RouteNamespace}},
		"to":   []any{map[string]any{"group": "", "kind": "Service", "name": name}},
	}))...)
}
