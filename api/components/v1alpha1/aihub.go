// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AIHubName is the only name an AIHub may have.
const AIHubName = "default-aihub"

// AIHub switches the model registry and the catalog on.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=aihubs,scope=Cluster
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default-aihub'",message="Only the name 'default-aihub' is allowed"
// +kubebuilder:printcolumn:name="AppNamespace",type=string,JSONPath=`.spec.applicationNamespace`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AIHub struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Where things are put.
	// +required
	Spec AIHubSpec `json:"spec"`

	// What runs now.
	// +optional
	Status AIHubStatus `json:"status,omitzero"`
}

// AIHubList is a list of switches.
//
// +kubebuilder:object:root=true
type AIHubList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []AIHub `json:"items"`
}

// AIHubSpec says where the registry and the catalog are put.
type AIHubSpec struct {
	// Namespace of the platform's own workloads.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`
	ApplicationNamespace string `json:"applicationNamespace"`

	// Namespace in which registries and the catalog live.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`
	InstancesNamespace string `json:"instancesNamespace"`

	// Gateway of the platform.
	// +optional
	Gateway *AIHubGateway `json:"gateway,omitempty"`
}

// AIHubGateway is the gateway of the platform.
type AIHubGateway struct {
	// Domain under which the gateway is reached.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Domain string `json:"domain,omitempty"`
}

// AIHubStatus is what runs now.
type AIHubStatus struct {
	ComponentStatus `json:",inline"`

	// Findings: Ready, ProvisioningSucceeded, ModelRegistryReady, CatalogReady, Degraded.
	// +optional
	// +listType=atomic
	Conditions []Condition `json:"conditions,omitempty"`
}
