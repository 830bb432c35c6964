// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"bytes"
	"encoding/json"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// AutoScalingSpec describes scaling by several metrics.
type AutoScalingSpec struct {
	// Metrics to scale by.
	// +optional
	Metrics []MetricsSpec `json:"metrics,omitempty"`
	// Behavior tells how fast to scale up and down.
	// +optional
	Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior,omitempty"`
}

// MetricSourceType tells where a metric comes from.
//
// +kubebuilder:validation:Enum=Resource;External;PodMetric
type MetricSourceType string

// Where a metric comes from.
const (
	ResourceMetricSourceType MetricSourceType = "Resource"
	ExternalMetricSourceType MetricSourceType = "External"
	PodMetricSourceType      MetricSourceType = "PodMetric"
)

// MetricsSpec is one metric; the block that belongs to the type is set.
type MetricsSpec struct {
	// Type tells which block is set.
	Type MetricSourceType `json:"type"`
	// Resource is the use of processor or memory.
	// +optional
	Resource *ResourceMetricSource `json:"resource,omitempty"`
	// External is a metric of a monitoring system.
	// +optional
	External *ExternalMetricSource `json:"external,omitempty"`
	// PodMetric is a metric that the pods publish.
	// +optional
	PodMetric *PodMetricSource `json:"podmetric,omitempty"`
}

// ResourceMetricSource is the use of a resource.
type ResourceMetricSource struct {
	// Name of the resource.
	// +kubebuilder:validation:Enum=cpu;memory
	Name corev1.ResourceName `json:"name"`
	// Target to aim for.
	Target MetricTarget `json:"target"`
}

// ExternalMetricSource is a metric of a monitoring system.
type ExternalMetricSource struct {
	// Metric to read.
	Metric ExternalMetrics `json:"metric"`
	// AuthenticationRef names the credentials to read it with.
	// +optional
	AuthenticationRef *ExtMetricAuthentication `json:"authenticationRef,omitempty"`
	// Target to aim for.
	Target MetricTarget `json:"target"`
}

// ExternalMetrics says which metric to read and where.
type ExternalMetrics struct {
	// Backend that is asked.
	// +optional
	// +kubebuilder:validation:Enum=prometheus;graphite
	Backend string `json:"backend,omitempty"`
	// ServerAddress of the backend.
	// +optional
	ServerAddress string `json:"serverAddress,omitempty"`
	// Query whose answer is the metric.
	// +optional
	Query string `json:"query,omitempty"`
	// Namespace that the query is limited to.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ExtMetricAuthentication names credentials for a monitoring system.
type ExtMetricAuthentication struct {
	// AuthModes of the backend, separated by commas.
	// +optional
	AuthModes string `json:"authModes,omitempty"`
	// AuthenticationRef names the TriggerAuthentication.
	AuthenticationRef AuthenticationRef `json:"authenticationRef"`
}

// AuthenticationRef names an object in the same namespace.
type AuthenticationRef struct {
	// Name of the object.
	Name string `json:"name"`
}

// PodMetricSource is a metric that the pods publish.
type PodMetricSource struct {
	// Metric to read.
	Metric PodMetrics `json:"metric"`
	// Target to aim for.
	Target MetricTarget `json:"target"`
}

// PodMetrics says which metric of the pods to read.
type PodMetrics struct {
	// Backend that collects the metric.
	// +optional
	// +kubebuilder:validation:Enum=opentelemetry
	Backend string `json:"backend,omitempty"`
	// ServerAddress of the collector.
	// +optional
	ServerAddress string `json:"serverAddress,omitempty"`
	// MetricNames that the collector passes on.
	// +optional
	MetricNames []string `json:"metricNames,omitempty"`
	// Query whose answer is the metric.
	// +optional
	Query string `json:"query,omitempty"`
	// OperationOverTime sums up the values of the window, for example avg.
	// +optional
	OperationOverTime string `json:"operationOverTime,omitempty"`
}

// MetricTarget is the value to aim for.
type MetricTarget struct {
	// Type tells how the value is to be understood.
	// +optional
	// +kubebuilder:validation:Enum=Utilization;Value;AverageValue
	Type autoscalingv2.MetricTargetType `json:"type,omitempty"`
	// Value of the metric as a whole.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	Value *MetricQuantity `json:"value,omitempty"`
	// AverageValue of the metric per pod.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	AverageValue *MetricQuantity `json:"averageValue,omitempty"`
	// AverageUtilization of a resource in percent of what is requested.
	// +optional
	AverageUtilization *int32 `json:"averageUtilization,omitempty"`
}

// MetricQuantity is a quantity in the spelling of the user. The scaler that
// receives it reads 0.5 but not 500m, which is how a Quantity would spell it.
type MetricQuantity string

// Quantity returns the amount.
func (q MetricQuantity) Quantity() (resource.Quantity, error) {
	return resource.ParseQuantity(string(q))
}

// UnmarshalJSON accepts a number or a string that is a quantity.
func (q *MetricQuantity) UnmarshalJSON(data []byte) error {
	text := string(data)
	if bytes.HasPrefix(data, []byte(`"`)) {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	if _, err := resource.ParseQuantity(text); err != nil {
		return fmt.Errorf("%s is not a quantity such as 0.5 or 500m: %w", data, err)
	}
	*q = MetricQuantity(text)
	return nil
}
