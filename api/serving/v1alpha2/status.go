// SPDX-License-Identifier: Apache-2.0

package v1alpha2

import (
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// LLMInferenceServiceStatus is what was found.
type LLMInferenceServiceStatus struct {
	v1beta1.Status `json:",inline"`
	// URL of the service.
	// +optional
	URL *string `json:"url,omitempty"`
	// Address inside the cluster.
	// +optional
	Address *v1beta1.Addressable `json:"address,omitempty"`
	// Addresses are all the ways to reach the service.
	// +optional
	// +listType=atomic
	Addresses []AddressStatus `json:"addresses,omitempty"`
	// Router lists the objects on the way to the pods.
	// +optional
	Router *RouterStatus `json:"router,omitempty"`
	// Workloads lists the objects that run the pods.
	// +optional
	Workloads *WorkloadsStatus `json:"workloads,omitempty"`
	// AppliedConfigs lists the configs that were merged, in order.
	// +optional
	// +listType=atomic
	AppliedConfigs []AppliedConfig `json:"appliedConfigs,omitempty"`
}

// AddressStatus is one way to reach the service.
type AddressStatus struct {
	v1beta1.Addressable `json:",inline"`
	// Origin is the object that the address comes from.
	// +optional
	Origin *gatewayv1.ObjectReference `json:"origin,omitempty"`
	// Models that answer at this address.
	// +optional
	Models []AddressModel `json:"models,omitempty"`
}

// AddressModel is a model that answers at an address.
type AddressModel struct {
	// Name that requests use.
	Name string `json:"name"`
}

// RouterStatus lists the objects on the way to the pods.
type RouterStatus struct {
	// Gateways in use.
	// +optional
	// +listType=atomic
	Gateways []GatewayStatus `json:"gateways,omitempty"`
	// Scheduler in use.
	// +optional
	Scheduler *SchedulerStatus `json:"scheduler,omitempty"`
	// Group that the service shares a route with.
	// +optional
	Group *RouteGroupStatus `json:"group,omitempty"`
}

// GatewayStatus is a gateway in use.
type GatewayStatus struct {
	gatewayv1.ObjectReference `json:",inline"`
	// Listeners in use.
	// +optional
	// +listType=atomic
	Listeners []gatewayv1.SectionName `json:"listeners,omitempty"`
	// HTTPRoutes attached to it.
	// +optional
	// +listType=atomic
	HTTPRoutes []gatewayv1.ObjectReference `json:"httpRoutes,omitempty"`
}

// SchedulerStatus is the scheduler in use.
type SchedulerStatus struct {
	// InferencePool of pods to pick from.
	// +optional
	InferencePool *gatewayv1.ObjectReference `json:"inferencePool,omitempty"`
	// Service of the picker.
	// +optional
	Service *gatewayv1.ObjectReference `json:"service,omitempty"`
}

// RouteGroupStatus is a group of services that share one route.
type RouteGroupStatus struct {
	// Name of the group.
	Name string `json:"name"`
	// Members of the group.
	// +optional
	// +listType=map
	// +listMapKey=name
	Members []RouteGroupMember `json:"members,omitempty"`
}

// RouteGroupMember is a service of a group.
type RouteGroupMember struct {
	// Name of the service.
	Name string `json:"name"`
	// Weight of the service.
	Weight int32 `json:"weight"`
	// Stopped tells that the service takes no requests.
	// +optional
	Stopped bool `json:"stopped,omitempty"`
	// BackendRef is where its requests go.
	// +optional
	BackendRef *gatewayv1.BackendObjectReference `json:"backendRef,omitempty"`
}

// WorkloadsStatus lists the objects that run the pods.
type WorkloadsStatus struct {
	// Primary runs the servers.
	// +optional
	Primary *WorkloadStatus `json:"primary,omitempty"`
	// Prefill runs the servers for the first pass.
	// +optional
	Prefill *WorkloadStatus `json:"prefill,omitempty"`
	// Scheduler runs the endpoint picker.
	// +optional
	Scheduler *WorkloadStatus `json:"scheduler,omitempty"`
	// Service in front of the servers.
	// +optional
	Service *corev1.TypedLocalObjectReference `json:"service,omitempty"`
}

// WorkloadStatus is an object that runs pods.
//
// +structType=atomic
type WorkloadStatus struct {
	corev1.TypedLocalObjectReference `json:",inline"`
	// ReadyReplicas of the object.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`
}

// ConfigSource tells why a config was merged.
//
// +kubebuilder:validation:Enum=Preset;UserRef
type ConfigSource string

// Why a config was merged.
const (
	ConfigFromPreset  ConfigSource = "Preset"
	ConfigFromUserRef ConfigSource = "UserRef"
)

// AppliedConfig is a config that was merged.
type AppliedConfig struct {
	// Name of the config.
	Name gatewayv1.ObjectName `json:"name"`
	// Namespace of the config.
	Namespace gatewayv1.Namespace `json:"namespace"`
	// Source tells why it was merged.
	Source ConfigSource `json:"source"`
}
