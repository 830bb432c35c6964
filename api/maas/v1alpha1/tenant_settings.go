// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// TenantSettings is what MaasTenantConfig and the former Tenant both hold.
type TenantSettings struct {
	// Rules for the keys that the tenant hands out.
	// +optional
	APIKeys *APIKeysConfig `json:"apiKeys,omitempty"`

	// How the payload processor of the tenant is sized.
	// +optional
	PayloadProcessing *PayloadProcessingConfig `json:"payloadProcessing,omitempty"`

	// What is measured; nothing when absent.
	// +optional
	Telemetry *TelemetryConfig `json:"telemetry,omitempty"`
}

// APIKeysConfig is the rules for a tenant's keys.
type APIKeysConfig struct {
	// Longest life of a key, in days.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxExpirationDays *int32 `json:"maxExpirationDays,omitempty"`
}

// PayloadProcessingConfig sizes a tenant's payload processor.
type PayloadProcessingConfig struct {
	// Number of pods; the lowest number when autoscaling.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Replicas *int32 `json:"replicas,omitempty"`

	// Scale with the load when present.
	// +optional
	Autoscaling *PayloadAutoscaling `json:"autoscaling,omitempty"`
}

// PayloadAutoscaling says how a payload processor grows with its load.
type PayloadAutoscaling struct {
	// Highest number of pods.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// Processor use to aim for, in percent of the request.
	// +optional
	// +kubebuilder:default=70
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	TargetCPUUtilization *int32 `json:"targetCPUUtilization,omitempty"`

	// Memory use to aim for, in percent of the request.
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	TargetMemoryUtilization *int32 `json:"targetMemoryUtilization,omitempty"`
}

// TelemetryConfig says what is measured for a tenant.
type TelemetryConfig struct {
	// Whether anything is measured.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// Which labels the measurements carry.
	// +optional
	Metrics *TelemetryMetrics `json:"metrics,omitempty"`
}

// TelemetryMetrics picks the labels of a tenant's measurements.
type TelemetryMetrics struct {
	// Label with the organization.
	// +optional
	// +kubebuilder:default=true
	CaptureOrganization *bool `json:"captureOrganization,omitempty"`

	// Label with the user; this is personal data.
	// +optional
	// +kubebuilder:default=false
	CaptureUser *bool `json:"captureUser,omitempty"`

	// Label with the user's group; many groups make many series.
	// +optional
	// +kubebuilder:default=false
	CaptureGroup *bool `json:"captureGroup,omitempty"`

	// Label with the model.
	// +optional
	// +kubebuilder:default=true
	CaptureModelUsage *bool `json:"captureModelUsage,omitempty"`
}

// GatewayRef names a Gateway.
type GatewayRef struct {
	// Namespace of the Gateway.
	// +optional
	// +kubebuilder:default="openshift-ingress"
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	Namespace string `json:"namespace,omitempty"`

	// Name of the Gateway.
	// +optional
	// +kubebuilder:default="maas-default-gateway"
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	Name string `json:"name,omitempty"`
}

// OIDCConfig names an identity provider.
type OIDCConfig struct {
	// Address of the issuer, with https.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https://\S+$`
	IssuerURL string `json:"issuerUrl"`

	// Client for which the tokens must have been made out.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^\S+$`
	ClientID string `json:"clientId"`

	// Seconds after which the issuer's keys are read again.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=30
	TTL *int `json:"ttl,omitempty"`
}

// TenantPhase is the state of a tenant's settings in one word.
//
// +kubebuilder:validation:Enum=Pending;Active;Degraded;Failed
type TenantPhase string

// The states of a tenant's settings.
const (
	TenantPending  TenantPhase = "Pending"
	TenantActive   TenantPhase = "Active"
	TenantDegraded TenantPhase = "Degraded"
	TenantFailed   TenantPhase = "Failed"
)
