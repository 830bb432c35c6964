// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strconv"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

const (
	backendPrometheus    = "prometheus"
	backendOpenTelemetry = "opentelemetry"
)

// keda scales by what Prometheus, Graphite or the pods themselves say. Unlike an HPA it can go down to nothing.
func keda(p Part, cfg *config.Config) []client.Object {
	var objects []client.Object
	if names := collectedMetrics(p.Scale); len(names) > 0 {
		objects = append(objects, collector(p, names, cfg))
	}
	return append(objects, scaledObject(p, cfg))
}

func scaledObject(p Part, cfg *config.Config) *unstructured.Unstructured {
	least := ptr.Deref(p.Scale.MinReplicas, 1)
	so := foreign("keda.sh/v1alpha1", "ScaledObject", p)
	so.Object["spec"] = map[string]any{
		"scaleTargetRef":  map[string]any{"name": p.Name},
		"minReplicaCount": int64(least),
		"maxReplicaCount": int64(max(p.Scale.MaxReplicas, least, 1)), // KEDA takes no upper bound of nothing
		"triggers":        triggers(p, cfg),
		"advanced": map[string]any{
			"horizontalPodAutoscalerConfig": map[string]any{"behavior": behavior(p.Scale.AutoScaling, cfg)},
		},
	}
	return so
}

// foreign begins an object of a kind that we have no Go types for.
func foreign(apiVersion, kind string, p Part) *unstructured.Unstructured {
	meta := beside(p.meta())
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	u.SetName(meta.Name)
	u.SetNamespace(meta.Namespace)
	u.SetLabels(meta.Labels)
	if len(meta.Annotations) > 0 {
		u.SetAnnotations(meta.Annotations)
	}
	return u
}

// behavior is the user's, with the configured calm where the user says nothing of it.
func behavior(a *v1beta1.AutoScalingSpec, cfg *config.Config) map[string]any {
	b := &autoscalingv2.HorizontalPodAutoscalerBehavior{}
	if a != nil && a.Behavior != nil {
		b = a.Behavior.DeepCopy()
	}
	b.ScaleUp = calm(b.ScaleUp, cfg.Autoscaler.ScaleUpStabilizationWindowSeconds)
	b.ScaleDown = calm(b.ScaleDown, cfg.Autoscaler.ScaleDownStabilizationWindowSeconds)
	return encoded(b)
}

// encoded gives a Kubernetes type the form that objects without Go types hold.
func encoded(v any) map[string]any {
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v)
	if err != nil {
		panic(fmt.Sprintf("%T cannot be encoded: %v", v, err)) // it was decoded from JSON
	}
	return out
}

func calm(rules *autoscalingv2.HPAScalingRules, seconds int32) *autoscalingv2.HPAScalingRules {
	if rules == nil {
		rules = &autoscalingv2.HPAScalingRules{}
	}
	if rules.StabilizationWindowSeconds == nil {
		rules.StabilizationWindowSeconds = &seconds
	}
	return rules
}

func triggers(p Part, cfg *config.Config) []any {
	out := []any{}
	if p.Scale.AutoScaling == nil || len(p.Scale.AutoScaling.Metrics) == 0 {
		for _, m := range shortForm(p.Scale) {
			out = append(out, resourceTrigger(m))
		}
		return out
	}
	for _, m := range p.Scale.AutoScaling.Metrics {
		switch {
		case m.Type == v1beta1.ResourceMetricSourceType && m.Resource != nil:
			out = append(out, resourceTrigger(*m.Resource))
		case m.Type == v1beta1.ExternalMetricSourceType && m.External != nil:
			out = append(out, externalTrigger(*m.External))
		case m.Type == v1beta1.PodMetricSourceType && m.PodMetric != nil && m.PodMetric.Metric.Backend == backendOpenTelemetry:
			out = append(out, podTrigger(p, *m.PodMetric, cfg))
		}
	}
	return out
}

