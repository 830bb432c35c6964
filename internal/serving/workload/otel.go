// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// The stages of a collector's pipeline.
const (
	receivePrometheus = "prometheus"
	processEnv        = "resourcedetection/env"
	processTransform  = "transform"
	processFilter     = "filter/metrics"
	exportOTLP        = "otlp"
)

// collector runs beside each pod, reads its metrics and sends those that the component is scaled by to the scaler,
// marked with the pod they come from.
func collector(p Part, metrics []any, cfg *config.Config) *unstructured.Unstructured {
	settings := cfg.OpenTelemetryCollector
	requirements := settings.Resource.Requirements()
	spec := map[string]any{
		"mode": "sidecar",
		"config": map[string]any{
			"receivers":  map[string]any{receivePrometheus: scrape(p, settings.ScrapeInterval)},
			"processors": processors(metrics),
			"exporters": map[string]any{exportOTLP: map[string]any{
				"endpoint":    settings.MetricReceiverEndpoint,
				"compression": "none",
				"tls":         map[string]any{"insecure": true},
			}},
			"service": map[string]any{"pipelines": map[string]any{"metrics": map[string]any{
				"receivers":  []any{receivePrometheus},
				"processors": []any{processEnv, processTransform, processFilter},
				"exporters":  []any{exportOTLP},
			}}},
		},
	}
	if asked := encoded(&requirements); len(asked) > 0 {
		spec["resources"] = asked
	}
	u := foreign("opentelemetry.io/v1beta1", "OpenTelemetryCollector", p)
	u.Object["spec"] = spec
	return u
}

func scrape(p Part, interval string) map[string]any {
	port := p.Annotations[v1beta1.AnnotationKServePrometheusPort]
	if port == "" {
		port = "8080"
	}
	return map[string]any{"config": map[string]any{"scrape_configs": []any{map[string]any{
		"job_name":        "otel-collector",
		"scrape_interval": interval,
		"static_configs":  []any{map[string]any{"targets": []any{"localhost:" + port}}},
	}}}}
}

func processors(metrics []any) map[string]any {
	return map[string]any{
		processEnv: map[string]any{"detectors": []any{"env"}, "timeout": "2s", "override": false},
		processTransform: map[string]any{"metric_statements": []any{map[string]any{
			"context": "datapoint",
			"statements": []any{
				mark("namespace", "k8s.namespace.name"),
				mark("deployment", "k8s.deployment.name"),
				mark("pod", "k8s.pod.name"),
			},
		}}},
		processFilter: map[string]any{"metrics": map[string]any{"include": map[string]any{
			"match_type": "strict", "metric_names": metrics,
		}}},
	}
}

// mark copies what the collector knows of its pod to each data point, where queries can select by it.
func mark(attribute, from string) string {
	return `set(attributes["` + attribute + `"], resource.attributes["` + from + `"])`
}
