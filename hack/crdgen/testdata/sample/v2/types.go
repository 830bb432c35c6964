// SPDX-License-Identifier: Apache-2.0

// Package v2 is a second version of Widget, so that it needs a conversion.
// +groupName=sample.modelplane.dev
// +versionName=v2
package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Widget is a kind with two versions.
// +kubebuilder:object:root=true
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WidgetSpec `json:"spec,omitempty"`
}

// WidgetSpec is small.
type WidgetSpec struct {
	Size string `json:"size,omitempty"`
}
