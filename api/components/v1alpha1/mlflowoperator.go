// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MLflowOperatorName is the only name an MLflowOperator may have.
const MLflowOperatorName = "default-mlflowoperator"

// MLflowOperator switches MLflow on.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mlflowoperators,scope=Cluster
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default-mlflowoperator'",message="MLflowOperator name must be default-mlflowoperator"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
type MLflowOperator struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// How MLflow is shown to people.
	// +optional
	Spec MLflowOperatorSpec `json:"spec,omitzero"`

	// What runs now.
	// +optional
	Status MLflowOperatorStatus `json:"status,omitzero"`
}

// MLflowOperatorList is a list of switches.
//
// +kubebuilder:object:root=true
type MLflowOperatorList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []MLflowOperator `json:"items"`
}

// MLflowOperatorSpec says how MLflow is shown to people.
type MLflowOperatorSpec struct {
	// Gateway of the platform.
	// +optional
	Gateway *MLflowOperatorGateway `json:"gateway,omitempty"`

	// Name of the Gateway that MLflow's route hangs on.
	// +optional
	GatewayName string `json:"gatewayName,omitempty"`

	// Section of the console under which the link to MLflow stands.
	// +optional
	SectionTitle string `json:"sectionTitle,omitempty"`
}

// MLflowOperatorGateway is the gateway of the platform.
type MLflowOperatorGateway struct {
	// Domain under which the gateway is reached.
	// +optional
	Domain string `json:"domain,omitempty"`
}

// MLflowOperatorStatus is what runs now.
type MLflowOperatorStatus struct {
	ComponentStatus `json:",inline"`

	// Findings: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}
