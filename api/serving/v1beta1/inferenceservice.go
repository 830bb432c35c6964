// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InferenceService serves one model, with a transformer before it and an
// explainer beside it where wanted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=inferenceservices,shortName=isvc,categories=models
// +kubebuilder:printcolumn:name="URL",type="string",JSONPath=".status.url"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Prev",type="integer",JSONPath=".status.components.predictor.traffic[?(@.tag=='prev')].percent"
// +kubebuilder:printcolumn:name="Latest",type="integer",JSONPath=".status.components.predictor.traffic[?(@.latestRevision==true)].percent"
// +kubebuilder:printcolumn:name="PrevRolledoutRevision",type="string",JSONPath=".status.components.predictor.traffic[?(@.tag=='prev')].revisionName"
// +kubebuilder:printcolumn:name="LatestReadyRevision",type="string",JSONPath=".status.components.predictor.traffic[?(@.latestRevision==true)].revisionName"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type InferenceService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +optional
	Spec InferenceServiceSpec `json:"spec,omitempty"`
	// Status is what was found.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Status InferenceServiceStatus `json:"status,omitempty"`
}

// InferenceServiceList is a list of InferenceServices.
//
// +kubebuilder:object:root=true
type InferenceServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []InferenceService `json:"items"`
}

// InferenceServiceSpec describes the components of the service.
type InferenceServiceSpec struct {
	// Predictor serves the model.
	Predictor PredictorSpec `json:"predictor"`
	// Explainer answers why the model said what it said.
	// +optional
	Explainer *ExplainerSpec `json:"explainer,omitempty"`
	// Transformer works on requests and responses around the predictor.
	// +optional
	Transformer *TransformerSpec `json:"transformer,omitempty"`
	// Canary lists other predictors that take a share of the traffic.
	// +optional
	// +listType=atomic
	Canary []CanarySpec `json:"canary,omitempty"`
}

// CanarySpec is a predictor on trial.
type CanarySpec struct {
	// Predictor on trial.
	Predictor CanaryPredictorSpec `json:"predictor"`
	// TrafficPercent is the share of requests it gets.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	TrafficPercent int32 `json:"trafficPercent"`
}

// CanaryPredictorSpec is a predictor as a canary describes it. It differs from
// the one of the service in what the schema lists, not in meaning.
type CanaryPredictorSpec struct {
	PredictorSpec `json:",inline"`
	// EphemeralContainers are temporary containers for debugging.
	// +optional
	EphemeralContainers []corev1.EphemeralContainer `json:"ephemeralContainers,omitempty"`
}

// TransformerSpec describes the transformer.
type TransformerSpec struct {
	PodSpec                `json:",inline"`
	ComponentExtensionSpec `json:",inline"`
	// StorageUris are downloaded before the containers start.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	StorageUris []StorageUri `json:"storageUris,omitempty"`
}

// ExplainerSpec describes the explainer: a known one or containers of the user.
type ExplainerSpec struct {
	// ART runs the Adversarial Robustness Toolbox.
	// +optional
	ART                    *ARTExplainerSpec `json:"art,omitempty"`
	PodSpec                `json:",inline"`
	ComponentExtensionSpec `json:",inline"`
	// StorageUris are downloaded before the containers start.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	StorageUris []StorageUri `json:"storageUris,omitempty"`
}

// ARTSquareAttack is the one known type of ART explainer.
const ARTSquareAttack = "SquareAttack"

// ARTExplainerSpec describes an explainer of the Adversarial Robustness Toolbox.
type ARTExplainerSpec struct {
	// Type of explainer.
	// +optional
	Type string `json:"type,omitempty"`
	// StorageURI of the explainer's data.
	// +optional
	StorageURI string `json:"storageUri,omitempty"`
	// RuntimeVersion is the tag of the image.
	// +optional
	RuntimeVersion *string `json:"runtimeVersion,omitempty"`
	// Config holds settings that are passed on as they are.
	// +optional
	Config    map[string]string `json:"config,omitempty"`
	Container `json:",inline"`
	// Storage names an entry of the storage secret and a path in it.
	// +optional
	Storage *ModelStorageSpec `json:"storage,omitempty"`
}
