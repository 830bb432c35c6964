// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ExternalProvider is a service outside the cluster that runs models.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=externalproviders,scope=Namespaced
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.endpoint`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExternalProvider struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Where the provider is and how to sign in there.
	// +optional
	Spec ExternalProviderSpec `json:"spec,omitzero"`

	// Whether the provider can be used.
	// +optional
	Status ExternalProviderStatus `json:"status,omitzero"`
}

// ExternalProviderList is a list of providers.
//
// +kubebuilder:object:root=true
type ExternalProviderList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ExternalProvider `json:"items"`
}

// ExternalProviderSpec says where a provider is.
type ExternalProviderSpec struct {
	// What provider it is, such as openai, anthropic, azure, aws-bedrock or vertex.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider"`

	// Host name of the provider's API, with a domain, without scheme or path.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?)+$`
	Endpoint string `json:"endpoint"`

	// How to sign in.
	// +required
	Auth Auth `json:"auth"`

	// Settings that fill the placeholders of paths.
	// +optional
	Config map[string]string `json:"config,omitempty"`
}

// ExternalProviderStatus says whether a provider can be used.
type ExternalProviderStatus struct {
	// State in one word.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// Findings about the provider: Ready.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
