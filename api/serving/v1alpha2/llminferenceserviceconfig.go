// SPDX-License-Identifier: Apache-2.0

package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// LLMInferenceServiceConfig is a part of a spec that LLMInferenceServices refer
// to. Text in it may hold template actions, so names under the router are not
// held to their patterns here but in the service that comes of it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=llminferenceserviceconfigs
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type LLMInferenceServiceConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec that is merged into the services.
	// +optional
	Spec LLMInferenceServiceSpec `json:"spec,omitempty"`
	// Status is what was found.
	// +optional
	Status LLMInferenceServiceConfigStatus `json:"status,omitempty"`
}

// Hub marks the version that others convert to.
func (*LLMInferenceServiceConfig) Hub() {}

// LLMInferenceServiceConfigList is a list of LLMInferenceServiceConfigs.
//
// +kubebuilder:object:root=true
type LLMInferenceServiceConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LLMInferenceServiceConfig `json:"items"`
}

// LLMInferenceServiceConfigStatus is what was found.
type LLMInferenceServiceConfigStatus struct {
	v1beta1.Status `json:",inline"`
	// ReferencedBy lists the services that use the config.
	// +optional
	// +listType=atomic
	ReferencedBy []UntypedObjectReference `json:"referencedBy,omitempty"`
}
