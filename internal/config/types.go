// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// Name of the ConfigMap; it lives in the manager's own namespace.
const Name = "inferenceservice-config"

// The keys of the ConfigMap.
const (
	KeyExplainers             = "explainers"
	KeyInferenceService       = "inferenceService"
	KeyMultiNode              = "multiNode"
	KeyOpenTelemetryCollector = "opentelemetryCollector"
	KeyAutoscaler             = "autoscaler"
	KeyStorageInitializer     = "storageInitializer"
	KeyCredentials            = "credentials"
	KeyIngress                = "ingress"
	KeyLogger                 = "logger"
	KeyBatcher                = "batcher"
	KeyAgent                  = "agent"
	KeyRouter                 = "router"
	KeyDeploy                 = "deploy"
	KeyMetricsAggregator      = "metricsAggregator"
	KeyLocalModel             = "localModel"
	KeySecurity               = "security"
	KeyService                = "service"
	KeyScheduler              = "scheduler"
	KeyWVA                    = "autoscaling-wva-controller-config"
)

// The ways to run a service. The configuration holds these spellings only.
const (
	ModeStandard  = "Standard"
	ModeKnative   = "Knative"
	ModeModelMesh = "ModelMesh"
)

// The ways to bring a model that is an OCI image into a pod.
const (
	OCIModelcar = "modelcar"
	OCINative   = "native"
	OCIFetch    = "fetch"
)

// Config is the whole platform configuration, checked and complete.
type Config struct {
	Explainers             Explainers
	InferenceService       InferenceService
	MultiNode              MultiNode
	OpenTelemetryCollector OpenTelemetryCollector
	Autoscaler             Autoscaler
	StorageInitializer     StorageInitializer
	Credentials            Credentials
	Ingress                Ingress
	Logger                 Logger
	Batcher                Batcher
	Agent                  Agent
	Router                 Router
	Deploy                 Deploy
	MetricsAggregator      MetricsAggregator
	LocalModel             LocalModel
	Security               Security
	Service                Service
	Scheduler              Scheduler
	WVA                    WVA

	// Unusable are the keys that cannot be used and of which no good value is known, because they have been wrong ever
	// since the process started: their defaults only stand in. Whoever would change what was made of the true value
	// asks for them first.
	Unusable []Problem
}

// FirstUnusable is the first of the keys that cannot be used, nil if none is.
func (c *Config) FirstUnusable(keys ...string) *Problem {
	for i := range c.Unusable {
		if slices.Contains(keys, c.Unusable[i].Key) {
			return &c.Unusable[i]
		}
	}
	return nil
}

// Resources are what a container asks for and may use at most. A zero quantity means that nothing is said.
type Resources struct {
	CPURequest    resource.Quantity `json:"cpuRequest"`
	CPULimit      resource.Quantity `json:"cpuLimit"`
	MemoryRequest resource.Quantity `json:"memoryRequest"`
	MemoryLimit   resource.Quantity `json:"memoryLimit"`
}

// Explainers are the images of the explainers that a service may ask for by name.
type Explainers struct {
	Art Explainer `json:"art"`
}

// Explainer is an image; the version is used when the service names none.
type Explainer struct {
	Image               string `json:"image"`
	DefaultImageVersion string `json:"defaultImageVersion"`
}

// InferenceService is what holds for every service.
type InferenceService struct {
	ServiceAnnotationDisallowedList []string  `json:"serviceAnnotationDisallowedList"`
	ServiceLabelDisallowedList      []string  `json:"serviceLabelDisallowedList"`
	Resource                        Resources `json:"resource"`
}

// MultiNode names resources that count as GPUs besides the well-known ones.
type MultiNode struct {
	CustomGPUResourceTypeList []string `json:"customGPUResourceTypeList"`
}

// OpenTelemetryCollector is how the collector beside a service scaled by KEDA is set up.
type OpenTelemetryCollector struct {
	ScrapeInterval         string    `json:"scrapeInterval"`
	MetricReceiverEndpoint string    `json:"metricReceiverEndpoint"`
	MetricScalerEndpoint   string    `json:"metricScalerEndpoint"`
	Resource               Resources `json:"resource"`
}

// Autoscaler is how calmly KEDA scales, and who scales by traffic. On the wire the numbers are strings.
type Autoscaler struct {
	ScaleUpStabilizationWindowSeconds   int32 `json:"scaleUpStabilizationWindowSeconds"`
	ScaleDownStabilizationWindowSeconds int32 `json:"scaleDownStabilizationWindowSeconds"`
	// Activator is the Service, in the namespace of the configuration, of the process that scales services by their
	// traffic. Empty: there is none.
	Activator string `json:"activator,omitempty"` // what does not say it is recognised as before
}

