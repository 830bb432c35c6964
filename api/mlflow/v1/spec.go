// SPDX-License-Identifier: Apache-2.0

package v1

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MLflowSpec is how a server should run.
//
// +kubebuilder:validation:XValidation:rule="has(self.defaultArtifactRoot) || (has(self.serveArtifacts) && self.serveArtifacts)",message="defaultArtifactRoot must be set when serveArtifacts is not true"
// +kubebuilder:validation:XValidation:rule="!has(self.defaultArtifactRoot) || !self.defaultArtifactRoot.startsWith('file://') || (has(self.serveArtifacts) && self.serveArtifacts)",message="serveArtifacts must be enabled when defaultArtifactRoot uses file-based storage (file:// prefix)"
// +kubebuilder:validation:XValidation:rule="(has(self.backendStoreUri) && size(self.backendStoreUri) > 0) || (has(self.backendStoreUriFrom) && has(self.backendStoreUriFrom.name) && size(self.backendStoreUriFrom.name) > 0 && size(self.backendStoreUriFrom.key) > 0)",message="backendStoreUri or backendStoreUriFrom must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.backendStoreUri) || !has(self.backendStoreUriFrom)",message="backendStoreUri and backendStoreUriFrom are mutually exclusive"
// +kubebuilder:validation:XValidation:rule="!has(self.readReplicaBackendStoreUri) || !has(self.readReplicaBackendStoreUriFrom)",message="readReplicaBackendStoreUri and readReplicaBackendStoreUriFrom are mutually exclusive"
// +kubebuilder:validation:XValidation:rule="!has(self.readReplicaBackendStoreUriFrom) || (has(self.readReplicaBackendStoreUriFrom.name) && size(self.readReplicaBackendStoreUriFrom.name) > 0 && size(self.readReplicaBackendStoreUriFrom.key) > 0)",message="readReplicaBackendStoreUriFrom.name and readReplicaBackendStoreUriFrom.key must be non-empty when readReplicaBackendStoreUriFrom is set"
// +kubebuilder:validation:XValidation:rule="!has(self.registryStoreUri) || !has(self.registryStoreUriFrom)",message="registryStoreUri and registryStoreUriFrom are mutually exclusive"
// +kubebuilder:validation:XValidation:rule="!has(self.registryStoreUriFrom) || (has(self.registryStoreUriFrom.name) && size(self.registryStoreUriFrom.name) > 0 && size(self.registryStoreUriFrom.key) > 0)",message="registryStoreUriFrom.name and registryStoreUriFrom.key must be non-empty when registryStoreUriFrom is set"
// +kubebuilder:validation:XValidation:rule="!has(self.backendStoreUri) || ['sqlite', 'postgresql', 'mysql'].exists(db, self.backendStoreUri.startsWith(db + '://') || self.backendStoreUri.startsWith(db + '+'))",message="backendStoreUri must use a supported SQL metadata store URI scheme"
// +kubebuilder:validation:XValidation:rule="!has(self.readReplicaBackendStoreUri) || ['sqlite', 'postgresql', 'mysql'].exists(db, self.readReplicaBackendStoreUri.startsWith(db + '://') || self.readReplicaBackendStoreUri.startsWith(db + '+'))",message="readReplicaBackendStoreUri must use a supported SQL metadata store URI scheme"
// +kubebuilder:validation:XValidation:rule="!has(self.registryStoreUri) || ['sqlite', 'postgresql', 'mysql'].exists(db, self.registryStoreUri.startsWith(db + '://') || self.registryStoreUri.startsWith(db + '+'))",message="registryStoreUri must use a supported SQL metadata store URI scheme"
// +kubebuilder:validation:XValidation:rule="!has(self.backendStoreUri) || has(self.storage) || !(self.backendStoreUri.startsWith('sqlite://') || self.backendStoreUri.startsWith('file://'))",message="storage must be configured when using file-based backend store (sqlite:// or file:// prefix)"
// +kubebuilder:validation:XValidation:rule="!has(self.readReplicaBackendStoreUri) || has(self.storage) || !self.readReplicaBackendStoreUri.startsWith('sqlite://')",message="storage must be configured when using a file-based read-replica backend store (sqlite:// prefix)"
// +kubebuilder:validation:XValidation:rule="!has(self.registryStoreUri) || has(self.storage) || !(self.registryStoreUri.startsWith('sqlite://') || self.registryStoreUri.startsWith('file://'))",message="storage must be configured when using file-based registry store (sqlite:// or file:// prefix)"
// +kubebuilder:validation:XValidation:rule="!has(self.artifactsDestination) || has(self.storage) || !self.artifactsDestination.startsWith('file://')",message="storage must be configured when artifactsDestination uses file-based storage (file:// prefix)"
// +kubebuilder:validation:XValidation:rule="!has(self.artifactsDestination) || !self.artifactsDestination.startsWith('file://') || (has(self.serveArtifacts) && self.serveArtifacts)",message="serveArtifacts must be enabled when artifactsDestination uses file-based storage (file:// prefix)"
// +kubebuilder:validation:XValidation:rule="!has(self.env) || !self.env.exists(e, e.name == 'MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE')",message="setting the MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE environment variable is not allowed"
// +kubebuilder:validation:XValidation:rule="!has(self.env) || !self.env.exists(e, e.name == 'MLFLOW_SERVER_ENABLE_JOB_EXECUTION')",message="setting the MLFLOW_SERVER_ENABLE_JOB_EXECUTION environment variable is not allowed; the operator manages job execution lifecycle"
// +kubebuilder:validation:XValidation:rule="!has(self.networkPolicyEgressRules) || self.networkPolicyEgressRules.all(e, (has(e.ports) && size(e.ports) > 0) || (has(e.to) && size(e.to) > 0))",message="each networkPolicyEgressRules entry must specify at least one port or one destination"
// +kubebuilder:validation:XValidation:rule="!has(self.networkPolicyAdditionalEgressRules) || self.networkPolicyAdditionalEgressRules.all(e, (has(e.ports) && size(e.ports) > 0) || (has(e.to) && size(e.to) > 0))",message="each networkPolicyAdditionalEgressRules entry must specify at least one port or one destination"
// +kubebuilder:validation:XValidation:rule="!has(self.resourceClaims) || self.resourceClaims.all(c, (has(c.resourceClaimName) && size(c.resourceClaimName) > 0) != (has(c.resourceClaimTemplateName) && size(c.resourceClaimTemplateName) > 0))",message="each resourceClaims entry must set exactly one non-empty value: resourceClaimName or resourceClaimTemplateName"
// +kubebuilder:validation:XValidation:rule="!has(self.traceArchival) || !has(self.traceArchival.location) || has(self.storage) || !self.traceArchival.location.startsWith('file://')",message="storage must be configured when traceArchival.location uses file-based storage (file:// prefix)"
// +kubebuilder:validation:XValidation:rule="!has(self.traceArchival) || !has(self.traceArchival.enabled) || !self.traceArchival.enabled || (has(self.traceArchival.schedule) && size(self.traceArchival.schedule) > 0)",message="traceArchival.schedule is required when traceArchival.enabled is true"
// +kubebuilder:validation:XValidation:rule="!has(self.traceArchival) || !has(self.traceArchival.enabled) || !self.traceArchival.enabled || (has(self.traceArchival.location) && size(self.traceArchival.location) > 0)",message="traceArchival.location is required when traceArchival.enabled is true"
// +kubebuilder:validation:XValidation:rule="!has(self.traceArchival) || !has(self.traceArchival.enabled) || !self.traceArchival.enabled || (has(self.traceArchival.retention) && size(self.traceArchival.retention) > 0)",message="traceArchival.retention is required when traceArchival.enabled is true"
type MLflowSpec struct {
	// Image of the server; the one that the platform ships when absent.
	// +optional
	Image *Image `json:"image,omitempty"`

	// Number of pods.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	Replicas *int32 `json:"replicas,omitempty"`

	// When the database is brought to the server's version.
	// +optional
	// +kubebuilder:default={mode: Automatic}
	Migration *Migration `json:"migration,omitempty"`

	// Processor and memory of the server.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// Name of the ServiceAccount that is made for the server.
	// +optional
	// +kubebuilder:default="mlflow-sa"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Volume for databases and artifacts that are kept as files; none when absent.
	// +optional
	Storage *corev1.PersistentVolumeClaimSpec `json:"storage,omitempty"`

	// Bounds of the server's temporary files.
	// +optional
	TemporaryStorage *TemporaryStorage `json:"temporaryStorage,omitempty"`

	// Database of runs and experiments, as a URI without credentials.
	// +optional
	BackendStoreURI *string `json:"backendStoreUri,omitempty"`

	// Secret key that holds the URI of the database of runs and experiments.
	// +optional
	BackendStoreURIFrom *corev1.SecretKeySelector `json:"backendStoreUriFrom,omitempty"`

	// Read-only copy of the database that takes queries, as a URI without credentials.
	// +optional
	ReadReplicaBackendStoreURI *string `json:"readReplicaBackendStoreUri,omitempty"`

	// Secret key that holds the URI of the read-only copy.
	// +optional
	ReadReplicaBackendStoreURIFrom *corev1.SecretKeySelector `json:"readReplicaBackendStoreUriFrom,omitempty"`

	// Database of registered models, as a URI without credentials; the backend store when absent.
	// +optional
	RegistryStoreURI *string `json:"registryStoreUri,omitempty"`

	// Secret key that holds the URI of the database of registered models.
	// +optional
	RegistryStoreURIFrom *corev1.SecretKeySelector `json:"registryStoreUriFrom,omitempty"`

	// Where the server puts artifacts when it serves them itself.
	// +optional
	ArtifactsDestination *string `json:"artifactsDestination,omitempty"`

	// Where clients put artifacts of new experiments; needed unless the server serves artifacts.
	// +optional
	DefaultArtifactRoot *string `json:"defaultArtifactRoot,omitempty"`

	// Whether artifacts go through the server instead of straight to their store.
	// +optional
	// +kubebuilder:default=false
	ServeArtifacts *bool `json:"serveArtifacts,omitempty"`

	// Worker processes in each pod.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	Workers *int32 `json:"workers,omitempty"`

	// Further origins from which browsers may call the server.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ExtraAllowedOrigins []string `json:"extraAllowedOrigins,omitempty"`

	// Namespaces that become workspaces; all when absent.
	// +optional
	WorkspaceLabelSelector *metav1.LabelSelector `json:"workspaceLabelSelector,omitempty"`

	// Environment of the server and of trace archival.
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`

	// Environment of the server, trace archival and garbage collection, from Secrets and ConfigMaps.
	// +optional
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// Labels of the server's pods.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(self[k]) <= 63)",message="label values must be 63 characters or less"
	PodLabels map[string]string `json:"podLabels,omitempty"`

	// Annotations of the server's pods.
	// +optional
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`

	// Security of the pods, in place of the default as a whole.
	// +optional
	PodSecurityContext *corev1.PodSecurityContext `json:"podSecurityContext,omitempty"`

	// Security of the containers, in place of the default as a whole.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`

	// Labels that a node must have to run the server.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(self[k]) <= 63)",message="label values must be 63 characters or less"
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Taints of nodes that the server puts up with.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Which nodes and neighbours the server seeks or avoids.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Devices that the server's pods claim.
	// +optional
	// +listType=map
	// +listMapKey=name
	ResourceClaims []corev1.PodResourceClaim `json:"resourceClaims,omitempty"`

	// ConfigMap with certificates that the server trusts.
	// +optional
	CABundleConfigMap *ConfigMapRef `json:"caBundleConfigMap,omitempty"`

	// Connections that the server may open, in place of the default.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	NetworkPolicyEgressRules []networkingv1.NetworkPolicyEgressRule `json:"networkPolicyEgressRules,omitempty"`

	// Connections that the server may open, beside the default.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	NetworkPolicyAdditionalEgressRules []networkingv1.NetworkPolicyEgressRule `json:"networkPolicyAdditionalEgressRules,omitempty"`

	// When what users deleted is removed for good; never when absent.
	// +optional
	GarbageCollection *GarbageCollection `json:"garbageCollection,omitempty"`

	// When traces are moved out of the database.
	// +optional
	TraceArchival *TraceArchival `json:"traceArchival,omitempty"`
}

