// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

const (
	queueProxy = "queue-proxy"

	metricsPath   = "/metrics"
	serverPort    = "8080"
	queuePort     = "9091"
	aggregatePort = "9088"
)

// aggregateMetrics writes down whether metrics are aggregated and scraped, and
// makes Knative's sidecar and Prometheus act on it.
func aggregateMetrics(pod *corev1.Pod, cfg config.MetricsAggregator) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	aggregate := decided(pod, v1beta1.AnnotationEnableMetricAggregation, cfg.EnableMetricAggregation)
	if proxy := container(pod, queueProxy); aggregate && proxy != nil {
		aggregateIn(pod, proxy)
	}
	if !decided(pod, v1beta1.AnnotationEnablePrometheusScrape, cfg.EnablePrometheusScraping) {
		return
	}
	pod.Annotations[v1beta1.AnnotationPrometheusPort] = queuePort
	if aggregate {
		pod.Annotations[v1beta1.AnnotationPrometheusPort] = aggregatePort
	}
	pod.Annotations[v1beta1.AnnotationPrometheusPath] = metricsPath
}

// decided is what the pod says, or else the platform, which is then written
// down.
func decided(pod *corev1.Pod, key string, configured bool) bool {
	if value, ok := pod.Annotations[key]; ok {
		return value == "true"
	}
	pod.Annotations[key] = strconv.FormatBool(configured)
	return configured
}

func aggregateIn(pod *corev1.Pod, proxy *corev1.Container) {
	value := func(key, fallback string) string {
		if v, ok := pod.Annotations[key]; ok {
			return v
		}
		return fallback
	}
	for _, v := range []corev1.EnvVar{
		{Name: "KSERVE_CONTAINER_PROMETHEUS_METRICS_PORT", Value: value(v1beta1.AnnotationKServePrometheusPort, serverPort)},
		{Name: "KSERVE_CONTAINER_PROMETHEUS_METRICS_PATH", Value: value(v1beta1.AnnotationKServePrometheusPath, metricsPath)},
		{Name: "AGGREGATE_PROMETHEUS_METRICS_PORT", Value: aggregatePort},
	} {
		setEnv(proxy, v)
	}
	const name = "aggr-metric"
	for _, p := range proxy.Ports {
		if p.Name == name {
			return
		}
	}
	proxy.Ports = append(proxy.Ports, corev1.ContainerPort{Name: name, ContainerPort: 9088, Protocol: corev1.ProtocolTCP})
}
