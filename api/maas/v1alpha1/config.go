// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConfigName is the only name a Config may have.
const ConfigName = "default"

// Config holds the cluster-wide settings of Models-as-a-Service and owns what the platform runs.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=configs,scope=Cluster,shortName=maasconfig
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="Config name must be default"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Config struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Settings of the platform.
	// +optional
	Spec ConfigSpec `json:"spec,omitzero"`

	// Holds nothing yet.
	// +optional
	Status ConfigStatus `json:"status,omitzero"`
}

// ConfigList is a list of platform settings.
//
// +kubebuilder:object:root=true
type ConfigList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Config `json:"items"`
}

// ConfigSpec is the settings of the platform.
type ConfigSpec struct {
	// How often Prometheus reads the rate limiter's metrics.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	LimitadorScrapeInterval string `json:"limitadorScrapeInterval,omitempty"`

	// Whether each request is logged with who asked and what it used; such logs hold personal data.
	// +optional
	// +kubebuilder:default=false
	UsageLogging *bool `json:"usageLogging,omitempty"`
}

// ConfigStatus holds nothing yet; the subresource is there for tools that expect it.
type ConfigStatus struct{}
