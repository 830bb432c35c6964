// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SomeGroup owns what is mounted into pods, and PostgresGroup the volume of a database, where the platform does not choose a
// group itself.
const (
	SomeGroup     = 65532
	PostgresGroup = 26
)

// ProxyConfigFile is the key of what a proxy goes by.
const ProxyConfigFile = "config-file.yaml"

// labelNamespace tells which namespace an object without one is for.
const labelNamespace = "modelregistry.opendatahub.io/namespace"

// PodSecurity is that of a pod that needs no privileges. OpenShift chooses the group of mounted files itself, and refuses any
// other.
func PodSecurity(openShift bool, group int64) *corev1.PodSecurityContext {
	out := &corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if !openShift {
		out.FSGroup = ptr.To(group)
	}
	return out
}

// Unprivileged is the security of a container.
func Unprivileged() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// ServerResources are those of servers and proxies that ask for none, and DatabaseResources those of their databases.
func ServerResources() *corev1.ResourceRequirements {
	memory := resource.MustParse("256Mi")
	return &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: memory},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: memory},
	}
}

// DatabaseResources as ServerResources.
func DatabaseResources() *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("512Mi")},
	}
}

// RBAC is the type of an object that says who may do what.
func RBAC(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// ProxyConfig lets in who may get the Service.
func ProxyConfig(meta metav1.ObjectMeta, service string) *corev1.ConfigMap {
	config := fmt.Sprintf(`authorization:
  resourceAttributes:
    apiVersion: v1
    resource: services
    verb: get
    namespace: %s
    name: %s
`, meta.Namespace, service)
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta, Data: map[string]string{ProxyConfigFile: config},
	}
}

// Delegation lets a server ask Kubernetes who somebody is and what he may do.
func Delegation(meta metav1.ObjectMeta, account client.ObjectKey) *rbacv1.ClusterRoleBinding {
	meta.Labels[labelNamespace] = account.Namespace
	return &rbacv1.ClusterRoleBinding{
		TypeMeta: RBAC("ClusterRoleBinding"), ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: account.Namespace}},
	}
}

// DelegatedFor is the namespace that a Delegation is for; empty if it does not say so.
func DelegatedFor(binding *metav1.PartialObjectMetadata) string {
	return binding.Labels[labelNamespace]
}

// FromRouters are those who come through a Route: the router of OpenShift and the platform's own namespaces.
func FromRouters() []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	for _, label := range [][2]string{{"network.openshift.io/policy-group", "ingress"}, {"opendatahub.io/generated-namespace", "true"}} {
		out = append(out, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label[0]: label[1]}}})
	}
	return out
}

// FromPods are those with these labels, in the same namespace.
func FromPods(labels map[string]string) []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: labels}}}
}

// OnlyPort lets in requests to the one port of pods that is meant for others; from anybody, if no one is named.
func OnlyPort(meta metav1.ObjectMeta, pods map[string]string, port int32, from []networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"}, ObjectMeta: meta,
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: pods},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(port))}},
				From:  from,
			}},
		},
	}
}

// PortPostgres is that of a database.
const PortPostgres = 5432

// DatabaseService leads to the pods of a database.
func DatabaseService(meta metav1.ObjectMeta, pods map[string]string) *corev1.Service {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta,
		Spec: corev1.ServiceSpec{
			Selector: pods,
			Ports:    []corev1.ServicePort{{Name: "postgresql", Port: PortPostgres, TargetPort: intstr.FromInt32(PortPostgres), Protocol: corev1.ProtocolTCP}},
		},
	}
}
