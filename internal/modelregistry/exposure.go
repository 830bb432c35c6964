// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// Annotations that dashboards and other tools read.
const (
	annotationDisplayName = "openshift.io/display-name"
	annotationDescription = "openshift.io/description"
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
		meta.Annotations[platform.AnnotationServingCert] = p.name() + proxySuffix
	}
	if address := p.externalAddress(); address != "" {
		meta.Annotations[platform.AnnotationAddress] = address
	}
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta,
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: p.held.Selector(p.selector()), Ports: []corev1.ServicePort{p.servicePort()},
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
		out = append(out, at(stageAround, platform.ForeignObject(platform.Route, p.meta(p.name()+httpSuffix), map[string]any{
			"to": map[string]any{"kind": "Service", "name": p.name()}, "port": map[string]any{"targetPort": restPortName},
		}))...)
	}
	if p.routed() {
		out = append(out, at(stageAround, platform.EncryptedRoute(p.meta(p.name()+httpsSuffix), p.routeHost(), p.name(), servicePortHTTPS))...)
	}
	return out
}

// ingresses lead to the registry where there are no Routes: they need a domain.
func (p *planner) ingresses() []engine.Child {
	class := p.seen.Settings.IngressClass
	switch host := p.routeHost(); {
	case host != "":
		return at(stageAround, platform.EncryptedIngress(p.meta(p.name()+httpsSuffix), host, p.name(), servicePortHTTPS, class))
	case p.proxy == nil && p.spec.Rest.ServiceRoute == v1beta1.Enabled && p.domain() != "":
		return at(stageAround, platform.Ingress(p.meta(p.name()+httpSuffix), p.plainHost(), p.name(), restPortName, class))
	}
	return nil
}

// plainHost is the name at which a registry without a proxy is reached from outside.
func (p *planner) plainHost() string { return p.name() + "-http." + p.domain() }

func httpRouteName(registry string) string { return "model-registry-" + registry }

// gateway is the route of a gateway, in a namespace that it takes routes from, and the permission for that route to lead
// here. One permission is for all registries of a namespace; one that somebody made already does as well.
func (p *planner) gateway() []engine.Child {
	if !p.seen.HasGateways {
		return nil
	}
	at, name := p.seen.Settings, httpRouteName(p.name())
	to := platform.BehindGateway(metav1.ObjectMeta{Namespace: at.RouteNamespace, Name: name, Labels: p.labels(name)},
		client.ObjectKey{Namespace: at.GatewayNamespace, Name: at.GatewayName}, "/model-registry/"+p.name()+"/",
		client.ObjectKeyFromObject(p.registry), p.servicePort().Port)
	out := p.unlessTaken(engine.Child{Object: to, Stage: stageAround}, p.seen.Names.HTTPRoute)
	if there := p.seen.Names.Grant; at.RouteNamespace == p.registry.Namespace || there != nil && there.Labels[engine.LabelOwner] == "" {
		return out
	}
	grant := platform.Grant(metav1.ObjectMeta{Namespace: p.registry.Namespace, Name: grantName,
		Labels: map[string]string{labelComponent: component, labelCreatedBy: createdBy}}, at.RouteNamespace, "")
	return append(out, engine.Child{Object: grant, Stage: stageAround, Shared: true})
}

// monitored tells whether somebody reads metrics, and whether the server has any: others than our own do not.
func (p *planner) monitored() bool { return p.seen.HasMonitors && p.ownImage() && !p.held.On() }

// monitoring lets Prometheus find the metrics. They are at the port that everything is at, for those who may use the registry.
func (p *planner) monitoring() []engine.Child {
	if !p.monitored() {
		return nil
	}
	meta, services := p.meta(p.name()+platform.MonitorSuffix), map[string]string{labelApp: p.name(), labelComponent: component}
	if p.proxy == nil {
		return at(stageAround, platform.Monitor(meta, services, p.servicePort().Name))
	}
	return at(stageAround, platform.EncryptedMonitor(meta, services, p.servicePort().Name, p.name(), p.seen.TLS))
}
