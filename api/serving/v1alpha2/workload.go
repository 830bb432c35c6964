// SPDX-License-Identifier: Apache-2.0

package v1alpha2

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// WorkloadSpec describes a set of pods that serve the model.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.scaling))",message="replicas and scaling exclude each other; remove replicas to scale automatically"
type WorkloadSpec struct {
	// Replicas is the number of servers.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// Scaling changes the number of servers with the load.
	// +optional
	Scaling *ScalingSpec `json:"scaling,omitempty"`
	// Parallelism spreads the model over accelerators and nodes.
	// +optional
	Parallelism *ParallelismSpec `json:"parallelism,omitempty"`
	// Labels for the pods.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations for the pods.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Template of the pods, or of the leader where there are workers.
	// +optional
	Template *PodSpec `json:"template,omitempty"`
	// Worker is the template of the workers of a server that spans several nodes.
	// +optional
	Worker *PodSpec `json:"worker,omitempty"`
	// KVCacheOffloading moves parts of the key-value cache off the accelerator.
	// +optional
	KVCacheOffloading *KVCacheOffloadingSpec `json:"kvCacheOffloading,omitempty"`
	// RolloutStrategy tells how old pods are replaced by new ones.
	// +optional
	RolloutStrategy *RolloutStrategySpec `json:"rolloutStrategy,omitempty"`
}

// RolloutStrategySpec tells how old pods are replaced by new ones.
type RolloutStrategySpec struct {
	// MaxUnavailable is how many servers may be missing meanwhile.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MaxSurge is how many servers may be added meanwhile.
	// +optional
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// ParallelismSpec spreads a model over accelerators and nodes.
type ParallelismSpec struct {
	// Tensor is the number of accelerators that share each layer.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Tensor *int32 `json:"tensor,omitempty"`
	// Pipeline is the number of nodes that the layers are spread over.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Pipeline *int32 `json:"pipeline,omitempty"`
	// Data is the number of copies of the model in one server.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Data *int32 `json:"data,omitempty"`
	// DataLocal is the number of those copies on each node.
	// +optional
	// +kubebuilder:validation:Minimum=1
	DataLocal *int32 `json:"dataLocal,omitempty"`
	// DataRPCPort is where the copies talk to each other.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	DataRPCPort *int32 `json:"dataRPCPort,omitempty"`
	// Expert spreads the experts of a mixture over the accelerators.
	// +optional
	Expert bool `json:"expert,omitempty"`
}

// KVCacheOffloadingSpec moves parts of the key-value cache off the accelerator.
type KVCacheOffloadingSpec struct {
	// CPU is the main memory to use.
	CPU resource.Quantity `json:"cpu"`
	// EvictionPolicy tells what goes first when memory is full: lru or arc.
	// +optional
	// +kubebuilder:default=lru
	// +kubebuilder:validation:Enum=lru;arc
	EvictionPolicy string `json:"evictionPolicy,omitempty"`
	// Secondary lists the tiers behind main memory.
	// +optional
	Secondary []KVCacheTierSpec `json:"secondary,omitempty"`
}

// KVCacheTierSpec is a tier behind main memory.
type KVCacheTierSpec struct {
	// FileSystem keeps the tier in files.
	// +optional
	FileSystem *KVCacheFileSystemSpec `json:"fileSystem,omitempty"`
}

// KVCacheFileSystemSpec keeps a tier in files; exactly one place is set.
type KVCacheFileSystemSpec struct {
	// EmptyDir keeps the files as long as the pod lives.
	// +optional
	EmptyDir *KVCacheEmptyDirSpec `json:"emptyDir,omitempty"`
	// PVC keeps the files on a volume.
	// +optional
	PVC *KVCachePVCSpec `json:"pvc,omitempty"`
}

// KVCacheEmptyDirSpec keeps files as long as the pod lives.
type KVCacheEmptyDirSpec struct {
	// Size of the directory.
	Size resource.Quantity `json:"size"`
}

// KVCachePVCSpec keeps files on a volume; exactly one of spec and ref is set.
type KVCachePVCSpec struct {
	// Spec of the claim to create.
	// +optional
	Spec *corev1.PersistentVolumeClaimSpec `json:"spec,omitempty"`
	// Ref names a claim that exists.
	// +optional
	Ref *KVCachePVCRef `json:"ref,omitempty"`
}

// KVCachePVCRef names a claim and a folder on it.
type KVCachePVCRef struct {
	// Name of the claim.
	Name string `json:"name"`
	// Path of the folder.
	// +optional
	Path string `json:"path,omitempty"`
}