// Image is a container image and when it is pulled.
type Image struct {
	// Full reference, with tag or digest.
	// +optional
	Image string `json:"image,omitempty"`

	// When the image is pulled.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
}

// MigrationMode says when the database is migrated.
//
// +kubebuilder:validation:Enum=Automatic;Always
type MigrationMode string

// The migration modes.
const (
	MigrateAutomatic MigrationMode = "Automatic"
	MigrateAlways    MigrationMode = "Always"
)

// Migration says when and how the database is brought to the server's version.
type Migration struct {
	// Automatic when the version changes, Always on every change of the object.
	// +optional
	// +kubebuilder:default=Automatic
	Mode MigrationMode `json:"mode,omitempty"`

	// Seconds for which a finished migration Job is kept.
	// +optional
	// +kubebuilder:validation:Minimum=3600
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// TemporaryStorage bounds temporary files.
type TemporaryStorage struct {
	// Most that temporary files may take.
	// +optional
	SizeLimit *resource.Quantity `json:"sizeLimit,omitempty"`
}

// ConfigMapRef names a ConfigMap.
type ConfigMapRef struct {
	// Name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// GarbageCollection says when what users deleted is removed for good.
type GarbageCollection struct {
	// When to run, as a cron expression.
	// +required
	// +kubebuilder:validation:MinLength=1
	Schedule string `json:"schedule"`

	// How long ago something must have been deleted, such as 30d or 7d12h; at once when absent.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^(\d+(\.\d+)?d)?(\d+(\.\d+)?h)?(\d+(\.\d+)?m)?(\d+(\.\d+)?s)?$`
	OlderThan *string `json:"olderThan,omitempty"`

	// Processor and memory of a run.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// TraceArchival says when traces are moved out of the database.
type TraceArchival struct {
	// Whether traces are moved at all.
	// +optional
	// +kubebuilder:default=false
	Enabled *bool `json:"enabled,omitempty"`

	// When to run, as a cron expression.
	// +optional
	// +kubebuilder:default="0 */6 * * *"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Schedule *string `json:"schedule,omitempty"`

	// Where the traces are moved, as a URI.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Location *string `json:"location,omitempty"`

	// How old a trace must be, such as 90m, 12h or 30d.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^\d+[mhd]$`
	Retention *string `json:"retention,omitempty"`

	// Most traces that one run moves.
	// +optional
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	MaxTracesPerPass *int32 `json:"maxTracesPerPass,omitempty"`

	// Experiments, by ID, that may keep their traces for longer.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	LongRetentionAllowlist []string `json:"longRetentionAllowlist,omitempty"`

	// Processor and memory of a run.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}
