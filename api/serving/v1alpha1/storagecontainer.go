// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterStorageContainer is the container that fetches models from some
// storages.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=clusterstoragecontainers,scope=Cluster
type ClusterStorageContainer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the container and what it can fetch.
	// +optional
	Spec StorageContainerSpec `json:"spec,omitempty"`
	// Disabled keeps the container from being used.
	// +optional
	Disabled *bool `json:"disabled,omitempty"`
}

// ClusterStorageContainerList is a list of ClusterStorageContainers.
//
// +kubebuilder:object:root=true
type ClusterStorageContainerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterStorageContainer `json:"items"`
}

// WorkloadType tells where a storage container runs.
type WorkloadType string

// Where a storage container runs.
const (
	InitContainer         WorkloadType = "initContainer"
	LocalModelDownloadJob WorkloadType = "localModelDownloadJob"
)

// StorageContainerSpec is the container and what it can fetch.
type StorageContainerSpec struct {
	// Container that fetches models.
	Container corev1.Container `json:"container"`
	// SupportedUriFormats are the addresses it can fetch from.
	SupportedUriFormats []SupportedUriFormat `json:"supportedUriFormats"`
	// WorkloadType tells where it runs: initContainer or localModelDownloadJob.
	// +optional
	// +kubebuilder:default=initContainer
	WorkloadType WorkloadType `json:"workloadType,omitempty"`
	// SupportsMultiModelDownload tells whether one run can fetch several models.
	// +optional
	// +kubebuilder:default=false
	SupportsMultiModelDownload *bool `json:"supportsMultiModelDownload,omitempty"`
}

// SupportedUriFormat matches addresses by prefix, or else by expression.
type SupportedUriFormat struct {
	// Prefix that the address starts with.
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// Regex that the address matches.
	// +optional
	Regex string `json:"regex,omitempty"`
}
