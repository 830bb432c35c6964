// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AITenant gives one team its own slice of the platform: a namespace, a gateway and its sign-in.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=aitenants,scope=Namespaced,shortName=ait
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 41",message="AITenant name must be at most 41 characters (required for per-tenant resource naming with 63-character Kubernetes limit)"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="AITenant name must be a valid DNS-1123 label (lowercase alphanumeric and hyphens, starting and ending with alphanumeric)"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Tenant Namespace",type=string,JSONPath=`.status.tenantNamespace`
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=`.status.gatewayRef.name`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AITenant struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// What the tenant should have.
	// +optional
	Spec AITenantSpec `json:"spec,omitzero"`

	// What the tenant has now.
	// +optional
	Status AITenantStatus `json:"status,omitzero"`
}

// AITenantList is a list of tenants.
//
// +kubebuilder:object:root=true
type AITenantList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []AITenant `json:"items"`
}

// AITenantSpec is what a tenant should have.
type AITenantSpec struct {
	// Gateway through which the tenant's models are reached.
	// +optional
	Gateway *AITenantGateway `json:"gateway,omitempty"`

	// Identity provider whose tokens the tenant's gateway accepts.
	// +optional
	OIDC *OIDCConfig `json:"oidc,omitempty"`

	// Deprecated and ignored: bind the tenant's roles with RoleBindings instead.
	// +optional
	RBAC *AITenantRBAC `json:"rbac,omitempty"`
}

// AITenantGateway names a tenant's gateway.
type AITenantGateway struct {
	// Name of the Gateway; the tenant's own name when empty.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	Name string `json:"name,omitempty"`
}

// AITenantRBAC is kept so that manifests which still carry it are accepted.
type AITenantRBAC struct {
	// Deprecated and ignored.
	// +optional
	// +kubebuilder:validation:MaxItems=128
	Admins []AITenantSubject `json:"admins,omitempty"`
}

// AITenantSubject is one of the ignored administrators.
type AITenantSubject struct {
	// Kind of the subject.
	// +required
	// +kubebuilder:validation:Enum=User;Group;ServiceAccount
	Kind string `json:"kind"`

	// Name of the subject.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Namespace of the subject, for a ServiceAccount.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// AITenantPhase is a tenant's state in one word.
//
// +kubebuilder:validation:Enum=Pending;Active;Failed;Terminating
type AITenantPhase string

// The states of a tenant.
const (
	AITenantPending     AITenantPhase = "Pending"
	AITenantActive      AITenantPhase = "Active"
	AITenantFailed      AITenantPhase = "Failed"
	AITenantTerminating AITenantPhase = "Terminating"
)

// AITenantStatus is what a tenant has now.
type AITenantStatus struct {
	// State in one word.
	// +optional
	Phase AITenantPhase `json:"phase,omitempty"`

	// Namespace that belongs to the tenant.
	// +optional
	TenantNamespace string `json:"tenantNamespace,omitempty"`

	// Gateway that serves the tenant.
	// +optional
	GatewayRef *GatewayRef `json:"gatewayRef,omitempty"`

	// Findings about the tenant: Ready, Degraded, APIKeysRevoked.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
