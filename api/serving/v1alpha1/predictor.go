// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// Predictor is a model of the model mesh.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=predictors,categories=models
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".spec.modelType.name"
// +kubebuilder:printcolumn:name="Available",type="boolean",JSONPath=".status.available"
// +kubebuilder:printcolumn:name="ActiveModel",type="string",JSONPath=".status.activeModelState"
// +kubebuilder:printcolumn:name="TargetModel",type="string",JSONPath=".status.targetModelState"
// +kubebuilder:printcolumn:name="Transition",type="string",JSONPath=".status.transitionStatus"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type Predictor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +optional
	Spec PredictorSpec `json:"spec,omitempty"`
	// Status is what was found.
	// +optional
	// +kubebuilder:default={transitionStatus:UpToDate, activeModelState:Pending, targetModelState:"", available:false, failedCopies:0, totalCopies:0}
	Status PredictorStatus `json:"status,omitempty"`
}

// PredictorList is a list of Predictors.
//
// +kubebuilder:object:root=true
type PredictorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Predictor `json:"items"`
}

// PredictorSpec describes a model and where it may run.
type PredictorSpec struct {
	PredictorModel `json:",inline"`
	// Gpu tells whether the model needs an accelerator or would like one.
	// +optional
	Gpu *GpuRequest `json:"gpu,omitempty"`
	// Runtime to serve the model with; chosen by model type when empty.
	// +optional
	Runtime *PredictorRuntime `json:"runtime,omitempty"`
	// ProtocolVersion that the runtime must speak.
	// +optional
	ProtocolVersion *v1beta1.InferenceServiceProtocol `json:"protocolVersion,omitempty"`
}

// GpuRequest tells whether a model needs an accelerator.
//
// +kubebuilder:validation:Enum=required;preferred
type GpuRequest string

// Whether a model needs an accelerator.
const (
	GpuRequired  GpuRequest = "required"
	GpuPreferred GpuRequest = "preferred"
)

// PredictorModel describes a model.
type PredictorModel struct {
	// Type of the model.
	Type PredictorModelType `json:"modelType"`
	// Path of the model; storage.path is its newer form.
	// +optional
	Path string `json:"path,omitempty"`
	// SchemaPath of the model; storage.schemaPath is its newer form.
	// +optional
	SchemaPath *string `json:"schemaPath,omitempty"`
	// Storage is where the model is.
	// +optional
	Storage *PredictorStorage `json:"storage,omitempty"`
	// ServiceAccountName is accepted and not used.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// PredictorModelType names the type of a model.
type PredictorModelType struct {
	// Name of the type, for example sklearn.
	Name string `json:"name"`
	// Version of the type.
	// +optional
	Version *string `json:"version,omitempty"`
}

// PredictorRuntime names a runtime.
type PredictorRuntime struct {
	// Name of the runtime.
	Name string `json:"name"`
}

// PredictorStorage is where a model is.
type PredictorStorage struct {
	v1beta1.StorageSpec `json:",inline"`
	// SchemaPath is the path of the model's schema file.
	// +optional
	SchemaPath *string `json:"schemaPath,omitempty"`
	// S3 is the former way to name an entry of the storage secret.
	// +optional
	S3 *S3StorageSource `json:"s3,omitempty"`
	// PersistentVolumeClaim is accepted and not supported.
	// +optional
	PersistentVolumeClaim *corev1.PersistentVolumeClaimVolumeSource `json:"persistentVolumeClaim,omitempty"`
}

// S3StorageSource names an entry of the storage secret and a bucket.
type S3StorageSource struct {
	// SecretKey is the key in the storage secret.
	SecretKey string `json:"secretKey"`
	// Bucket that the model is in.
	// +optional
	Bucket *string `json:"bucket,omitempty"`
}

// PredictorTransition tells whether what runs is what was asked for.
//
// +kubebuilder:validation:Enum=UpToDate;InProgress;BlockedByFailedLoad;InvalidSpec
type PredictorTransition string

// How a change is getting on.
const (
	UpToDate            PredictorTransition = "UpToDate"
	InProgress          PredictorTransition = "InProgress"
	BlockedByFailedLoad PredictorTransition = "BlockedByFailedLoad"
	InvalidSpec         PredictorTransition = "InvalidSpec"
)

// PredictorStatus is what was found.
type PredictorStatus struct {
	// Available tells whether the model takes requests.
	Available bool `json:"available"`
	// TransitionStatus tells whether what runs is what was asked for.
	// +kubebuilder:default=UpToDate
	TransitionStatus PredictorTransition `json:"transitionStatus"`
	// ActiveModelState of the model that takes requests.
	// +kubebuilder:default=Pending
	ActiveModelState v1beta1.ModelState `json:"activeModelState"`
	// TargetModelState of the model that will take its place.
	// +kubebuilder:default=""
	TargetModelState v1beta1.ModelState `json:"targetModelState"`
	// LastFailureInfo describes the last failure.
	// +optional
	LastFailureInfo *PredictorFailure `json:"lastFailureInfo,omitempty"`
	// HTTPEndpoint that takes requests.
	// +optional
	HTTPEndpoint string `json:"httpEndpoint,omitempty"`
	// GrpcEndpoint that takes requests.
	// +optional
	GrpcEndpoint string `json:"grpcEndpoint,omitempty"`
	// TotalCopies is how many copies there are.
	// +kubebuilder:default=0
	TotalCopies int `json:"totalCopies"`
	// FailedCopies is how many did not load.
	// +kubebuilder:default=0
	FailedCopies int `json:"failedCopies"`
	// Conditions say whether the model answers, and whether it is the one that was asked for last.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PredictorFailureReason says in one word why a model does not load.
//
// +kubebuilder:validation:Enum=ModelLoadFailed;RuntimeUnhealthy;NoSupportingRuntime;RuntimeNotRecognized;InvalidPredictorSpec
type PredictorFailureReason string

// Why a model does not load.
const (
	ModelLoadFailed      PredictorFailureReason = "ModelLoadFailed"
	RuntimeUnhealthy     PredictorFailureReason = "RuntimeUnhealthy"
	NoSupportingRuntime  PredictorFailureReason = "NoSupportingRuntime"
	RuntimeNotRecognized PredictorFailureReason = "RuntimeNotRecognized"
	InvalidPredictorSpec PredictorFailureReason = "InvalidPredictorSpec"
)

// PredictorFailure describes a failure.
type PredictorFailure struct {
	// Location of the failure, usually a pod.
	// +optional
	Location string `json:"location,omitempty"`
	// Reason in one word.
	// +optional
	Reason PredictorFailureReason `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
	// ModelID of the model in the mesh.
	// +optional
	ModelID string `json:"modelId,omitempty"`
	// Time of the failure.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}
