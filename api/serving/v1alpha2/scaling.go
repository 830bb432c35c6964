// SPDX-License-Identifier: Apache-2.0

package v1alpha2

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// ScalingSpec changes the number of servers with the load.
//
// +kubebuilder:validation:XValidation:rule="has(self.wva) != has(self.keda)",message="set exactly one of wva and keda"
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not be greater than maxReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.keda) || !has(self.keda.idleReplicaCount) || (has(self.minReplicas) && self.keda.idleReplicaCount < self.minReplicas)",message="keda.idleReplicaCount must be less than minReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.wva) || !has(self.wva.keda) || !has(self.wva.keda.idleReplicaCount) || (has(self.minReplicas) && self.wva.keda.idleReplicaCount < self.minReplicas)",message="wva.keda.idleReplicaCount must be less than minReplicas"
type ScalingSpec struct {
	// MinReplicas is the least number of servers.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// MaxReplicas is the greatest number of servers.
	// +kubebuilder:validation:Minimum=1
	MaxReplicas int32 `json:"maxReplicas"`
	// WVA lets the workload variant autoscaler decide.
	// +optional
	WVA *WVASpec `json:"wva,omitempty"`
	// KEDA scales by triggers of the user.
	// +optional
	KEDA *KEDASpec `json:"keda,omitempty"`
}

// WVASpec lets the workload variant autoscaler decide; hpa or keda acts on it.
//
// +kubebuilder:validation:XValidation:rule="has(self.hpa) != has(self.keda)",message="set exactly one of hpa and keda"
type WVASpec struct {
	// VariantCost of one server, compared with other variants of the model.
	// +optional
	// +kubebuilder:default="10.0"
	// +kubebuilder:validation:Pattern=`^\d+(\.\d+)?$`
	VariantCost string `json:"variantCost,omitempty"`
	// HPA acts with a HorizontalPodAutoscaler.
	// +optional
	HPA *HPAScalingSpec `json:"hpa,omitempty"`
	// KEDA acts with a ScaledObject.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.advanced) || !has(self.advanced.scalingModifiers) || !(has(self.advanced.scalingModifiers.formula) || has(self.advanced.scalingModifiers.target) || has(self.advanced.scalingModifiers.activationTarget) || has(self.advanced.scalingModifiers.metricType))",message="remove advanced.scalingModifiers: the variant autoscaler computes the metric"
	// +kubebuilder:validation:XValidation:rule="!has(self.advanced) || !has(self.advanced.horizontalPodAutoscalerConfig) || !has(self.advanced.horizontalPodAutoscalerConfig.name)",message="remove advanced.horizontalPodAutoscalerConfig.name: the controller names the autoscaler"
	KEDA *KEDAScalingSpec `json:"keda,omitempty"`
}

// HPAScalingSpec tells how a HorizontalPodAutoscaler acts.
type HPAScalingSpec struct {
	// Behavior tells how fast to scale up and down.
	// +optional
	Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior,omitempty"`
}

// KEDASpec scales by triggers of the user.
type KEDASpec struct {
	KEDAScalingSpec `json:",inline"`
	// Triggers to scale by.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	Triggers []KEDATrigger `json:"triggers"`
}

// KEDAScalingSpec tells how a ScaledObject acts.
type KEDAScalingSpec struct {
	// PollingInterval is how many seconds lie between two looks at the triggers.
	// +optional
	// +kubebuilder:validation:Minimum=1
	PollingInterval *int32 `json:"pollingInterval,omitempty"`
	// CooldownPeriod is how many seconds without load pass before idling.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CooldownPeriod *int32 `json:"cooldownPeriod,omitempty"`
	// InitialCooldownPeriod is the same for the time after creation.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InitialCooldownPeriod *int32 `json:"initialCooldownPeriod,omitempty"`
	// IdleReplicaCount is the number of servers without load.
	// +optional
	// +kubebuilder:validation:Minimum=0
	IdleReplicaCount *int32 `json:"idleReplicaCount,omitempty"`
	// Fallback tells what to do when the triggers cannot be read.
	// +optional
	Fallback *KEDAFallback `json:"fallback,omitempty"`
	// Advanced holds further settings.
	// +optional
	Advanced *KEDAAdvancedConfig `json:"advanced,omitempty"`
}

// KEDAFallback tells what to do when the triggers cannot be read.
type KEDAFallback struct {
	// FailureThreshold is how many failures in a row it takes.
	FailureThreshold int32 `json:"failureThreshold"`
	// Replicas to fall back to.
	Replicas int32 `json:"replicas"`
	// Behavior tells how the replicas are chosen.
	// +optional
	// +kubebuilder:default=static
	// +kubebuilder:validation:Enum=static;currentReplicas;currentReplicasIfHigher;currentReplicasIfLower
	Behavior string `json:"behavior,omitempty"`
}

// KEDAAdvancedConfig holds further settings of a ScaledObject.
type KEDAAdvancedConfig struct {
	// RestoreToOriginalReplicaCount puts the first number of servers back on deletion.
	// +optional
	RestoreToOriginalReplicaCount bool `json:"restoreToOriginalReplicaCount,omitempty"`
	// HorizontalPodAutoscalerConfig of the autoscaler that KEDA creates.
	// +optional
	HorizontalPodAutoscalerConfig *KEDAHPAConfig `json:"horizontalPodAutoscalerConfig,omitempty"`
	// ScalingModifiers combine the triggers to one metric.
	// +optional
	ScalingModifiers *KEDAScalingModifiers `json:"scalingModifiers,omitempty"`
}

// KEDAHPAConfig configures the autoscaler that KEDA creates.
type KEDAHPAConfig struct {
	// Name of the autoscaler.
	// +optional
	Name string `json:"name,omitempty"`
	// Behavior tells how fast to scale up and down.
	// +optional
	Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior,omitempty"`
}

// KEDAScalingModifiers combine triggers to one metric.
type KEDAScalingModifiers struct {
	// Formula over the names of the triggers.
	// +optional
	Formula string `json:"formula,omitempty"`
	// Target value of the metric.
	// +optional
	Target string `json:"target,omitempty"`
	// ActivationTarget is the value that ends idling.
	// +optional
	ActivationTarget string `json:"activationTarget,omitempty"`
	// MetricType tells how the target is to be understood.
	// +optional
	// +kubebuilder:validation:Enum=AverageValue;Value
	MetricType autoscalingv2.MetricTargetType `json:"metricType,omitempty"`
}

// KEDATrigger is one trigger.
type KEDATrigger struct {
	// Type of the trigger, for example prometheus.
	Type string `json:"type"`
	// Name of the trigger in a formula.
	// +optional
	Name string `json:"name,omitempty"`
	// UseCachedMetrics answers from the last poll.
	// +optional
	UseCachedMetrics bool `json:"useCachedMetrics,omitempty"`
	// Metadata are the settings of the trigger.
	Metadata map[string]string `json:"metadata"`
	// AuthenticationRef names the credentials of the trigger.
	// +optional
	AuthenticationRef *KEDAAuthenticationRef `json:"authenticationRef,omitempty"`
	// MetricType tells how the target is to be understood.
	// +optional
	MetricType autoscalingv2.MetricTargetType `json:"metricType,omitempty"`
}

// KEDAAuthenticationRef names credentials of a trigger.
type KEDAAuthenticationRef struct {
	// Name of the object.
	Name string `json:"name"`
	// Kind is TriggerAuthentication when empty, or ClusterTriggerAuthentication.
	// +optional
	Kind string `json:"kind,omitempty"`
}
