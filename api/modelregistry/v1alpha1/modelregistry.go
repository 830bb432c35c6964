// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ModelRegistry runs a registry of models with its database connection.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=modelregistries,scope=Namespaced,shortName=mr,categories=models
// +kubebuilder:deprecatedversion:warning="Version v1alpha1 of the ModelRegistry API is deprecated and will be removed in a future release. Please use v1beta1 instead."
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Istio",type=string,JSONPath=`.status.conditions[?(@.type=="IstioAvailable")].status`,priority=2
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=`.status.conditions[?(@.type=="GatewayAvailable")].status`,priority=2
// +kubebuilder:printcolumn:name="OAuthProxy",type=string,JSONPath=`.status.conditions[?(@.type=="OAuthProxyAvailable")].status`,priority=2
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Hosts",type=string,JSONPath=`.status.hostsStr`,priority=2
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].message`,priority=2
type ModelRegistry struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// How the registry should run.
	// +optional
	Spec ModelRegistrySpec `json:"spec,omitzero"`

	// How the registry runs now.
	// +optional
	Status ModelRegistryStatus `json:"status,omitzero"`
}

// ModelRegistryList is a list of registries.
//
// +kubebuilder:object:root=true
type ModelRegistryList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ModelRegistry `json:"items"`
}

// ModelRegistrySpec is how a registry should run.
//
// +kubebuilder:validation:XValidation:rule="!has(self.istio) || !has(self.oauthProxy)",message="Cannot use both istio and oauthProxy"
type ModelRegistrySpec struct {
	// The REST server.
	// +required
	Rest Rest `json:"rest"`

	// Ignored: the gRPC server is no longer run.
	// +required
	Grpc Grpc `json:"grpc"`

	// PostgreSQL database of the registry; it goes before mysql when both are there.
	// +optional
	Postgres *Postgres `json:"postgres,omitempty"`

	// MySQL database of the registry.
	// +optional
	MySQL *MySQL `json:"mysql,omitempty"`

	// Without effect; kept for manifests that carry it.
	// +optional
	EnableDatabaseUpgrade *bool `json:"enable_database_upgrade,omitempty"`

	// Without effect; kept for manifests that carry it.
	// +optional
	DowngradeDBSchemaVersion *int64 `json:"downgrade_db_schema_version,omitempty"`

	// Former service mesh settings; they are turned into oauthProxy.
	// +optional
	Istio *Istio `json:"istio,omitempty"`

	// Proxy in front of the registry.
	// +optional
	OAuthProxy *OAuthProxy `json:"oauthProxy,omitempty"`
}

// ModelRegistryStatus is how a registry runs now.
type ModelRegistryStatus struct {
	// Names under which the registry is reached.
	// +optional
	Hosts []string `json:"hosts,omitempty"`

	// The same names as one text, with commas between.
	// +optional
	HostsStr string `json:"hostsStr,omitempty"`

	// What was added to the spec when the registry was set up, as a JSON merge patch.
	// +optional
	SpecDefaults string `json:"specDefaults,omitempty"`

	// Findings about the registry: Available, Progressing, KubeRBACProxyAvailable, Degraded.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Toggle switches something on or off.
//
// +kubebuilder:validation:Enum=disabled;enabled
type Toggle string

// The two positions of a Toggle.
const (
	Disabled Toggle = "disabled"
	Enabled  Toggle = "enabled"
)

// Rest is a registry's REST server.
type Rest struct {
	// Port of the server.
	// +optional
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// Whether an OpenShift Route leads to the server.
	// +optional
	// +kubebuilder:default=disabled
	ServiceRoute Toggle `json:"serviceRoute,omitempty"`

	// Processor and memory of the server.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// Image of the server; the one that the platform ships when empty.
	// +optional
	Image string `json:"image,omitempty"`
}

// Grpc is a registry's former gRPC server; it is no longer run.
type Grpc struct {
	// Port of the server.
	// +optional
	// +kubebuilder:default=9090
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// Processor and memory of the server.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// Image of the server.
	// +optional
	Image string `json:"image,omitempty"`
}

// OAuthProxy is a proxy in front of a registry.
//
// +kubebuilder:validation:XValidation:rule="has(self.tlsCertificateSecret) == has(self.tlsKeySecret)",message="tlsCertificateSecret and tlsKeySecret MUST be set together"
type OAuthProxy struct {
	// Port of the proxy.
	// +optional
	// +kubebuilder:default=8443
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// Certificate of the proxy.
	// +optional
	TLSCertificateSecret *SecretKey `json:"tlsCertificateSecret,omitempty"`

	// Private key of the proxy.
	// +optional
	TLSKeySecret *SecretKey `json:"tlsKeySecret,omitempty"`

	// Whether a Route leads to the proxy.
	// +optional
	// +kubebuilder:default=enabled
	ServiceRoute Toggle `json:"serviceRoute,omitempty"`

	// Domain of the Route; that of the cluster when empty.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9]))*)?$`
	Domain string `json:"domain,omitempty"`

	// Port under which the Route is reached.
	// +optional
	// +kubebuilder:default=443
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	RoutePort *int32 `json:"routePort,omitempty"`

	// Image of the proxy; the one that the platform ships when empty.
	// +optional
	Image string `json:"image,omitempty"`
}
