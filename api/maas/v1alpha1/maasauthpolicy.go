// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MaaSAuthPolicy says which users and groups may call which models.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=maasauthpolicies,scope=Namespaced
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="AuthPolicies",type=string,JSONPath=`.status.authPolicies[*].name`,priority=1
type MaaSAuthPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Who may call what.
	// +required
	Spec MaaSAuthPolicySpec `json:"spec"`

	// Whether the policy is in force.
	// +optional
	Status MaaSAuthPolicyStatus `json:"status,omitzero"`
}

// MaaSAuthPolicyList is a list of access policies.
//
// +kubebuilder:object:root=true
type MaaSAuthPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []MaaSAuthPolicy `json:"items"`
}

// MaaSAuthPolicySpec says who may call what.
type MaaSAuthPolicySpec struct {
	// Models that the policy opens.
	// +required
	// +kubebuilder:validation:MinItems=1
	ModelRefs []ModelRef `json:"modelRefs"`

	// Who may call them; matching one entry is enough.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.groups) && size(self.groups) > 0) || (has(self.users) && size(self.users) > 0)",message="at least one group or user must be specified in subjects"
	Subjects Subjects `json:"subjects"`

	// To whom the use is charged.
	// +optional
	MeteringMetadata *BillingMetadata `json:"meteringMetadata,omitempty"`
}

// MaaSAuthPolicyStatus says whether an access policy is in force.
type MaaSAuthPolicyStatus struct {
	// State in one word.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// Findings about the policy: Ready, ConflictingAuthPolicy.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Gateway policies made for single models.
	// +optional
	AuthPolicies []AuthPolicyStatus `json:"authPolicies,omitempty"`
}

// AuthPolicyStatus is the state of the gateway policy of one model.
type AuthPolicyStatus struct {
	ResourceStatus `json:",inline"`

	// Name of the model that the policy guards.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Model string `json:"model"`

	// Namespace of that model.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ModelNamespace string `json:"modelNamespace"`
}
