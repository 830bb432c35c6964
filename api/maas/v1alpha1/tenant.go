// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenantName is the only name a Tenant may have.
const TenantName = "default-tenant"

// Tenant is the former form of AITenant and MaasTenantConfig; it is only read in order to move to those.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=tenants,scope=Namespaced
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default-tenant'",message="Tenant name must be default-tenant"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Tenant struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Settings of the tenant.
	// +optional
	Spec TenantSpec `json:"spec,omitzero"`

	// What runs for the tenant now.
	// +optional
	Status TenantStatus `json:"status,omitzero"`
}

// TenantList is a list of former tenants.
//
// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Tenant `json:"items"`
}

// TenantSpec is the settings of a former tenant.
type TenantSpec struct {
	TenantSettings `json:",inline"`

	// Gateway through which the tenant's models are reached.
	// +optional
	GatewayRef *GatewayRef `json:"gatewayRef,omitempty"`

	// Identity provider whose tokens the tenant's gateway accepts.
	// +optional
	ExternalOIDC *OIDCConfig `json:"externalOIDC,omitempty"`
}

// TenantStatus is what runs for a former tenant now.
type TenantStatus struct {
	// State in one word.
	// +optional
	Phase TenantPhase `json:"phase,omitempty"`

	// Findings about the tenant.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
