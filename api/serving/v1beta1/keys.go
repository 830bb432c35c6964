// SPDX-License-Identifier: Apache-2.0

package v1beta1

// Group of all serving kinds; most keys start with it.
const Group = "serving.kserve.io"

const (
	prefix         = Group + "/"
	internalPrefix = "internal." + Group + "/"
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
	AnnotationStorageSourceURI     = internalPrefix + "storage-initializer-sourceuri"
	AnnotationStorageSpec          = internalPrefix + "storage-spec"
	AnnotationStorageSpecParam     = internalPrefix + "storage-spec-param"
	AnnotationStorageSpecKey       = internalPrefix + "storage-spec-key"
	AnnotationStorageContainer     = internalPrefix + "storage-container-name"
	AnnotationLogger               = internalPrefix + "logger"
	AnnotationLoggerSinkURL        = internalPrefix + "logger-sink-url"
	AnnotationLoggerMode           = internalPrefix + "logger-mode"
	AnnotationLoggerHeaders        = internalPrefix + "logger-metadata-headers"
	AnnotationLoggerAnnotations    = internalPrefix + "logger-metadata-annotations"
	AnnotationBatcher              = internalPrefix + "batcher"
	AnnotationBatcherMaxBatchSize  = internalPrefix + "batcher-max-batchsize"
	AnnotationBatcherMaxLatency    = internalPrefix + "batcher-max-latency"
	AnnotationAgent                = internalPrefix + "agent"
	AnnotationConfigVolumeName     = internalPrefix + "configVolumeName"
	AnnotationConfigMountPath      = internalPrefix + "configMountPath"
	AnnotationModelDir             = internalPrefix + "modelDir"
	AnnotationPredictorHost        = internalPrefix + "predictor-host"
	AnnotationPredictorProtocol    = internalPrefix + "predictor-protocol"
	AnnotationLocalModelSourceURI  = internalPrefix + "localmodel-sourceuri"
	AnnotationLocalModelPVCName    = internalPrefix + "localmodel-pvc-name"
	AnnotationConfidentialEnabled  = internalPrefix + "confidential-enabled"
	AnnotationConfidentialResource = internalPrefix + "confidential-resource-id"
	AnnotationModelCriticality     = internalPrefix + "model-criticality"
	AnnotationLoRACriticalities    = internalPrefix + "lora-criticalities"
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
	LabelLocalModel            = internalPrefix + "localmodel"
	LabelLocalModelNamespace   = internalPrefix + "localmodel-namespace"
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