func resourceTrigger(m v1beta1.ResourceMetricSource) map[string]any {
	kind, value := m.Target.Type, "0"
	if kind == "" {
		kind = autoscalingv2.UtilizationMetricType
		if m.Target.AverageValue != nil && m.Target.AverageUtilization == nil {
			kind = autoscalingv2.AverageValueMetricType
		}
	}
	switch {
	case kind != autoscalingv2.UtilizationMetricType:
		value = amount(m.Target, value)
	case m.Target.AverageUtilization != nil:
		value = strconv.Itoa(int(*m.Target.AverageUtilization))
	case m.Name == corev1.ResourceCPU:
		value = strconv.Itoa(defaultCPUUtilization)
	}
	return map[string]any{
		"type":       string(m.Name),
		"metricType": string(kind),
		"metadata":   map[string]any{"value": value},
	}
}

func externalTrigger(m v1beta1.ExternalMetricSource) map[string]any {
	metadata := map[string]any{
		"serverAddress": m.Metric.ServerAddress,
		"query":         m.Metric.Query,
		"threshold":     amount(m.Target, "0"),
	}
	trigger := map[string]any{"type": m.Metric.Backend, "metadata": metadata}
	if m.Metric.Backend == backendPrometheus && m.Metric.Namespace != "" {
		metadata["namespace"] = m.Metric.Namespace
	}
	if auth := m.AuthenticationRef; auth != nil {
		if auth.AuthModes != "" {
			metadata["authModes"] = auth.AuthModes
		}
		if auth.AuthenticationRef.Name != "" {
			trigger["authenticationRef"] = map[string]any{"name": auth.AuthenticationRef.Name}
		}
	}
	return trigger
}

func podTrigger(p Part, m v1beta1.PodMetricSource, cfg *config.Config) map[string]any {
	address := m.Metric.ServerAddress
	if address == "" {
		address = cfg.OpenTelemetryCollector.MetricScalerEndpoint
	}
	metadata := map[string]any{
		"metricQuery":   ownSeries(m.Metric.Query, p),
		"targetValue":   amount(m.Target, "0"),
		"scalerAddress": address,
	}
	if m.Metric.OperationOverTime != "" {
		metadata["operationOverTime"] = m.Metric.OperationOverTime
	}
	return map[string]any{"type": "external", "metadata": metadata}
}

// ownSeries narrows a query to the pods of the component: all collectors send to the same scaler. A selector that the
// query has already is kept.
func ownSeries(query string, p Part) string {
	own := fmt.Sprintf("namespace=%q, deployment=%q", p.Namespace, p.Name)
	query = strings.TrimSpace(query)
	head, selector, found := strings.Cut(strings.TrimSuffix(query, "}"), "{")
	if !found || !strings.HasSuffix(query, "}") {
		return fmt.Sprintf("sum(%s{%s})", query, own)
	}
	if selector = strings.TrimRight(selector, ", "); selector != "" {
		own = selector + ", " + own
	}
	return fmt.Sprintf("sum(%s{%s})", head, own)
}

// amount is a target in the user's spelling, which the scaler reads better than a normalised quantity.
func amount(t v1beta1.MetricTarget, none string) string {
	value, average := t.Value, t.AverageValue
	if t.Type == autoscalingv2.AverageValueMetricType {
		value, average = average, value
	}
	switch {
	case value != nil:
		return string(*value)
	case average != nil:
		return string(*average)
	}
	return none
}

// collectedMetrics names the metrics that a collector must pass on for the component to be scaled by them.
func collectedMetrics(s v1beta1.ComponentExtensionSpec) []any {
	if s.AutoScaling == nil {
		return nil
	}
	var names []any
	for _, m := range s.AutoScaling.Metrics {
		if m.Type != v1beta1.PodMetricSourceType || m.PodMetric == nil || m.PodMetric.Metric.Backend != backendOpenTelemetry {
			continue
		}
		for _, name := range m.PodMetric.Metric.MetricNames {
			names = append(names, name)
		}
	}
	return names
}
