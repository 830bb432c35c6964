// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MLflowName is the only name an MLflow may have.
const MLflowName = "mlflow"

// MLflow runs the tracking server of a cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mlflows,scope=Cluster,categories=models
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'mlflow'",message="MLflow resource name must be 'mlflow'"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40",message="MLflow resource name must be at most 40 characters to ensure generated resource names stay within Kubernetes 63-character limit"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=='Available')].status`
// +kubebuilder:printcolumn:name="Progressing",type=string,JSONPath=`.status.conditions[?(@.type=='Progressing')].status`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Available')].reason`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`,priority=1
type MLflow struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// How the server should run.
	// +required
	Spec MLflowSpec `json:"spec"`

	// How the server runs now.
	// +optional
	Status MLflowStatus `json:"status,omitzero"`
}

// MLflowList is a list of tracking servers.
//
// +kubebuilder:object:root=true
type MLflowList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []MLflow `json:"items"`
}

// MLflowStatus is how a server runs now.
type MLflowStatus struct {
	// Findings about the server: Available, Progressing, Migration, MLflowOperatorReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Address for people, through the platform's gateway.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`

	// Address inside the cluster.
	// +optional
	Address *Address `json:"address,omitempty"`

	// Version of MLflow to which the database was last brought.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
}

// Address is where a server is reached.
type Address struct {
	// The address, with scheme and path.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`
}
