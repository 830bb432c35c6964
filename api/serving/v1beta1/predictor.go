// SPDX-License-Identifier: Apache-2.0

package v1beta1

import corev1 "k8s.io/api/core/v1"

// PredictorSpec describes the predictor: exactly one of the framework blocks, the
// model block or containers of the user.
type PredictorSpec struct {
	// Name goes into the names of the predictor's Deployment and Service.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// SKLearn serves a scikit-learn model.
	// +optional
	SKLearn *PredictorExtensionSpec `json:"sklearn,omitempty"`
	// XGBoost serves an XGBoost model.
	// +optional
	XGBoost *PredictorExtensionSpec `json:"xgboost,omitempty"`
	// Tensorflow serves a TensorFlow model.
	// +optional
	Tensorflow *PredictorExtensionSpec `json:"tensorflow,omitempty"`
	// PyTorch serves a PyTorch model.
	// +optional
	PyTorch *PredictorExtensionSpec `json:"pytorch,omitempty"`
	// Triton serves models with Triton Inference Server.
	// +optional
	Triton *PredictorExtensionSpec `json:"triton,omitempty"`
	// ONNX serves an ONNX model.
	// +optional
	ONNX *PredictorExtensionSpec `json:"onnx,omitempty"`
	// HuggingFace serves a Hugging Face model.
	// +optional
	HuggingFace *PredictorExtensionSpec `json:"huggingface,omitempty"`
	// PMML serves a PMML model.
	// +optional
	PMML *PredictorExtensionSpec `json:"pmml,omitempty"`
	// LightGBM serves a LightGBM model.
	// +optional
	LightGBM *PredictorExtensionSpec `json:"lightgbm,omitempty"`
	// Paddle serves a PaddlePaddle model.
	// +optional
	Paddle *PredictorExtensionSpec `json:"paddle,omitempty"`
	// Model names a format, for which a runtime is chosen.
	// +optional
	Model *ModelSpec `json:"model,omitempty"`
	// StorageUris are downloaded before the containers start.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	StorageUris []StorageUri `json:"storageUris,omitempty"`
	// StorageContainerName names the ClusterStorageContainer to download with.
	// +optional
	StorageContainerName string `json:"storageContainerName,omitempty"`
	// WorkerSpec makes the predictor span several nodes.
	// +optional
	WorkerSpec             *WorkerSpec `json:"workerSpec,omitempty"`
	PodSpec                `json:",inline"`
	ComponentExtensionSpec `json:",inline"`
}

// WorkerSpec describes the worker pods of a predictor that spans several nodes.
type WorkerSpec struct {
	PodSpec `json:",inline"`
	// EphemeralContainers are temporary containers for debugging.
	// +optional
	EphemeralContainers []corev1.EphemeralContainer `json:"ephemeralContainers,omitempty"`
	// PipelineParallelSize is the number of nodes the layers are spread over.
	// +optional
	PipelineParallelSize *int `json:"pipelineParallelSize,omitempty"`
	// TensorParallelSize is the number of accelerators per node.
	// +optional
	TensorParallelSize *int `json:"tensorParallelSize,omitempty"`
}

// ModelFormat names the format of a model.
type ModelFormat struct {
	// Name of the format, for example onnx.
	Name string `json:"name"`
	// Version of the format.
	// +optional
	Version *string `json:"version,omitempty"`
}

// ModelSpec describes a model by its format.
type ModelSpec struct {
	// ModelFormat of the model.
	// +optional
	ModelFormat ModelFormat `json:"modelFormat,omitzero"`
	// Runtime names the runtime to use; chosen by format when empty.
	// +optional
	Runtime                *string `json:"runtime,omitempty"`
	PredictorExtensionSpec `json:",inline"`
}

// InferenceServiceProtocol is a protocol that a model server speaks.
type InferenceServiceProtocol string

// Protocols known to runtimes.
const (
	ProtocolV1     InferenceServiceProtocol = "v1"
	ProtocolV2     InferenceServiceProtocol = "v2"
	ProtocolGRPCV1 InferenceServiceProtocol = "grpc-v1"
	ProtocolGRPCV2 InferenceServiceProtocol = "grpc-v2"
)

// PredictorExtensionSpec is what all framework blocks have in common.
type PredictorExtensionSpec struct {
	// StorageURI is where the model is.
	// +optional
	StorageURI *string `json:"storageUri,omitempty"`
	// RuntimeVersion is the tag of the image.
	// +optional
	RuntimeVersion *string `json:"runtimeVersion,omitempty"`
	// ProtocolVersion is the protocol to speak: v1, v2, grpc-v1 or grpc-v2.
	// +optional
	ProtocolVersion *InferenceServiceProtocol `json:"protocolVersion,omitempty"`
	Container       `json:",inline"`
	// Storage names an entry of the storage secret and a path in it.
	// +optional
	Storage *ModelStorageSpec `json:"storage,omitempty"`
	// Confidential asks for a model that is decrypted where it runs.
	// +optional
	Confidential *ConfidentialSpec `json:"confidential,omitempty"`
}

// ConfidentialSpec asks for confidential serving.
type ConfidentialSpec struct {
	// Enabled turns confidential serving on.
	Enabled bool `json:"enabled"`
	// ResourceID of the key at the key broker.
	// +optional
	ResourceID *string `json:"resourceId,omitempty"`
}

// StorageUri is one download.
type StorageUri struct {
	// URI to download from.
	// +kubebuilder:validation:MinLength=1
	Uri string `json:"uri"`
	// MountPath is where the containers see it.
	// +optional
	// +kubebuilder:default=/mnt/models
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^/.*`
	MountPath string `json:"mountPath,omitempty"`
}

// StorageSpec names an entry of the storage secret and a path in it.
type StorageSpec struct {
	// Path inside the storage.
	// +optional
	Path *string `json:"path,omitempty"`
	// Parameters override those of the entry.
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`
	// StorageKey is the key in the storage secret.
	// +optional
	StorageKey *string `json:"key,omitempty"`
}

// ModelStorageSpec is the storage of a model.
type ModelStorageSpec struct {
	StorageSpec `json:",inline"`
	// SchemaPath is the path of the model's schema file.
	// +optional
	SchemaPath *string `json:"schemaPath,omitempty"`
}

// LoggerStorageSpec is the storage that a logger writes to.
type LoggerStorageSpec struct {
	StorageSpec `json:",inline"`
	// ServiceAccountName is the identity that has the credentials.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}
