// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LocalModelNode lists the models that one node keeps.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=localmodelnodes,scope=Cluster
type LocalModelNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the node has to keep.
	// +optional
	Spec LocalModelNodeSpec `json:"spec,omitempty"`
	// Status is what the node has.
	// +optional
	Status LocalModelNodeStatus `json:"status,omitempty"`
}

// LocalModelNodeList is a list of LocalModelNodes.
//
// +kubebuilder:object:root=true
type LocalModelNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LocalModelNode `json:"items"`
}

// LocalModelNodeSpec is what a node has to keep.
type LocalModelNodeSpec struct {
	// LocalModels that the node has to keep.
	LocalModels []LocalModelInfo `json:"localModels"`
}

// LocalModelInfo is a model that a node keeps.
type LocalModelInfo struct {
	// SourceModelURI is where the model comes from.
	SourceModelURI string `json:"sourceModelUri"`
	// ModelName is the name of the cache.
	ModelName string `json:"modelName"`
	// Namespace of the cache; empty for a cache of the cluster.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// NodeGroup that the node keeps it for.
	// +optional
	NodeGroup string `json:"nodeGroup,omitempty"`
	// ServiceAccountName is the identity that has the credentials.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// Storage names an entry of the storage secret.
	// +optional
	Storage *LocalModelStorageSpec `json:"storage,omitempty"`
}

// LocalModelNodeStatus is what a node has.
type LocalModelNodeStatus struct {
	// ModelStatus by model: its name, or namespace/name for a cache of a namespace.
	// +optional
	ModelStatus map[string]ModelStatus `json:"modelStatus,omitempty"`
}

// ModelStatus tells how far a node is with a model.
//
// +kubebuilder:validation:Enum="";ModelDownloadPending;ModelDownloading;ModelDownloaded;ModelDownloadError
type ModelStatus string

// How far a node is with a model.
const (
	ModelDownloadPending ModelStatus = "ModelDownloadPending"
	ModelDownloading     ModelStatus = "ModelDownloading"
	ModelDownloaded      ModelStatus = "ModelDownloaded"
	ModelDownloadError   ModelStatus = "ModelDownloadError"
)

// LocalModelNodeGroup is a set of nodes that keep models on the same kind of disk.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=localmodelnodegroups,scope=Cluster
type LocalModelNodeGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec describes the disks.
	// +optional
	Spec LocalModelNodeGroupSpec `json:"spec,omitempty"`
	// Status tells how full they are.
	// +optional
	Status LocalModelNodeGroupStatus `json:"status,omitempty"`
}

// LocalModelNodeGroupList is a list of LocalModelNodeGroups.
//
// +kubebuilder:object:root=true
type LocalModelNodeGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LocalModelNodeGroup `json:"items"`
}

// LocalModelNodeGroupSpec describes the disks of a group.
type LocalModelNodeGroupSpec struct {
	// StorageLimit is the space that models may take on each node.
	StorageLimit resource.Quantity `json:"storageLimit"`
	// PersistentVolumeSpec is the template of the volumes.
	PersistentVolumeSpec corev1.PersistentVolumeSpec `json:"persistentVolumeSpec"`
	// PersistentVolumeClaimSpec is the template of the claims.
	PersistentVolumeClaimSpec corev1.PersistentVolumeClaimSpec `json:"persistentVolumeClaimSpec"`
}

// LocalModelNodeGroupStatus tells how full the disks are.
type LocalModelNodeGroupStatus struct {
	// Used space.
	// +optional
	Used resource.Quantity `json:"used,omitempty"`
	// Available space.
	// +optional
	Available resource.Quantity `json:"available,omitempty"`
}
