// SPDX-License-Identifier: Apache-2.0

package config

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

const (
	defaultDomainTemplate = "{{ .Name }}-{{ .Namespace }}.{{ .IngressDomain }}"
	defaultLocalService   = "knative-local-gateway.istio-system.svc.cluster.local"
)

// Default is what holds without a ConfigMap. Services run in Standard mode, so that nothing else need be installed.
func Default() *Config {
	small := resources("100m", "1", "100Mi", "1Gi")
	return &Config{
		Explainers: Explainers{Art: Explainer{Image: "kserve/art-explainer", DefaultImageVersion: "latest"}},
		OpenTelemetryCollector: OpenTelemetryCollector{
			ScrapeInterval:         "5s",
			MetricReceiverEndpoint: "keda-otel-scaler.keda.svc:4317",
			MetricScalerEndpoint:   "keda-otel-scaler.keda.svc:4318",
			Resource:               resources("200m", "1", "512Mi", "2Gi"),
		},
		Autoscaler: Autoscaler{ScaleUpStabilizationWindowSeconds: 0, ScaleDownStabilizationWindowSeconds: 300},
		StorageInitializer: StorageInitializer{
			Image:                   "kserve/storage-initializer:latest",
			Resources:               small,
			CABundleVolumeMountPath: "/etc/ssl/custom-certs",
			CPUModelcar:             resource.MustParse("10m"),
			MemoryModelcar:          resource.MustParse("15Mi"),
		},
		Credentials: Credentials{
			S3:                          S3{S3AccessKeyIDName: "awsAccessKeyID", S3SecretAccessKeyName: "awsSecretAccessKey"},
			GCS:                         GCS{GCSCredentialFileName: "gcloud-application-credentials.json"},
			StorageSpecSecretName:       "storage-config",
			StorageSecretNameAnnotation: v1beta1.AnnotationStorageSecretName,
		},
		Ingress: Ingress{
			KServeIngressGateway:        "kserve/kserve-ingress-gateway",
			IngressGateway:              "knative-serving/knative-ingress-gateway",
			KnativeLocalGatewayService:  defaultLocalService,
			LocalGateway:                "knative-serving/knative-local-gateway",
			LocalGatewayService:         defaultLocalService,
			IngressDomain:               "example.com",
			DomainTemplate:              defaultDomainTemplate,
			URLScheme:                   "http",
			ModelBasedRoutingHeaderName: "X-Gateway-Model-Name",
			ModelBasedRoutingMode:       "enabled",
		},
		Logger: Logger{Image: "kserve/agent:latest", Resources: small, DefaultURL: "http://default-broker"},
		Batcher: Batcher{
			Image: "kserve/agent:latest", Resources: resources("1", "1", "1Gi", "1Gi"), MaxBatchSize: 32, MaxLatency: 5000,
		},
		Agent:  Agent{Image: "kserve/agent:latest", Resources: small},
		Router: Router{Image: "kserve/router:latest", Resources: small},
		Deploy: Deploy{DefaultDeploymentMode: ModeStandard},
		LocalModel: LocalModel{
			JobNamespace:                 "kserve-localmodel-jobs",
			DefaultJobImage:              "kserve/storage-initializer:latest",
			JobTTLSecondsAfterFinished:   3600,
			ReconcilationFrequencyInSecs: 60,
		},
		Scheduler: Scheduler{ExpirationAnnotations: []string{"certificates.kserve.io/expiration"}},
	}
}

func resources(cpuRequest, cpuLimit, memoryRequest, memoryLimit string) Resources {
	return Resources{
		CPURequest:    resource.MustParse(cpuRequest),
		CPULimit:      resource.MustParse(cpuLimit),
		MemoryRequest: resource.MustParse(memoryRequest),
		MemoryLimit:   resource.MustParse(memoryLimit),
	}
}

// Requirements renders what a container carries; what was not said is left out.
func (r Resources) Requirements() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: resourceList(r.CPURequest, r.MemoryRequest),
		Limits:   resourceList(r.CPULimit, r.MemoryLimit),
	}
}

func resourceList(cpu, memory resource.Quantity) corev1.ResourceList {
	list := corev1.ResourceList{}
	if !cpu.IsZero() {
		list[corev1.ResourceCPU] = cpu.DeepCopy()
	}
	if !memory.IsZero() {
		list[corev1.ResourceMemory] = memory.DeepCopy()
	}
	if len(list) == 0 {
		return nil
	}
	return list
}
