// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// ComponentType names a component of an InferenceService.
type ComponentType string

// Components of an InferenceService.
const (
	PredictorComponent   ComponentType = "predictor"
	TransformerComponent ComponentType = "transformer"
	ExplainerComponent   ComponentType = "explainer"
)

// ScaleMetric is what a component is scaled by.
//
// +kubebuilder:validation:Enum=cpu;memory;concurrency;rps
type ScaleMetric string

// Metrics to scale by.
const (
	MetricCPU         ScaleMetric = "cpu"
	MetricMemory      ScaleMetric = "memory"
	MetricConcurrency ScaleMetric = "concurrency"
	MetricRPS         ScaleMetric = "rps"
)

// ComponentExtensionSpec is what all components have in common.
type ComponentExtensionSpec struct {
	// MinReplicas is the least number of pods, 1 when empty.
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// MaxReplicas is the greatest number of pods.
	// +optional
	MaxReplicas int32 `json:"maxReplicas,omitempty"`
	// ScaleTarget is the value of the metric per pod to aim for.
	// +optional
	ScaleTarget *int32 `json:"scaleTarget,omitempty"`
	// ScaleMetric is what the component is scaled by.
	// +optional
	ScaleMetric *ScaleMetric `json:"scaleMetric,omitempty"`
	// ScaleMetricType tells how the target is to be understood.
	// +optional
	// +kubebuilder:validation:Enum=Utilization;Value;AverageValue
	ScaleMetricType *autoscalingv2.MetricTargetType `json:"scaleMetricType,omitempty"`
	// AutoScaling describes scaling by several metrics.
	// +optional
	AutoScaling *AutoScalingSpec `json:"autoScaling,omitempty"`
	// ContainerConcurrency is how many requests a pod may handle at once.
	// +optional
	ContainerConcurrency *int64 `json:"containerConcurrency,omitempty"`
	// TimeoutSeconds is how long a request may take.
	// +optional
	TimeoutSeconds *int64 `json:"timeout,omitempty"`
	// CanaryTrafficPercent is the share of requests the newest revision gets.
	// +optional
	CanaryTrafficPercent *int64 `json:"canaryTrafficPercent,omitempty"`
	// Logger sends copies of requests and responses elsewhere.
	// +optional
	Logger *LoggerSpec `json:"logger,omitempty"`
	// Batcher collects requests and sends them on together.
	// +optional
	Batcher *Batcher `json:"batcher,omitempty"`
	// Labels for the pods of the component.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations for the pods of the component.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// DeploymentStrategy tells how old pods are replaced by new ones.
	// +optional
	DeploymentStrategy *appsv1.DeploymentStrategy `json:"deploymentStrategy,omitempty"`
}

// LoggerType tells what is logged.
//
// +kubebuilder:validation:Enum=all;request;response
type LoggerType string

// What a logger logs.
const (
	LogAll      LoggerType = "all"
	LogRequest  LoggerType = "request"
	LogResponse LoggerType = "response"
)

// LoggerSpec describes where copies of requests and responses go.
type LoggerSpec struct {
	// URL of the receiver.
	// +optional
	URL *string `json:"url,omitempty"`
	// Mode tells what is logged.
	// +optional
	Mode LoggerType `json:"mode,omitempty"`
	// MetadataHeaders are request headers to log.
	// +optional
	MetadataHeaders []string `json:"metadataHeaders,omitempty"`
	// MetadataAnnotations are annotations of the service to log.
	// +optional
	MetadataAnnotations []string `json:"metadataAnnotations,omitempty"`
	// Storage to write to instead of the URL.
	// +optional
	Storage *LoggerStorageSpec `json:"storage,omitempty"`
	// MarshallerURL of the service that turns log entries into files.
	// +optional
	MarshallerURL *string `json:"marshallerUrl,omitempty"`
	// BatchSize is how many entries go into one file.
	// +optional
	BatchSize *int `json:"batchSize,omitempty"`
	// BatchInterval is how long to wait for a file to fill.
	// +optional
	BatchInterval *string `json:"batchInterval,omitempty"`
}

// Batcher describes how requests are collected.
type Batcher struct {
	// MaxBatchSize is the greatest number of instances in a batch.
	// +optional
	MaxBatchSize *int `json:"maxBatchSize,omitempty"`
	// MaxLatency is how many milliseconds to wait for a batch to fill.
	// +optional
	MaxLatency *int `json:"maxLatency,omitempty"`
	// Timeout of a batch in seconds.
	// +optional
	Timeout *int `json:"timeout,omitempty"`
}
