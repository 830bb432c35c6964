// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MaaSSubscription grants its owners a number of tokens per time on a set of models.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=maassubscriptions,scope=Namespaced
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MaaSSubscription struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Who may use how much of what.
	// +required
	Spec MaaSSubscriptionSpec `json:"spec"`

	// Whether the limits are in force.
	// +optional
	Status MaaSSubscriptionStatus `json:"status,omitzero"`
}

// MaaSSubscriptionList is a list of subscriptions.
//
// +kubebuilder:object:root=true
type MaaSSubscriptionList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []MaaSSubscription `json:"items"`
}

// MaaSSubscriptionSpec says who may use how much of what.
type MaaSSubscriptionSpec struct {
	// Users and groups that the subscription is for.
	// +required
	Owner Subjects `json:"owner"`

	// Models of the subscription, each with its limits.
	// +required
	// +kubebuilder:validation:MinItems=1
	ModelRefs []SubscribedModel `json:"modelRefs"`

	// To whom the tokens are charged.
	// +optional
	TokenMetadata *BillingMetadata `json:"tokenMetadata,omitempty"`

	// Which subscription is taken when several fit: the one with the highest number.
	// +optional
	// +kubebuilder:default=0
	Priority int32 `json:"priority,omitempty"`
}

// SubscribedModel is a model with the limits that a subscription puts on it.
type SubscribedModel struct {
	ModelRef `json:",inline"`

	// How many tokens may be used in which time; all of them hold.
	// +required
	// +kubebuilder:validation:MinItems=1
	TokenRateLimits []TokenRateLimit `json:"tokenRateLimits"`

	// What a token costs.
	// +optional
	BillingRate *BillingRate `json:"billingRate,omitempty"`
}

// TokenRateLimit is a number of tokens per time.
type TokenRateLimit struct {
	// Number of tokens.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	Limit int64 `json:"limit"`

	// Length of time, such as 30s, 5m or 24h.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^[1-9]\d{0,3}(s|m|h)$`
	Window string `json:"window"`
}

// BillingRate is what a token costs.
type BillingRate struct {
	// Price of one token, as a decimal number.
	// +required
	PerToken string `json:"perToken"`
}

// MaaSSubscriptionStatus says whether a subscription's limits are in force.
type MaaSSubscriptionStatus struct {
	// State in one word.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// Findings about the subscription: Ready, SpecPriorityDuplicate.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// State of each model that the subscription names.
	// +optional
	ModelRefStatuses []ResourceStatus `json:"modelRefStatuses,omitempty"`

	// State of the rate limit policy of each model.
	// +optional
	TokenRateLimitStatuses []TokenRateLimitStatus `json:"tokenRateLimitStatuses,omitempty"`
}

// TokenRateLimitStatus is the state of the rate limit policy of one model.
type TokenRateLimitStatus struct {
	ResourceStatus `json:",inline"`

	// Name of the model that the policy limits.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Model string `json:"model"`
}
