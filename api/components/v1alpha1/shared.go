// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ComponentStatus is what every component tells the platform.
type ComponentStatus struct {
	// State in a word or two.
	// +optional
	Phase string `json:"phase,omitempty"`

	// Generation that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Versions of what runs.
	// +optional
	// +listType=map
	// +listMapKey=name
	Releases []Release `json:"releases,omitempty"`
}

// Release is the version of one thing that runs.
type Release struct {
	// Name of the thing.
	// +required
	Name string `json:"name"`

	// Its version.
	// +optional
	Version string `json:"version,omitempty"`

	// Address of its source.
	// +optional
	RepoURL string `json:"repoUrl,omitempty"`
}

// Condition is a finding in the form that the platform reads; it differs from metav1.Condition in what it requires.
type Condition struct {
	// What the finding is about.
	// +required
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`
	Type string `json:"type"`

	// Whether it holds.
	// +required
	// +kubebuilder:validation:Enum=True;False;Unknown
	Status metav1.ConditionStatus `json:"status"`

	// Generation that the finding speaks of.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// When the status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`

	// Why, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Why, as a sentence.
	// +optional
	Message string `json:"message,omitempty"`

	// How grave a false finding is: empty for an error, Info for a remark.
	// +optional
	Severity string `json:"severity,omitempty"`

	// When the finding was last confirmed.
	// +optional
	LastHeartbeatTime *metav1.Time `json:"lastHeartbeatTime,omitempty"`
}