// StorageInitializer is the container that downloads models, and how OCI models are mounted.
type StorageInitializer struct {
	Image string `json:"image"`
	// Command belongs to the image: what it is started with, before the pairs of source and destination. Empty means
	// that the image starts its downloader by itself.
	Command []string `json:"command,omitempty"` // what does not say it is recognised as before
	Resources
	CABundleConfigMapName   string            `json:"caBundleConfigMapName"`
	CABundleVolumeMountPath string            `json:"caBundleVolumeMountPath"`
	EnableModelcar          bool              `json:"enableModelcar"`
	EnableOCIModelSupport   bool              `json:"enableOciModelSupport"`
	OCIModelMode            string            `json:"ociModelMode"`
	CPUModelcar             resource.Quantity `json:"cpuModelcar"`
	MemoryModelcar          resource.Quantity `json:"memoryModelcar"`
	// UIDModelcar is nil when the user ids of containers are to be left alone.
	UIDModelcar         *int64 `json:"uidModelcar"`
	OCIInsecureRegistry bool   `json:"ociInsecureRegistry"`
	// ModelRegistryURL is where model-registry:// addresses that name no registry are looked up.
	ModelRegistryURL string `json:"modelRegistryUrl,omitempty"` // what does not say it is recognised as before
}

// EffectiveOCIMode is the mode in which oci:// models are mounted, or empty when they are not supported.
func (s StorageInitializer) EffectiveOCIMode() string {
	switch {
	case s.OCIModelMode != "":
		return s.OCIModelMode
	case s.EnableModelcar, s.EnableOCIModelSupport:
		return OCIModelcar
	}
	return ""
}

// Credentials says how storage credentials are found and what they are called.
type Credentials struct {
	S3                          S3     `json:"s3"`
	GCS                         GCS    `json:"gcs"`
	StorageSpecSecretName       string `json:"storageSpecSecretName"`
	StorageSecretNameAnnotation string `json:"storageSecretNameAnnotation"`
}

// S3 names the data keys of S3 secrets and gives settings for secrets that have none of their own. The settings are
// handed to the downloader as they are.
type S3 struct {
	S3AccessKeyIDName        string `json:"s3AccessKeyIDName"`
	S3SecretAccessKeyName    string `json:"s3SecretAccessKeyName"`
	S3Endpoint               string `json:"s3Endpoint"`
	S3UseHTTPS               string `json:"s3UseHttps"`
	S3Region                 string `json:"s3Region"`
	S3VerifySSL              string `json:"s3VerifySSL"`
	S3UseVirtualBucket       string `json:"s3UseVirtualBucket"`
	S3UseAccelerate          string `json:"s3UseAccelerate"`
	S3UseAnonymousCredential string `json:"s3UseAnonymousCredential"`
	S3CABundleConfigMap      string `json:"s3CABundleConfigMap"`
	S3CABundle               string `json:"s3CABundle"`
}

// GCS names the data key of Google Cloud secrets.
type GCS struct {
	GCSCredentialFileName string `json:"gcsCredentialFileName"`
}

// Ingress is how services are reached from outside and what their hosts are called.
type Ingress struct {
	EnableGatewayAPI bool `json:"enableGatewayApi"`
	// KServeIngressGateway is namespace/name of a Gateway API gateway.
	KServeIngressGateway string `json:"kserveIngressGateway"`
	// IngressGateway and LocalGateway are namespace/name of Istio gateways; the services are host names.
	IngressGateway             string   `json:"ingressGateway"`
	KnativeLocalGatewayService string   `json:"knativeLocalGatewayService"`
	LocalGateway               string   `json:"localGateway"`
	LocalGatewayService        string   `json:"localGatewayService"`
	IngressDomain              string   `json:"ingressDomain"`
	IngressClassName           *string  `json:"ingressClassName"`
	AdditionalIngressDomains   []string `json:"additionalIngressDomains"`
	DomainTemplate             string   `json:"domainTemplate"`
	URLScheme                  string   `json:"urlScheme"`

	EnableLLMInferenceServiceTLS bool   `json:"enableLLMInferenceServiceTLS"`
	DisableIstioVirtualHost      bool   `json:"disableIstioVirtualHost"`
	PathTemplate                 string `json:"pathTemplate"`
	DisableIngressCreation       bool   `json:"disableIngressCreation"`
	DisableHTTPRouteTimeout      bool   `json:"disableHTTPRouteTimeout"`
	ModelBasedRoutingHeaderName  string `json:"modelBasedRoutingHeaderName"`
	ModelBasedRoutingMode        string `json:"modelBasedRoutingMode"`
	// AllowedAnnotations are those of services that reach an Ingress although they reach beyond the service: names, or
	// patterns with a star.
	AllowedAnnotations []string `json:"allowedAnnotations,omitempty"` // what does not say it is recognised as before
}

