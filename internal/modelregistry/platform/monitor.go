// SPDX-License-Identifier: Apache-2.0

package platform

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ServiceMonitor is by what the Prometheus Operator finds metrics.
var ServiceMonitor = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}

// MonitorSuffix is what a monitor is called, after its server.
const MonitorSuffix = "-metrics-monitor"

// rootsInSecret and rootsOfServices say where a scraper finds the authority of a certificate: in a Secret, or where OpenShift puts
// what it signs certificates of Services with, in every namespace.
func rootsInSecret(name string) map[string]any {
	return map[string]any{"secret": map[string]any{"name": name, "key": caKey}}
}

func rootsOfServices() map[string]any {
	return map[string]any{"configMap": map[string]any{"name": "openshift-service-ca.crt", "key": "service-ca.crt"}}
}

// Monitor leads Prometheus to the metrics of the Services with some labels, at a port without TLS, which asks for no token either.
func Monitor(meta metav1.ObjectMeta, services map[string]string, port string) *unstructured.Unstructured {
	return monitor(meta, services, map[string]any{"port": port, "path": "/metrics", "scheme": "http"})
}

// EncryptedMonitor leads to a port with TLS. Whoever scrapes shows the token of its own account, and never to a server whose name it
// has not verified.
func EncryptedMonitor(meta metav1.ObjectMeta, services map[string]string, port, service string, certificate TLS) *unstructured.Unstructured {
	verify := map[string]any{"serverName": service + "." + meta.Namespace + ".svc"}
	if certificate.Roots != nil {
		verify["ca"] = certificate.Roots
	}
	return monitor(meta, services, map[string]any{
		"port": port, "path": "/metrics", "scheme": "https", "tlsConfig": verify,
		"bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
	})
}

func monitor(meta metav1.ObjectMeta, services map[string]string, endpoint map[string]any) *unstructured.Unstructured {
	labels := map[string]any{}
	for key, value := range services {
		labels[key] = value
	}
	return ForeignObject(ServiceMonitor, meta, map[string]any{
		"selector": map[string]any{"matchLabels": labels}, "endpoints": []any{endpoint},
	})
}

// FromScrapers are the namespaces in which OpenShift runs those who read metrics.
func FromScrapers() []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
		"network.openshift.io/policy-group": "monitoring"}}}}
}
