// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MaasTenantConfigName is the only name a MaasTenantConfig may have.
const MaasTenantConfigName = "default-tenant"

// MaasTenantConfig holds the settings of Models-as-a-Service for one tenant.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=maastenantconfigs,scope=Namespaced
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default-tenant'",message="MaasTenantConfig name must be default-tenant"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="InfraNamespace",type=string,JSONPath=`.status.infraNamespace`,priority=1
type MaasTenantConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Settings of the tenant.
	// +optional
	Spec MaasTenantConfigSpec `json:"spec,omitzero"`

	// What runs for the tenant now.
	// +optional
	Status MaasTenantConfigStatus `json:"status,omitzero"`
}

// MaasTenantConfigList is a list of tenant settings.
//
// +kubebuilder:object:root=true
type MaasTenantConfigList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []MaasTenantConfig `json:"items"`
}

// MaasTenantConfigSpec is the settings of a tenant.
type MaasTenantConfigSpec struct {
	TenantSettings `json:",inline"`
}

// MaasTenantConfigStatus is what runs for a tenant now.
type MaasTenantConfigStatus struct {
	// State in one word.
	// +optional
	Phase TenantPhase `json:"phase,omitempty"`

	// Namespace in which the tenant's own services run.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	InfraNamespace string `json:"infraNamespace,omitempty"`

	// Findings about the tenant: Ready, DependenciesAvailable, MaaSPrerequisitesAvailable, DeploymentsAvailable, Degraded.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
