// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/engine"
)

const (
	proxyContainer  = "kube-rbac-proxy"
	proxyConfigFile = "config-file.yaml"
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
			"--config-file=" + path.Join(proxyConfigDir, proxyConfigFile),
			"--tls-cert-file=" + cert, "--tls-private-key-file=" + key,
			"--ignore-paths=" + pathClean + "," + pathHealthy,
		},
		Ports: []corev1.ContainerPort{
			{Name: proxyPortName, ContainerPort: *p.proxy.Port, Protocol: corev1.ProtocolTCP},
			{Name: "proxy-healthz", ContainerPort: proxyHealthPort, Protocol: corev1.ProtocolTCP},
		},
		LivenessProbe:   probe(30),
		ReadinessProbe:  probe(5),
		Resources:       *defaultResources(),
		SecurityContext: unprivileged(),
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
		out = append(out, at(stageNeeds, p.certificate())...)
	}
	if p.proxyImage() != "" || p.held.on() {
		out = append(out, at(stageNeeds, p.proxyConfig())...)
	}
	return append(out, p.delegation()...)
}

// proxyConfig lets in who may get the Service of the registry.
func (p *planner) proxyConfig() *corev1.ConfigMap {
	config := fmt.Sprintf(`authorization:
  resourceAttributes:
    apiVersion: v1
    resource: services
    verb: get
    namespace: %s
    name: %s
`, p.registry.Namespace, p.name())
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: p.meta(p.name() + configSuffix),
		Data: map[string]string{proxyConfigFile: config},
	}
}

// delegation lets the registry ask Kubernetes who somebody is and what he may do. Its known name has no namespace in it:
// where a registry of the same name elsewhere has it already, this one takes another.
func (p *planner) delegation() []engine.Child {
	name, there := p.name()+delegatorSuffix, p.seen.Names.Binding
	if there != nil && there.Labels[labelNamespace] != "" && there.Labels[labelNamespace] != p.registry.Namespace {
		name, there = p.registry.Namespace+"-"+name, nil
	}
	binding := &rbacv1.ClusterRoleBinding{
		TypeMeta: rbacMeta("ClusterRoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: name, Labels: p.labels(name)},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: p.name(), Namespace: p.registry.Namespace}},
	}
	binding.Labels[labelNamespace] = p.registry.Namespace
	return p.unlessTaken(engine.Child{Object: binding, Stage: stageAround, Replace: true}, there)
}

// networkPolicy lets in requests to the one port that is meant for others. On OpenShift with a Route they come from the
// router and from the platform's own namespaces, as always.
func (p *planner) networkPolicy() *networkingv1.NetworkPolicy {
	port := p.restPort()
	if p.proxy != nil {
		port = *p.proxy.Port
	}
	rule := networkingv1.NetworkPolicyIngressRule{
		Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(port))}},
	}
	if p.seen.OpenShift && p.routed() {
		for _, label := range [][2]string{{"network.openshift.io/policy-group", "ingress"}, {"opendatahub.io/generated-namespace", "true"}} {
			rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label[0]: label[1]}}})
		}
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"}, ObjectMeta: p.meta(p.name() + policySuffix),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: p.held.selector(p.selector())},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{rule},
		},
	}
}
