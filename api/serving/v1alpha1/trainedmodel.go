// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// TrainedModel adds a model to an InferenceService that serves many.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=trainedmodels,shortName=tm,categories=models
// +kubebuilder:printcolumn:name="URL",type="string",JSONPath=".status.url"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type TrainedModel struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +optional
	Spec TrainedModelSpec `json:"spec,omitempty"`
	// Status is what was found.
	// +optional
	Status TrainedModelStatus `json:"status,omitempty"`
}

// TrainedModelList is a list of TrainedModels.
//
// +kubebuilder:object:root=true
type TrainedModelList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TrainedModel `json:"items"`
}

// TrainedModelSpec says which model goes into which service.
type TrainedModelSpec struct {
	// InferenceService that serves the model.
	InferenceService string `json:"inferenceService"`
	// Model to serve.
	Model TrainedModelSource `json:"model"`
}

// TrainedModelSource describes a model.
type TrainedModelSource struct {
	// StorageURI is where the model is.
	StorageURI string `json:"storageUri"`
	// Framework the model was made with.
	Framework string `json:"framework"`
	// Memory that the model takes.
	Memory resource.Quantity `json:"memory"`
}

// TrainedModelStatus is what was found.
type TrainedModelStatus struct {
	v1beta1.Status `json:",inline"`
	// URL of the model.
	// +optional
	URL *string `json:"url,omitempty"`
	// Address inside the cluster.
	// +optional
	Address *v1beta1.Addressable `json:"address,omitempty"`
}
