// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// ServingRuntime says how models of some formats are served in its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=servingruntimes
// +kubebuilder:printcolumn:name="Disabled",type="boolean",JSONPath=".spec.disabled"
// +kubebuilder:printcolumn:name="ModelType",type="string",JSONPath=".spec.supportedModelFormats[*].name"
// +kubebuilder:printcolumn:name="Containers",type="string",JSONPath=".spec.containers[*].name"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ServingRuntime struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the runtime offers.
	// +optional
	Spec ServingRuntimeSpec `json:"spec,omitempty"`
	// Status of a runtime is empty.
	// +optional
	Status ServingRuntimeStatus `json:"status,omitempty"`
}

// ServingRuntimeList is a list of ServingRuntimes.
//
// +kubebuilder:object:root=true
type ServingRuntimeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ServingRuntime `json:"items"`
}

// ClusterServingRuntime says how models of some formats are served in all namespaces.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=clusterservingruntimes,scope=Cluster
// +kubebuilder:printcolumn:name="Disabled",type="boolean",JSONPath=".spec.disabled"
// +kubebuilder:printcolumn:name="ModelType",type="string",JSONPath=".spec.supportedModelFormats[*].name"
// +kubebuilder:printcolumn:name="Containers",type="string",JSONPath=".spec.containers[*].name"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ClusterServingRuntime struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the runtime offers.
	// +optional
	Spec ServingRuntimeSpec `json:"spec,omitempty"`
	// Status of a runtime is empty.
	// +optional
	Status ServingRuntimeStatus `json:"status,omitempty"`
}

// ClusterServingRuntimeList is a list of ClusterServingRuntimes.
//
// +kubebuilder:object:root=true
type ClusterServingRuntimeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterServingRuntime `json:"items"`
}

// ServingRuntimeStatus has nothing to say yet.
type ServingRuntimeStatus struct{}

// ServingRuntimeSpec describes a runtime: which models it takes and the pods that
// serve them.
type ServingRuntimeSpec struct {
	// SupportedModelFormats are the formats that the runtime can serve.
	// +optional
	SupportedModelFormats []SupportedModelFormat `json:"supportedModelFormats,omitempty"`
	// MultiModel marks a runtime whose pods serve many models.
	// +optional
	MultiModel *bool `json:"multiModel,omitempty"`
	// Disabled keeps the runtime from being used.
	// +optional
	Disabled *bool `json:"disabled,omitempty"`
	// ProtocolVersions that the server speaks; empty means any.
	// +optional
	ProtocolVersions []v1beta1.InferenceServiceProtocol `json:"protocolVersions,omitempty"`
	// WorkerSpec describes the workers when a model spans several nodes.
	// +optional
	WorkerSpec *WorkerSpec `json:"workerSpec,omitempty"`

	ServingRuntimePodSpec `json:",inline"`

	// GrpcMultiModelManagementEndpoint is where models are loaded and unloaded, "port:8085" or "unix:/path".
	// +optional
	GrpcMultiModelManagementEndpoint *string `json:"grpcEndpoint,omitempty"`
	// GrpcDataEndpoint takes gRPC inference requests.
	// +optional
	GrpcDataEndpoint *string `json:"grpcDataEndpoint,omitempty"`
	// HTTPDataEndpoint takes HTTP inference requests.
	// +optional
	HTTPDataEndpoint *string `json:"httpDataEndpoint,omitempty"`
	// Replicas of a multi-model runtime.
	// +optional
	Replicas *uint16 `json:"replicas,omitempty"`
	// StorageHelper fetches models for a multi-model runtime.
	// +optional
	StorageHelper *StorageHelper `json:"storageHelper,omitempty"`
	// BuiltInAdapter connects a known server to the model mesh.
	// +optional
	BuiltInAdapter *BuiltInAdapter `json:"builtInAdapter,omitempty"`
}

// SupportedModelFormat is a format that a runtime can serve.
type SupportedModelFormat struct {
	// Name of the format.
	Name string `json:"name"`
	// Version of the format.
	// +optional
	Version *string `json:"version,omitempty"`
	// AutoSelect lets the runtime be chosen for models that name none.
	// +optional
	AutoSelect *bool `json:"autoSelect,omitempty"`
	// Priority among the runtimes that can be chosen; higher wins.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Priority *int32 `json:"priority,omitempty"`
}

// ServingRuntimePodSpec is the part of a pod template that a runtime sets.
type ServingRuntimePodSpec struct {
	// Containers of the pod.
	Containers []corev1.Container `json:"containers" patchStrategy:"merge" patchMergeKey:"name"`
	// Volumes that the containers may mount.
	// +optional
	Volumes []corev1.Volume `json:"volumes,omitempty" patchStrategy:"merge,retainKeys" patchMergeKey:"name"`
	// NodeSelector names labels that a node must have to run the pod.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Affinity holds scheduling constraints towards nodes and other pods.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// Tolerations let the pod run on tainted nodes.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Labels for the pods.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations for the pods.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// ImagePullSecrets name the secrets used to pull the images.
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	// HostIPC gives the pod the interprocess communication of its node.
	// +optional
	HostIPC bool `json:"hostIPC,omitempty"`
	// SchedulerName is the scheduler that places the pod.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
	// ResourceClaims name the claims for devices that the containers may use.
	// +optional
	// +listType=map
	// +listMapKey=name
	ResourceClaims []corev1.PodResourceClaim `json:"resourceClaims,omitempty" patchStrategy:"merge,retainKeys" patchMergeKey:"name"`
}

// WorkerSpec describes the workers of a runtime that spans several nodes.
type WorkerSpec struct {
	ServingRuntimePodSpec `json:",inline"`
	// PipelineParallelSize is the number of nodes the layers are spread over.
	// +optional
	PipelineParallelSize *int `json:"pipelineParallelSize,omitempty"`
	// TensorParallelSize is the number of accelerators per node.
	// +optional
	TensorParallelSize *int `json:"tensorParallelSize,omitempty"`
}

// StorageHelper fetches models for a multi-model runtime.
type StorageHelper struct {
	// Disabled leaves fetching to the runtime.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
}

// ServerType names a server that a built-in adapter knows.
type ServerType string

// Servers with a built-in adapter.
const (
	ServerTriton   ServerType = "triton"
	ServerMLServer ServerType = "mlserver"
	ServerOVMS     ServerType = "ovms"
)

// BuiltInAdapter connects a known server to the model mesh.
type BuiltInAdapter struct {
	// ServerType is triton, mlserver or ovms.
	// +optional
	ServerType ServerType `json:"serverType,omitempty"`
	// RuntimeManagementPort of the server.
	// +optional
	RuntimeManagementPort int `json:"runtimeManagementPort,omitempty"`
	// MemBufferBytes of the container's memory that models must leave free.
	// +optional
	MemBufferBytes int `json:"memBufferBytes,omitempty"`
	// ModelLoadingTimeoutMillis is how long a model may take to load.
	// +optional
	ModelLoadingTimeoutMillis int `json:"modelLoadingTimeoutMillis,omitempty"`
	// Env lists environment variables of the adapter.
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
}
