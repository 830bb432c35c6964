// SPDX-License-Identifier: Apache-2.0

// Package v1 holds types that use every form crdgen must tell apart.
// +groupName=sample.modelplane.dev
// +versionName=v1
package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Widget is a kind with an embedded pod template. This is a second sentence.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec WidgetSpec `json:"spec,omitempty"`
}

// WidgetSpec embeds a pod template and has fields of its own.
type WidgetSpec struct {
	corev1.PodSpec `json:",inline"`

	// Sidecar is a container that is expanded.
	Sidecar *corev1.Container `json:"sidecar,omitempty"`
	// Limits is one of Kubernetes' objects under a light name in a list of ours.
	Limits []Limit `json:"limits,omitempty"`
}

// Limit has a field with a light name but a type of our own.
type Limit struct {
	// Resources are ours.
	Resources OwnResources `json:"resources"`
}

// OwnResources is not a Kubernetes type.
type OwnResources struct {
	// +kubebuilder:validation:Enum=small;large
	Size string `json:"size"`
}
