// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

func (p *planner) service() *corev1.Service {
	meta := p.meta(name)
	meta.Annotations = map[string]string{}
	if p.seen.OpenShift {
		meta.Annotations[platform.AnnotationServingCert] = tlsSecret
	}
	if address := p.address(); address != "" {
		meta.Annotations[platform.AnnotationAddress] = address
	}
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta,
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: p.held.Selector(podsOf(name)),
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
		out = append(out, engine.Child{Stage: stageNeeds, Object: platform.Certificate(p.meta(tlsSecret), pair)})
	}
	if !p.authorizes() || p.held.On() {
		out = append(out, at(stageNeeds, platform.ProxyConfig(p.meta(proxyConfig), name))...)
	}
	binding := platform.Delegation(metav1.ObjectMeta{Name: delegator, Labels: labelsOf(name)}, client.ObjectKey{Namespace: p.catalog.Namespace, Name: name})
	return append(out, engine.Child{Object: binding, Stage: stageAround, Replace: true, Adopt: true})
}

// networkPolicy lets in requests to the one port that is meant for others. On OpenShift they come from the router, from the
// platform's own namespaces and from its scrapers.
func (p *planner) networkPolicy() *networkingv1.NetworkPolicy {
	var from []networkingv1.NetworkPolicyPeer
	if p.seen.OpenShift {
		from = platform.FromRouters()
		if p.monitored() {
			from = append(from, platform.FromScrapers()...)
		}
	}
	return platform.OnlyPort(p.meta(policyName), p.held.Selector(podsOf(name)), portHTTPS, from)
}

// exposure is what leads to the catalog from outside.
func (p *planner) exposure() []engine.Child {
	out := p.gateway()
	switch host := p.host(); {
	case p.seen.OpenShift:
		out = append(out, at(stageAround, platform.EncryptedRoute(p.meta(routeName), host, name, nameHTTPS))...)
	case host != "": // an Ingress needs a domain
		out = append(out, at(stageAround, platform.EncryptedIngress(p.meta(routeName), host, name, nameHTTPS, p.seen.Settings.IngressClass))...)
	}
	return out
}

// gateway is the route of a gateway, in a namespace that it takes routes from, and the permission for that route to lead here.
func (p *planner) gateway() []engine.Child {
	if !p.seen.HasGateways {
		return nil
	}
	to := p.seen.Settings
	out := at(stageAround, platform.BehindGateway(metav1.ObjectMeta{Namespace: to.RouteNamespace, Name: name, Labels: labelsOf(name)},
		client.ObjectKey{Namespace: to.GatewayNamespace, Name: to.GatewayName}, "/catalog/",
		client.ObjectKey{Namespace: p.catalog.Namespace, Name: name}, portHTTPS))
	if to.RouteNamespace == p.catalog.Namespace {
		return out
	}
	return append(out, at(stageAround, platform.Grant(p.meta(grantName), to.RouteNamespace, name))...)
}

// monitored tells whether somebody reads metrics, and whether the server has any: others than our own do not.
func (p *planner) monitored() bool { return p.seen.HasMonitors && p.seen.Settings.own() }

// monitoring lets Prometheus find the metrics. They are at the port that everything is at, for those who may read the catalog.
func (p *planner) monitoring() []engine.Child {
	if !p.monitored() {
		return nil
	}
	return at(stageAround, platform.EncryptedMonitor(p.meta(name+platform.MonitorSuffix), podsOf(name), nameHTTPS, name, p.seen.TLS))
}
