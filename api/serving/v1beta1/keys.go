// SPDX-License-Identifier: Apache-2.0

package v1beta1

// Group of all serving kinds; most keys start with it.
const Group = "serving.kserve.io"

const (
	prefix = Group + "/"
	// InternalPrefix is of keys that one part of the platform leaves for another.
	InternalPrefix = "internal." + Group + "/"
)

// Annotations that users set on services and runtimes.
const (
	AnnotationDeploymentMode          = prefix + "deploymentMode"
	AnnotationAutoscalerClass         = prefix + "autoscalerClass"
	AnnotationMetrics                 = prefix + "metrics"
	AnnotationTargetUtilization       = prefix + "targetUtilizationPercentage"
	AnnotationStop                    = prefix + "stop"
	AnnotationEnableTagRouting        = prefix + "enable-tag-routing"
	AnnotationDisableLocalModel       = prefix + "disable-localmodel"
	AnnotationNodeGroup               = prefix + "nodegroup"
	AnnotationGKEAccelerator          = prefix + "gke-accelerator"
	AnnotationEnableMetricAggregation = prefix + "enable-metric-aggregation"
	AnnotationEnablePrometheusScrape  = prefix + "enable-prometheus-scraping"
	AnnotationDisableAutoUpdate       = prefix + "disable-auto-update"
	AnnotationStorageSecretName       = prefix + "storageSecretName"
	AnnotationStorageInitializerUID   = prefix + "storage-initializer-uid"
	AnnotationGPUResourceTypes        = prefix + "gpu-resource-types"
	AnnotationLoggerSecretName        = prefix + "logger-secret-name"
	AnnotationLoggerSecretPath        = prefix + "logger-secret-path"
	AnnotationLoggerSecretFile        = prefix + "logger-secret-file"
	AnnotationServerType              = prefix + "server-type"
	AnnotationDRADeviceClass          = prefix + "exp-dra-device-class"
	AnnotationDRACELSelector          = prefix + "exp-dra-cel-selector"
	AnnotationDRADeviceCount          = prefix + "exp-dra-device-count"
	AnnotationDRAContainerName        = prefix + "exp-dra-container-name"
	AnnotationEnableServedByHeader    = prefix + "enable-served-by-header"
	AnnotationInferencePoolMigrated   = prefix + "inference-pool-migrated"
	AnnotationModelBasedRouting       = prefix + "model-based-routing-enabled"
	AnnotationStorageReadOnly         = "storage.kserve.io/readonly"
	AnnotationKServePrometheusPort    = "prometheus.kserve.io/port"
	AnnotationKServePrometheusPath    = "prometheus.kserve.io/path"
	AnnotationPrometheusPort          = "prometheus.io/port"
	AnnotationPrometheusPath          = "prometheus.io/path"
	AnnotationModelFormat             = "modelFormat"
	AnnotationExecutorBackend         = "multinode/executor-backend"
	AnnotationRolloutDuration         = "serving.knative.dev/rollout-duration"
	AnnotationEnablePassthrough       = "serving.knative.openshift.io/enablePassthrough"
)

// Annotations that users set on the secrets and service accounts of a storage.
const (
	AnnotationS3Endpoint          = prefix + "s3-endpoint"
	AnnotationS3Region            = prefix + "s3-region"
	AnnotationS3VerifySSL         = prefix + "s3-verifyssl"
	AnnotationS3UseHTTPS          = prefix + "s3-usehttps"
	AnnotationS3UseVirtualBucket  = prefix + "s3-usevirtualbucket"
	AnnotationS3UseAccelerate     = prefix + "s3-useaccelerate"
	AnnotationS3UseAnonCredential = prefix + "s3-useanoncredential"
	AnnotationS3CABundleConfigMap = prefix + "s3-cabundle-configmap"
	AnnotationS3CABundle          = prefix + "s3-cabundle"
)

// Annotations that controllers leave for the pod webhook, and conversions for
// each other.
const (
	AnnotationStorageSourceURI     = InternalPrefix + "storage-initializer-sourceuri"
	AnnotationStorageSpec          = InternalPrefix + "storage-spec"
	AnnotationStorageSpecParam     = InternalPrefix + "storage-spec-param"
	AnnotationStorageSpecKey       = InternalPrefix + "storage-spec-key"
	AnnotationStorageContainer     = InternalPrefix + "storage-container-name"
	AnnotationLogger               = InternalPrefix + "logger"
	AnnotationLoggerSinkURL        = InternalPrefix + "logger-sink-url"
	AnnotationLoggerMode           = InternalPrefix + "logger-mode"
	AnnotationLoggerHeaders        = InternalPrefix + "logger-metadata-headers"
	AnnotationLoggerAnnotations    = InternalPrefix + "logger-metadata-annotations"
	AnnotationBatcher              = InternalPrefix + "batcher"
	AnnotationBatcherMaxBatchSize  = InternalPrefix + "batcher-max-batchsize"
	AnnotationBatcherMaxLatency    = InternalPrefix + "batcher-max-latency"
	AnnotationAgent                = InternalPrefix + "agent"
	AnnotationConfigVolumeName     = InternalPrefix + "configVolumeName"
	AnnotationConfigMountPath      = InternalPrefix + "configMountPath"
	AnnotationModelDir             = InternalPrefix + "modelDir"
	AnnotationPredictorHost        = InternalPrefix + "predictor-host"
	AnnotationPredictorProtocol    = InternalPrefix + "predictor-protocol"
	AnnotationLocalModelSourceURI  = InternalPrefix + "localmodel-sourceuri"
	AnnotationLocalModelPVCName    = InternalPrefix + "localmodel-pvc-name"
	AnnotationConfidentialEnabled  = InternalPrefix + "confidential-enabled"
	AnnotationConfidentialResource = InternalPrefix + "confidential-resource-id"
	AnnotationModelCriticality     = InternalPrefix + "model-criticality"
	AnnotationLoRACriticalities    = InternalPrefix + "lora-criticalities"
)

// Labels on services and their children.
const (
	LabelInferenceService      = prefix + "inferenceservice"
	LabelInferenceGraph        = prefix + "inferencegraph"
	LabelKind                  = prefix + "kind"
	LabelTrainedModelAllocated = prefix + "trainedmodel-allocated"
	LabelRoutingGroup          = prefix + "routing-group"
	LabelComponent             = "component"
	LabelApp                   = "app"
	LabelGeneration            = "isvc.generation"
	LabelMultiNodeRole         = "multinode/role"
	LabelModelClass            = "modelClass"
	LabelServiceEnvelope       = "serviceEnvelope"
	LabelVisibility            = "networking.kserve.io/visibility"
	LabelKnativeVisibility     = "networking.knative.dev/visibility"
	LabelTrainedModelParent    = "inferenceservice"
	LabelLocalModel            = InternalPrefix + "localmodel"
	LabelLocalModelNamespace   = InternalPrefix + "localmodel-namespace"
)

// VisibilityClusterLocal keeps a service inside the cluster.
const VisibilityClusterLocal = "cluster-local"

// Finalizers of the serving kinds.
const (
	FinalizerInferenceService          = "inferenceservice.finalizers"
	FinalizerTrainedModel              = "trainedmodel.finalizer"
	FinalizerLLMInferenceService       = prefix + "llmisvc-finalizer"
	FinalizerLLMInferenceServiceConfig = prefix + "llmisvcconfig-finalizer"
	FinalizerLocalModel                = "localmodel.kserve.io/finalizer"
	FinalizerLocalModelNamespace       = "localmodelnamespacecache.kserve.io/finalizer"
)
