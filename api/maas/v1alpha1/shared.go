// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ModelRef names a MaaSModelRef.
type ModelRef struct {
	// Name of the MaaSModelRef.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Namespace of the MaaSModelRef.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
}

// Subjects is a set of users and groups.
type Subjects struct {
	// Groups, by name.
	// +optional
	Groups []GroupRef `json:"groups,omitempty"`

	// Users, by name.
	// +optional
	Users []string `json:"users,omitempty"`
}

// GroupRef names a group.
type GroupRef struct {
	// Name of the group.
	// +required
	Name string `json:"name"`
}

// BillingMetadata says to whom use is charged.
type BillingMetadata struct {
	// Organization that pays.
	// +optional
	OrganizationID string `json:"organizationId,omitempty"`

	// Cost center inside the organization.
	// +optional
	CostCenter string `json:"costCenter,omitempty"`

	// Further marks for the bill.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// Phase is the state of a policy or subscription in one word.
//
// +kubebuilder:validation:Enum=Pending;Active;Degraded;Failed;Invalid
type Phase string

// The states of a policy or subscription.
const (
	PhasePending  Phase = "Pending"
	PhaseActive   Phase = "Active"
	PhaseDegraded Phase = "Degraded"
	PhaseFailed   Phase = "Failed"
	PhaseInvalid  Phase = "Invalid"
)

// ResourceStatus is the state of one object that a policy or subscription depends on.
type ResourceStatus struct {
	// Name of the object.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Namespace of the object.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// Whether the object does its part.
	// +required
	Ready bool `json:"ready"`

	// Why it does or does not, in one word.
	// +optional
	Reason Reason `json:"reason,omitempty"`

	// Why it does or does not, as a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Reason says in one word why an object is or is not ready.
//
// +kubebuilder:validation:Enum=Reconciled;ReconcileFailed;PartialFailure;Valid;NotFound;GetFailed;Accepted;AcceptedEnforced;NotAccepted;Enforced;NotEnforced;BackendNotReady;ConditionsNotFound;InvalidSpec;Unknown;NoPairingFound;GovernancePaired;GovernanceGap;RuntimeHealthy;RuntimeHealthFailure
type Reason string

// The reasons why an object is or is not ready.
const (
	ReasonReconciled           Reason = "Reconciled"
	ReasonReconcileFailed      Reason = "ReconcileFailed"
	ReasonPartialFailure       Reason = "PartialFailure"
	ReasonValid                Reason = "Valid"
	ReasonNotFound             Reason = "NotFound"
	ReasonGetFailed            Reason = "GetFailed"
	ReasonAccepted             Reason = "Accepted"
	ReasonAcceptedEnforced     Reason = "AcceptedEnforced"
	ReasonNotAccepted          Reason = "NotAccepted"
	ReasonEnforced             Reason = "Enforced"
	ReasonNotEnforced          Reason = "NotEnforced"
	ReasonBackendNotReady      Reason = "BackendNotReady"
	ReasonConditionsNotFound   Reason = "ConditionsNotFound"
	ReasonInvalidSpec          Reason = "InvalidSpec"
	ReasonUnknown              Reason = "Unknown"
	ReasonNoPairingFound       Reason = "NoPairingFound"
	ReasonGovernancePaired     Reason = "GovernancePaired"
	ReasonGovernanceGap        Reason = "GovernanceGap"
	ReasonRuntimeHealthy       Reason = "RuntimeHealthy"
	ReasonRuntimeHealthFailure Reason = "RuntimeHealthFailure"
)
