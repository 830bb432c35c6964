// SPDX-License-Identifier: Apache-2.0

// Package sample is a small kind that uses every part of the engine once. It is
// what the engine, the command line and the benchmarks are tested with, and the
// shortest complete example of a domain room. It is not part of the product.
//
// +kubebuilder:object:generate=true
// +groupName=test.modelplane.dev
// +versionName=v1
package sample

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kind.
var GroupVersion = schema.GroupVersion{Group: "test.modelplane.dev", Version: "v1"}

// AddToScheme makes the kind known.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Sample{}, &SampleList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Sample becomes a ConfigMap, a Service and a Deployment.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=samples
type Sample struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SampleSpec   `json:"spec"`
	Status SampleStatus `json:"status,omitempty"`
}

// SampleSpec switches on what a test wants to see.
type SampleSpec struct {
	// Message goes into the ConfigMap.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:default=hello
	Message string `json:"message,omitempty"`
	// Replicas of the Deployment.
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas,omitempty"`
	// Headless drops the Service.
	Headless bool `json:"headless,omitempty"`
	// Extra is the kind of one more child.
	// +kubebuilder:validation:Enum=ConfigMap;Secret
	Extra string `json:"extra,omitempty"`
	// From names a ConfigMap whose key "value" is copied; it may come later.
	From string `json:"from,omitempty"`
	// SecretFrom names a Secret whose key "value" is copied; it may come later.
	SecretFrom string `json:"secretFrom,omitempty"`
	// Route wants an HTTPRoute, of an API that may be absent.
	Route bool `json:"route,omitempty"`
	// Far is a namespace that gets a ConfigMap, out of the reach of owner references.
	Far string `json:"far,omitempty"`
	// Keep wants a ConfigMap that outlives the object.
	Keep bool `json:"keep,omitempty"`
	// Job wants a Job with this argument, which cannot be changed in place.
	Job string `json:"job,omitempty"`
	// WaitForPods makes readiness depend on the Deployment's.
	WaitForPods bool `json:"waitForPods,omitempty"`
}

// SampleStatus is what is known of it.
type SampleStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	// Children is how many the plan names.
	Children int `json:"children,omitempty"`
}

// SampleList is a list of Samples.
//
// +kubebuilder:object:root=true
type SampleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Sample `json:"items"`
}
