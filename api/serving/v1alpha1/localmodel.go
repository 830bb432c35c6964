// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LocalModelCache keeps a model on the disks of nodes, for all namespaces.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=localmodelcaches,scope=Cluster
type LocalModelCache struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +optional
	Spec LocalModelCacheSpec `json:"spec,omitempty"`
	// Status is what was found.
	// +optional
	Status LocalModelCacheStatus `json:"status,omitempty"`
}

// LocalModelCacheList is a list of LocalModelCaches.
//
// +kubebuilder:object:root=true
type LocalModelCacheList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LocalModelCache `json:"items"`
}

// LocalModelNamespaceCache keeps a model on the disks of nodes, for its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=localmodelnamespacecaches
type LocalModelNamespaceCache struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +optional
	Spec LocalModelCacheSpec `json:"spec,omitempty"`
	// Status is what was found.
	// +optional
	Status LocalModelCacheStatus `json:"status,omitempty"`
}

// LocalModelNamespaceCacheList is a list of LocalModelNamespaceCaches.
//
// +kubebuilder:object:root=true
type LocalModelNamespaceCacheList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LocalModelNamespaceCache `json:"items"`
}

// LocalModelCacheSpec says which model is kept and where.
type LocalModelCacheSpec struct {
	// SourceModelURI is where the model comes from.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="sourceModelUri cannot change; create another cache for another model"
	SourceModelURI string `json:"sourceModelUri"`
	// ModelSize is the space to reserve on each node.
	ModelSize resource.Quantity `json:"modelSize"`
	// NodeGroups that keep the model.
	// +kubebuilder:validation:MinItems=1
	NodeGroups []string `json:"nodeGroups"`
	// ServiceAccountName is the identity that has the credentials.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// Storage names an entry of the storage secret.
	// +optional
	Storage *LocalModelStorageSpec `json:"storage,omitempty"`
}

// LocalModelStorageSpec names an entry of the storage secret.
type LocalModelStorageSpec struct {
	// StorageKey is the key in the storage secret.
	// +optional
	StorageKey *string `json:"key,omitempty"`
	// Parameters override those of the entry.
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`
}

// LocalModelCacheStatus is what was found.
type LocalModelCacheStatus struct {
	// NodeStatus by node.
	// +optional
	NodeStatus map[string]NodeStatus `json:"nodeStatus,omitempty"`
	// ModelCopies counts the copies.
	// +optional
	ModelCopies *LocalModelCopies `json:"copies,omitempty"`
	// InferenceServices that use the model.
	// +optional
	InferenceServices []NamespacedName `json:"inferenceServices,omitempty"`
	// LLMInferenceServices that use the model.
	// +optional
	LLMInferenceServices []NamespacedName `json:"llmInferenceServices,omitempty"`
}

// NamespacedName names an object.
type NamespacedName struct {
	// Namespace of the object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the object.
	// +optional
	Name string `json:"name,omitempty"`
}

// NodeStatus tells how far a node is with its copy.
//
// +kubebuilder:validation:Enum="";NodeNotReady;NodeDownloadPending;NodeDownloading;NodeDownloaded;NodeDownloadError
type NodeStatus string

// How far a node is with its copy.
const (
	NodeNotReady        NodeStatus = "NodeNotReady"
	NodeDownloadPending NodeStatus = "NodeDownloadPending"
	NodeDownloading     NodeStatus = "NodeDownloading"
	NodeDownloaded      NodeStatus = "NodeDownloaded"
	NodeDownloadError   NodeStatus = "NodeDownloadError"
)

// LocalModelCopies counts the copies of a model.
type LocalModelCopies struct {
	// Available copies.
	// +optional
	Available int `json:"available,omitempty"`
	// Total number of copies wanted.
	// +optional
	Total int `json:"total,omitempty"`
	// Failed copies.
	// +optional
	Failed int `json:"failed,omitempty"`
}
