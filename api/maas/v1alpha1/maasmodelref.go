// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MaaSModelRef publishes a model, so that policies and subscriptions can name it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=maasmodelrefs,scope=Namespaced,categories=models
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`
// +kubebuilder:printcolumn:name="HTTPRoute",type=string,JSONPath=`.status.httpRouteName`
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=`.status.httpRouteGatewayName`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MaaSModelRef struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Which model is published.
	// +required
	Spec MaaSModelRefSpec `json:"spec"`

	// Where and how the model is reached.
	// +optional
	Status MaaSModelRefStatus `json:"status,omitzero"`
}

// MaaSModelRefList is a list of published models.
//
// +kubebuilder:object:root=true
type MaaSModelRefList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []MaaSModelRef `json:"items"`
}

// MaaSModelRefSpec says which model is published.
type MaaSModelRefSpec struct {
	// The model itself, in the same namespace.
	// +required
	ModelRef BackendRef `json:"modelRef"`

	// Address to report instead of the one that was found.
	// +optional
	EndpointOverride string `json:"endpointOverride,omitempty"`

	// AITenant through whose gateway the model is reached.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	TenantRef string `json:"tenantRef,omitempty"`
}

// ModelKind is a kind of object that can stand behind a published model.
//
// +kubebuilder:validation:Enum=LLMInferenceService;ExternalModel;InferenceService
type ModelKind string

// The kinds that can stand behind a published model.
const (
	LLMInferenceServiceModel ModelKind = "LLMInferenceService"
	ExternalModelModel       ModelKind = "ExternalModel"
	InferenceServiceModel    ModelKind = "InferenceService"
)

// BackendRef names the object behind a published model.
type BackendRef struct {
	// Kind of the object.
	// +required
	Kind ModelKind `json:"kind"`

	// Name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// MaaSModelRefPhase is a published model's state in one word.
//
// +kubebuilder:validation:Enum=Pending;Ready;Unhealthy;Failed;Invalid
type MaaSModelRefPhase string

// The states of a published model.
const (
	MaaSModelRefPending   MaaSModelRefPhase = "Pending"
	MaaSModelRefReady     MaaSModelRefPhase = "Ready"
	MaaSModelRefUnhealthy MaaSModelRefPhase = "Unhealthy"
	MaaSModelRefFailed    MaaSModelRefPhase = "Failed"
	MaaSModelRefInvalid   MaaSModelRefPhase = "Invalid"
)

// MaaSModelRefStatus says where and how a published model is reached.
type MaaSModelRefStatus struct {
	// State in one word.
	// +optional
	Phase MaaSModelRefPhase `json:"phase,omitempty"`

	// Address of the model; empty unless the model is ready.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// Name of the HTTPRoute that leads to the model.
	// +optional
	HTTPRouteName string `json:"httpRouteName,omitempty"`

	// Namespace of that HTTPRoute.
	// +optional
	HTTPRouteNamespace string `json:"httpRouteNamespace,omitempty"`

	// Name of the Gateway that the HTTPRoute hangs on.
	// +optional
	HTTPRouteGatewayName string `json:"httpRouteGatewayName,omitempty"`

	// Namespace of that Gateway.
	// +optional
	HTTPRouteGatewayNamespace string `json:"httpRouteGatewayNamespace,omitempty"`

	// Host names that the HTTPRoute answers to.
	// +optional
	HTTPRouteHostnames []string `json:"httpRouteHostnames,omitempty"`

	// AITenant that is in use.
	// +optional
	ResolvedTenantRef string `json:"resolvedTenantRef,omitempty"`

	// Name by which clients ask for the model.
	// +optional
	ResolvedModelAlias string `json:"resolvedModelAlias,omitempty"`

	// Findings about the model: Ready, GovernanceAttached, RuntimeReady, ModelIdentityUnique.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
