// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

const (
	proxyContainer  = "kube-rbac-proxy"
	proxyConfigDir  = "/etc/kube-rbac-proxy"
	certificateDir  = "/etc/tls/private-cert"
	keyDir          = "/etc/tls/private-key"
	proxyHealthPort = 8888
)

// certificateFiles are where the proxy, or the server in its place, finds its certificate and key.
func (p *planner) certificateFiles() (cert, key string) {
	if p.proxy == nil {
		return "", ""
	}
	cert, key = corev1.TLSCertKey, corev1.TLSPrivateKeyKey
	if p.proxy.TLSCertificateSecret != nil && p.proxy.TLSKeySecret != nil {
		cert, key = p.proxy.TLSCertificateSecret.Key, p.proxy.TLSKeySecret.Key
	}
	return path.Join(certificateDir, cert), path.Join(keyDir, key)
}

func certificateMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		{Name: "kube-rbac-proxy-cert", MountPath: certificateDir, ReadOnly: true},
		{Name: "kube-rbac-proxy-key", MountPath: keyDir, ReadOnly: true},
	}
}

func (p *planner) proxyVolumes() []corev1.Volume {
	cert, key := p.name()+proxySuffix, p.name()+proxySuffix
	if p.proxy.TLSCertificateSecret != nil && p.proxy.TLSKeySecret != nil {
		cert, key = p.proxy.TLSCertificateSecret.Name, p.proxy.TLSKeySecret.Name
	}
	out := []corev1.Volume{
		{Name: "kube-rbac-proxy-cert", VolumeSource: secretVolume(cert)}, {Name: "kube-rbac-proxy-key", VolumeSource: secretVolume(key)},
	}
	if p.proxyImage() != "" {
		out = append(out, corev1.Volume{Name: "kube-rbac-proxy-config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: p.name() + configSuffix}}}})
	}
	return out
}

// proxyContainer stands before the server. It lets the paths pass at which the server says how it is: kubelets have no
// token.
func (p *planner) proxyContainer() corev1.Container {
	cert, key := p.certificateFiles()
	probe := func(delay int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: "/healthz", Port: intstr.FromString("proxy-healthz"), Scheme: corev1.URISchemeHTTPS}},
			InitialDelaySeconds: delay, PeriodSeconds: 5, TimeoutSeconds: 1, FailureThreshold: 3,
		}
	}
	return corev1.Container{
		Name:  proxyContainer,
		Image: p.proxyImage(),
		Args: []string{
			fmt.Sprintf("--secure-listen-address=0.0.0.0:%d", *p.proxy.Port),
			fmt.Sprintf("--upstream=http://%s:%d/", loopback, p.restPort()),
			fmt.Sprintf("--proxy-endpoints-port=%d", proxyHealthPort),
			"--logtostderr=true", "--v=0",
			"--config-file=" + path.Join(proxyConfigDir, platform.ProxyConfigFile),
			"--tls-cert-file=" + cert, "--tls-private-key-file=" + key,
			"--ignore-paths=" + pathClean + "," + pathHealthy,
		},
		Ports: []corev1.ContainerPort{
			{Name: proxyPortName, ContainerPort: *p.proxy.Port, Protocol: corev1.ProtocolTCP},
			{Name: "proxy-healthz", ContainerPort: proxyHealthPort, Protocol: corev1.ProtocolTCP},
		},
		LivenessProbe:   probe(30),
		ReadinessProbe:  probe(5),
		Resources:       *platform.ServerResources(),
		SecurityContext: platform.Unprivileged(),
		VolumeMounts: append(certificateMounts(), corev1.VolumeMount{
			Name: "kube-rbac-proxy-config", MountPath: proxyConfigDir, ReadOnly: true}),
	}
}

// protection is what keeps others out: what the proxy goes by, whom it may ask, and which ports are reached at all.
func (p *planner) protection() []engine.Child {
	out := at(stageNeeds, p.networkPolicy())
	if p.proxy == nil {
		return out
	}
	if p.seen.TLS.Own != nil {
		out = append(out, at(stageNeeds, platform.Certificate(p.meta(p.name()+proxySuffix), p.seen.TLS.Own))...)
	}
	if p.proxyImage() != "" || p.held.On() {
		out = append(out, at(stageNeeds, platform.ProxyConfig(p.meta(p.name()+configSuffix), p.name()))...)
	}
	return append(out, p.delegation()...)
}

// delegation lets the registry ask Kubernetes who somebody is and what he may do. Its known name has no namespace in it:
// where a registry of the same name elsewhere has it already, this one takes another.
func (p *planner) delegation() []engine.Child {
	name, there := p.name()+delegatorSuffix, p.seen.Names.Binding
	if there != nil && platform.DelegatedFor(there) != "" && platform.DelegatedFor(there) != p.registry.Namespace {
		name, there = p.registry.Namespace+"-"+name, nil
	}
	binding := platform.Delegation(metav1.ObjectMeta{Name: name, Labels: p.labels(name)}, client.ObjectKeyFromObject(p.registry))
	return p.unlessTaken(engine.Child{Object: binding, Stage: stageAround, Replace: true}, there)
}

// networkPolicy lets in requests to the one port that is meant for others. On OpenShift with a Route they come from the
// router, from the platform's own namespaces, as always, and from its scrapers.
func (p *planner) networkPolicy() *networkingv1.NetworkPolicy {
	port := p.restPort()
	if p.proxy != nil {
		port = *p.proxy.Port
	}
	var from []networkingv1.NetworkPolicyPeer
	if p.seen.OpenShift && p.routed() {
		from = platform.FromRouters()
		if p.monitored() {
			from = append(from, platform.FromScrapers()...)
		}
	}
	return platform.OnlyPort(p.meta(p.name()+policySuffix), p.held.Selector(p.selector()), port, from)
}