// Logger is how payloads are logged. Empty and zero values mean that nothing is said.
type Logger struct {
	Image string `json:"image"`
	Resources
	DefaultURL    string                     `json:"defaultUrl"`
	CABundle      string                     `json:"caBundle"`
	CACertFile    string                     `json:"caCertFile"`
	TLSSkipVerify bool                       `json:"tlsSkipVerify"`
	Storage       *v1beta1.LoggerStorageSpec `json:"storage"`
	MarshallerURL string                     `json:"marshallerUrl"`
	BatchSize     int                        `json:"batchSize"`
	BatchInterval string                     `json:"batchInterval"`
}

// Batcher is how requests are collected. On the wire the numbers are strings.
type Batcher struct {
	Image string `json:"image"`
	Resources
	MaxBatchSize int `json:"maxBatchSize"`
	// MaxLatency is in milliseconds.
	MaxLatency int `json:"maxLatency"`
}

// Agent is the container that logs, batches and pulls models beside a model server.
type Agent struct {
	Image string `json:"image"`
	// Command belongs to the image: what it is started with, before its flags. Empty means that the image starts its agent
	// by itself.
	Command []string `json:"command,omitempty"` // what does not say it is recognised as before
	Resources
}

// Router is the container that serves an InferenceGraph.
type Router struct {
	Image string `json:"image"`
	// Command belongs to the image: what it is started with, before its flags. Empty means that the image starts its router
	// by itself.
	Command []string `json:"command,omitempty"` // what does not say it is recognised as before
	Resources
	Headers          RouterHeaders `json:"headers"`
	ImagePullPolicy  string        `json:"imagePullPolicy"`
	ImagePullSecrets []string      `json:"imagePullSecrets"`
	// CABundle is a ConfigMap with certificates of authorities that routers trust, beside the configuration.
	CABundle string `json:"caBundle"`
	// EnableTLS and EnableAuth let all routers answer with TLS, and ask who calls; a graph may ask for it by itself.
	EnableTLS  bool `json:"enableTls"`
	EnableAuth bool `json:"enableAuth"`
}

// RouterHeaders are the request headers that a router hands on.
type RouterHeaders struct {
	Propagate []string `json:"propagate"`
}

// Deploy is how services run that do not say it themselves.
type Deploy struct {
	// DefaultDeploymentMode is ModeStandard, ModeKnative or ModeModelMesh.
	DefaultDeploymentMode     string                    `json:"defaultDeploymentMode"`
	DeploymentRolloutStrategy DeploymentRolloutStrategy `json:"deploymentRolloutStrategy"`
}

// DeploymentRolloutStrategy is how Deployments replace their pods.
type DeploymentRolloutStrategy struct {
	DefaultRollout DefaultRollout `json:"defaultRollout"`
}

// DefaultRollout holds for services without a strategy of their own; nil means that nothing is said.
type DefaultRollout struct {
	MaxSurge       *intstr.IntOrString `json:"maxSurge"`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable"`
}

// MetricsAggregator is what pods without annotations of their own do about metrics. On the wire the truth values are
// strings.
type MetricsAggregator struct {
	EnableMetricAggregation  bool `json:"enableMetricAggregation"`
	EnablePrometheusScraping bool `json:"enablePrometheusScraping"`
}

// LocalModel is how models are kept on nodes.
type LocalModel struct {
	Enabled                    bool   `json:"enabled"`
	JobNamespace               string `json:"jobNamespace"`
	DefaultJobImage            string `json:"defaultJobImage"`
	FSGroup                    *int64 `json:"fsGroup"`
	JobTTLSecondsAfterFinished int32  `json:"jobTTLSecondsAfterFinished"`
	// ReconcilationFrequencyInSecs is spelt so on the wire.
	ReconcilationFrequencyInSecs int64 `json:"reconcilationFrequencyInSecs"`
	DisableVolumeManagement      bool  `json:"disableVolumeManagement"`
}

// Security is what pods may do that do not say it themselves.
type Security struct {
	AutoMountServiceAccountToken bool `json:"autoMountServiceAccountToken"`
}

// Service is how Services of components look.
type Service struct {
	ServiceClusterIPNone bool `json:"serviceClusterIPNone"`
}

// Scheduler names the annotations that say when a certificate expires.
type Scheduler struct {
	ExpirationAnnotations []string `json:"expirationAnnotations"`
}

// WVA is where the workload variant autoscaler's metrics are read.
type WVA struct {
	Prometheus WVAPrometheus `json:"prometheus"`
}

// WVAPrometheus is a Prometheus server and how KEDA authenticates with it.
type WVAPrometheus struct {
	URL                   string `json:"url"`
	TLSInsecureSkipVerify bool   `json:"tlsInsecureSkipVerify"`
	AuthModes             string `json:"authModes"`
	TriggerAuthName       string `json:"triggerAuthName"`
	TriggerAuthKind       string `json:"triggerAuthKind"`
}
