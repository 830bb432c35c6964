// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionReady sums up all other conditions of an object.
const ConditionReady = "Ready"

// Severities of a condition. A condition that is not part of Ready carries one
// when it is False, so that readers can tell a nuisance from an outage.
const (
	SeverityError   = ""
	SeverityWarning = "Warning"
	SeverityInfo    = "Info"
)

// Condition says one thing about the state of an object, in the form that
// Knative tools understand.
type Condition struct {
	// Type of the condition.
	Type string `json:"type"`
	// Status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status"`
	// Severity of a condition that is False; empty means error.
	// +optional
	Severity string `json:"severity,omitempty"`
	// LastTransitionTime is when the status last changed.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason is one word for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// Status is the part that every status of the group with conditions has.
type Status struct {
	// ObservedGeneration is the generation the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions of the object.
	// +optional
	Conditions []Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
	// Annotations hold further information that has no field of its own.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Addressable is where something can be reached.
type Addressable struct {
	// Name of the address.
	// +optional
	Name *string `json:"name,omitempty"`
	// URL of the address.
	// +optional
	URL *string `json:"url,omitempty"`
	// CACerts are the certificates to trust, in PEM form.
	// +optional
	CACerts *string `json:"CACerts,omitempty"`
	// Audience that a token for this address needs.
	// +optional
	Audience *string `json:"audience,omitempty"`
}
