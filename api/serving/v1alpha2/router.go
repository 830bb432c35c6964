// SPDX-License-Identifier: Apache-2.0

package v1alpha2

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// RouterSpec describes the way to the pods. An empty block asks for a managed
// object.
type RouterSpec struct {
	// Route through a gateway.
	// +optional
	Route *GatewayRoutesSpec `json:"route,omitempty"`
	// Gateway that the route belongs to.
	// +optional
	Gateway *GatewaySpec `json:"gateway,omitempty"`
	// Ingress in place of route and gateway.
	// +optional
	Ingress *IngressSpec `json:"ingress,omitempty"`
	// Scheduler picks the best pod for each request.
	// +optional
	Scheduler *SchedulerSpec `json:"scheduler,omitempty"`
}

// GatewayRoutesSpec is a route through a gateway.
type GatewayRoutesSpec struct {
	// HTTP route of the user, or references to some.
	// +optional
	HTTP *HTTPRouteSpec `json:"http,omitempty"`
	// Group of services that share one route.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Group *string `json:"group,omitempty"`
	// Weight of the service in its group.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Weight *int32 `json:"weight,omitempty"`
}

// HTTPRouteSpec is a route of the user; refs and spec exclude each other.
type HTTPRouteSpec struct {
	// Refs name routes that exist.
	// +optional
	Refs []corev1.LocalObjectReference `json:"refs,omitempty"`
	// Spec of the route to create.
	// +optional
	Spec *gatewayv1.HTTPRouteSpec `json:"spec,omitempty"`
}

// GatewaySpec names gateways.
type GatewaySpec struct {
	// Refs name gateways that exist.
	// +optional
	Refs []GatewayReference `json:"refs,omitempty"`
}

// GatewayReference names a gateway and, if wanted, one of its listeners.
type GatewayReference struct {
	UntypedObjectReference `json:",inline"`
	// SectionName is the listener.
	// +optional
	SectionName *gatewayv1.SectionName `json:"sectionName,omitempty"`
}

// IngressSpec names ingresses.
type IngressSpec struct {
	// Refs name ingresses that exist.
	// +optional
	Refs []UntypedObjectReference `json:"refs,omitempty"`
}

// UntypedObjectReference names an object whose kind is known from where it stands.
type UntypedObjectReference struct {
	// Name of the object.
	// +optional
	Name gatewayv1.ObjectName `json:"name,omitempty"`
	// Namespace of the object.
	// +optional
	Namespace gatewayv1.Namespace `json:"namespace,omitempty"`
}

// SchedulerSpec describes the endpoint picker, which picks the best pod for each
// request.
type SchedulerSpec struct {
	// Pool of pods to pick from.
	// +optional
	Pool *InferencePoolSpec `json:"pool,omitempty"`
	// Template of the picker's pods.
	// +optional
	Template *PodSpec `json:"template,omitempty"`
	// Config of the picker.
	// +optional
	Config *SchedulerConfigSpec `json:"config,omitempty"`
	// Replicas of the picker.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Labels for the picker's pods.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations for the picker's pods.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Tokenizer turns prompts into tokens for the picker.
	// +optional
	Tokenizer *TokenizerSpec `json:"tokenizer,omitempty"`
}

// InferencePoolSpec is a pool of the user; spec and ref exclude each other.
type InferencePoolSpec struct {
	// Spec of the pool to create.
	// +optional
	Spec *inferencev1.InferencePoolSpec `json:"spec,omitempty"`
	// Ref names a pool that exists.
	// +optional
	Ref *corev1.LocalObjectReference `json:"ref,omitempty"`
}

// SchedulerConfigSpec is the config of the picker; exactly one place is set.
type SchedulerConfigSpec struct {
	// Inline holds the config itself.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Inline *runtime.RawExtension `json:"inline,omitempty"`
	// Ref names a key of a config map.
	// +optional
	Ref *corev1.ConfigMapKeySelector `json:"ref,omitempty"`
}

// TokenizerSpec turns prompts into tokens for the picker.
type TokenizerSpec struct {
	// Template of the tokenizer's pods.
	// +optional
	Template *PodSpec `json:"template,omitempty"`
}
