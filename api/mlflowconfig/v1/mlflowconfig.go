// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	// MLflowConfigName is the only name an MLflowConfig may have.
	MLflowConfigName = "mlflow"

	// ArtifactSecretName is the only Secret that an MLflowConfig may name.
	ArtifactSecretName = "mlflow-artifact-connection"
)

// MLflowConfig says where the MLflow runs of its namespace keep their artifacts.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=mlflowconfigs,scope=Namespaced
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'mlflow'",message="MLflowConfig resource name must be 'mlflow'"
type MLflowConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Where the artifacts are kept.
	// +required
	Spec MLflowConfigSpec `json:"spec"`
}

// MLflowConfigList is a list of artifact settings.
//
// +kubebuilder:object:root=true
type MLflowConfigList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []MLflowConfig `json:"items"`
}

// MLflowConfigSpec says where artifacts are kept.
type MLflowConfigSpec struct {
	// Secret with the bucket and its keys; always mlflow-artifact-connection.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == 'mlflow-artifact-connection'",message="artifactRootSecret must be 'mlflow-artifact-connection'"
	ArtifactRootSecret string `json:"artifactRootSecret"`

	// Path inside the bucket.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/')",message="artifactRootPath must be relative"
	// +kubebuilder:validation:XValidation:rule="!self.split('/').exists(segment, segment == '..')",message="artifactRootPath must not contain '..' path segments"
	ArtifactRootPath string `json:"artifactRootPath,omitempty"`
}
