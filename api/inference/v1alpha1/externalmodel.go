// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ExternalModel is a model that one or several providers outside the cluster run.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=externalmodels,scope=Namespaced,categories=models
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExternalModel struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Which providers run the model.
	// +optional
	Spec ExternalModelSpec `json:"spec,omitzero"`

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

// ExternalModelSpec says which providers run an external model.
type ExternalModelSpec struct {
	// Name by which clients ask for the model; the object's own name when empty.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ModelName string `json:"modelName,omitempty"`

	// Providers among which requests are shared out by weight.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	ExternalProviderRefs []ExternalProviderRef `json:"externalProviderRefs"`
}

// ExternalProviderRef is one provider of an external model and how to ask it.
type ExternalProviderRef struct {
	// The ExternalProvider, in the same namespace.
	// +required
	Ref NameRef `json:"ref"`

	// Name of the model at the provider.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TargetModel string `json:"targetModel"`

	// Form of the provider's API, such as openai-chat or messages.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	APIFormat string `json:"apiFormat"`

	// Path of the provider's API; {key} is replaced by that key of config.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^/.*`
	Path string `json:"path"`

	// Share of the requests relative to the other providers; 0 switches the provider off.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Weight *int `json:"weight,omitempty"`

	// How to sign in, in place of what the provider says.
	// +optional
	Auth *Auth `json:"auth,omitempty"`

	// Settings that go over those of the provider.
	// +optional
	Config map[string]string `json:"config,omitempty"`
}

// ExternalModelStatus says whether an external model can be reached.
type ExternalModelStatus struct {
	// State in one word.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// Name of the HTTPRoute that leads to the model.
	// +optional
	HTTPRouteName string `json:"httpRouteName,omitempty"`

	// Findings about the model: Ready.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
