// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
)

// Annotations that dashboards and other tools read.
const (
	annotationDisplayName = "openshift.io/display-name"
	annotationDescription = "openshift.io/description"
	annotationAddress     = "routing.opendatahub.io/external-address-rest"
	annotationServingCert = "service.beta.openshift.io/serving-cert-secret-name"
)

const servicePortHTTPS = "https-api"

// servicePort is the port of the Service, by which other tools tell whether there is a proxy.
func (p *planner) servicePort() corev1.ServicePort {
	if p.proxy != nil {
		return corev1.ServicePort{Name: servicePortHTTPS, Port: *p.proxy.Port, TargetPort: intstr.FromInt32(*p.proxy.Port),
			Protocol: corev1.ProtocolTCP, AppProtocol: ptr.To("https")}
	}
	return corev1.ServicePort{Name: restPortName, Port: p.restPort(), TargetPort: intstr.FromInt32(p.restPort()),
		Protocol: corev1.ProtocolTCP, AppProtocol: ptr.To("http")}
}

func (p *planner) service() *corev1.Service {
	meta := p.meta(p.name())
	meta.Annotations = map[string]string{}
	for _, copied := range []string{annotationDisplayName, annotationDescription} {
		if text, ok := p.registry.Annotations[copied]; ok {
			meta.Annotations[copied] = text
		}
	}
	if p.proxy != nil && p.proxy.TLSCertificateSecret == nil && p.seen.OpenShift {
		meta.Annotations[annotationServingCert] = p.name() + proxySuffix
	}
	if address := p.externalAddress(); address != "" {
		meta.Annotations[annotationAddress] = address
	}
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta,
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: p.held.selector(p.selector()), Ports: []corev1.ServicePort{p.servicePort()},
		},
	}
}

// routed tells whether the proxy is to be reached from outside.
func (p *planner) routed() bool { return p.proxy != nil && p.proxy.ServiceRoute == v1beta1.Enabled }

// domain of the addresses from outside; empty if nobody says it.
func (p *planner) domain() string {
	own := ""
	if p.proxy != nil {
		own = p.proxy.Domain
	}
	return cmp.Or(own, p.seen.Settings.Domain, p.seen.ClusterDomain)
}

// routeHost is the name at which the proxy is reached from outside; empty if it is not.
func (p *planner) routeHost() string {
	if !p.routed() || p.domain() == "" {
		return ""
	}
	return p.name() + "-rest." + p.domain()
}

// gatewayPath is where the gateway has the registry; empty without one.
func (p *planner) gatewayPath() string {
	if !p.seen.HasGateways {
		return ""
	}
	return p.seen.Settings.GatewayDomain + "/model-registry/" + p.name()
}

func (p *planner) externalAddress() string {
	if at := p.gatewayPath(); at != "" {
		return at
	}
	if host := p.routeHost(); host != "" {
		return fmt.Sprintf("%s:%d", host, *p.proxy.RoutePort)
	}
	return ""
}

// exposure is what leads to the registry from outside.
func (p *planner) exposure() []engine.Child {
	out := p.gateway()
	if p.seen.OpenShift {
		return append(out, p.routes()...)
	}
	return append(out, p.ingresses()...)
}

func (p *planner) routes() []engine.Child {
	var out []engine.Child
	if p.spec.Rest.ServiceRoute == v1beta1.Enabled && p.proxy == nil {
		out = append(out, at(stageAround, p.openShiftRoute(p.name()+httpSuffix, map[string]any{
			"to": map[string]any{"kind": "Service", "name": p.name()}, "port": map[string]any{"targetPort": restPortName},
		}))...)
	}
	if p.routed() {
		spec := map[string]any{
			"to": map[string]any{"kind": "Service", "name": p.name()}, "port": map[string]any{"targetPort": servicePortHTTPS},
			"tls": map[string]any{"termination": "reencrypt"}, "wildcardPolicy": "None",
		}
		if host := p.routeHost(); host != "" {
			spec["host"] = host
		}
		out = append(out, at(stageAround, p.openShiftRoute(p.name()+httpsSuffix, spec))...)
	}
	return out
}

func (p *planner) openShiftRoute(name string, spec map[string]any) *unstructured.Unstructured {
	return p.foreignObject(route, p.registry.Namespace, name, spec)
}

func (p *planner) foreignObject(gvk schema.GroupVersionKind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	u := foreign(gvk)
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetLabels(p.labels(name))
	u.Object["spec"] = spec
	return u
}

// ingresses lead to the registry where there are no Routes: they need a domain.
func (p *planner) ingresses() []engine.Child {
	switch host := p.routeHost(); {
	case host != "":
		ingress := p.ingress(p.name()+httpsSuffix, host, servicePortHTTPS)
		ingress.Annotations = map[string]string{"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}
		ingress.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{host}}}
		return at(stageAround, ingress)
	case p.proxy == nil && p.spec.Rest.ServiceRoute == v1beta1.Enabled && p.domain() != "":
		return at(stageAround, p.ingress(p.name()+httpSuffix, p.plainHost(), restPortName))
	}
	return nil
}

// plainHost is the name at which a registry without a proxy is reached from outside.
func (p *planner) plainHost() string { return p.name() + "-http." + p.domain() }

func (p *planner) ingress(name, host, port string) *networkingv1.Ingress {
	out := &networkingv1.Ingress{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"}, ObjectMeta: p.meta(name),
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
			Host: host,
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix),
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: p.name(), Port: networkingv1.ServiceBackendPort{Name: port}}},
			}}}},
		}}},
	}
	if class := p.seen.Settings.IngressClass; class != "" {
		out.Spec.IngressClassName = &class
	}
	return out
}

func httpRouteName(registry string) string { return "model-registry-" + registry }

// gateway is the route of a gateway, in a namespace that it takes routes from, and the permission for that route to lead
// here. One permission is for all registries of a namespace; one that somebody made already does as well.
func (p *planner) gateway() []engine.Child {
	if !p.seen.HasGateways {
		return nil
	}
	at := p.seen.Settings
	to := p.foreignObject(httpRoute, at.RouteNamespace, httpRouteName(p.name()), map[string]any{
		"parentRefs": []any{map[string]any{"group": httpRoute.Group, "kind": "Gateway", "name": at.GatewayName, "namespace": at.GatewayNamespace}},
		"rules": []any{map[string]any{
			"matches": []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": "/model-registry/" + p.name() + "/"}}},
			"filters": []any{map[string]any{"type": "URLRewrite", "urlRewrite": map[string]any{
				"path": map[string]any{"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}},
			"backendRefs": []any{map[string]any{
				"group": "", "kind": "Service", "name": p.name(), "namespace": p.registry.Namespace, "port": int64(p.servicePort().Port), "weight": int64(1)}},
		}},
	})
	out := p.unlessTaken(engine.Child{Object: to, Stage: stageAround}, p.seen.Names.HTTPRoute)
	if there := p.seen.Names.Grant; at.RouteNamespace == p.registry.Namespace || there != nil && there.Labels[engine.LabelOwner] == "" {
		return out
	}
	grant := foreign(referenceGrant)
	grant.SetNamespace(p.registry.Namespace)
	grant.SetName(grantName)
	grant.SetLabels(map[string]string{labelComponent: component, labelCreatedBy: createdBy})
	grant.Object["spec"] = map[string]any{
		"from": []any{map[string]any{"group": httpRoute.Group, "kind": "HTTPRoute", "namespace": at.RouteNamespace}},
		"to":   []any{map[string]any{"group": "", "kind": "Service"}},
	}
	return append(out, engine.Child{Object: grant, Stage: stageAround, Shared: true})
}
