// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ExternalModel is a model that a provider outside the cluster runs; new ones belong to inference.opendatahub.io.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=externalmodels,scope=Namespaced,categories=models
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="TargetModel",type=string,JSONPath=`.spec.targetModel`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.endpoint`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExternalModel struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Where the model is and how to sign in there.
	// +required
	Spec ExternalModelSpec `json:"spec"`

	// Whether the model can be reached.
	// +optional
	Status ExternalModelStatus `json:"status,omitzero"`
}

// ExternalModelList is a list of external models.
//
// +kubebuilder:object:root=true
type ExternalModelList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ExternalModel `json:"items"`
}

// ExternalModelSpec says where an external model is.
type ExternalModelSpec struct {
	// Provider that runs the model, such as openai or anthropic.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider"`

	// Name of the model at the provider.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TargetModel string `json:"targetModel"`

	// Host name of the provider's API, without scheme or path.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?)*$`
	Endpoint string `json:"endpoint"`

	// Secret of the same namespace with the provider's key under api-key.
	// +required
	CredentialRef CredentialRef `json:"credentialRef"`
}

// CredentialRef names a Secret with a provider's key.
type CredentialRef struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ExternalModelPhase is an external model's state in one word.
//
// +kubebuilder:validation:Enum=Pending;Ready;Failed
type ExternalModelPhase string

// The states of an external model.
const (
	ExternalModelPending ExternalModelPhase = "Pending"
	ExternalModelReady   ExternalModelPhase = "Ready"
	ExternalModelFailed  ExternalModelPhase = "Failed"
)

// ExternalModelStatus says whether an external model can be reached.
type ExternalModelStatus struct {
	// State in one word.
	// +optional
	Phase ExternalModelPhase `json:"phase,omitempty"`

	// Findings about the model: Ready.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
