// SPDX-License-Identifier: Apache-2.0

package workload

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// HPA is the kind of the autoscalers that Kubernetes runs itself.
var HPA = autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler")

const defaultCPUUtilization = 80

// Autoscaler returns what scales a component: an HPA, or a ScaledObject with the collector of its metrics where it
// needs one, or nothing.
func Autoscaler(p Part, cfg *config.Config) []client.Object {
	switch {
	case p.held():
		// Whoever looks for the autoscaler of a canary finds one. It changes nothing.
		p.Scale = v1beta1.ComponentExtensionSpec{MinReplicas: p.Replicas, MaxReplicas: *p.Replicas}
		return []client.Object{hpa(p)}
	case !p.autoscaled(), p.Activation != nil:
		return nil
	case Class(p.Annotations) == ClassKEDA:
		return keda(p, cfg)
	}
	return []client.Object{hpa(p)}
}

func hpa(p Part) *autoscalingv2.HorizontalPodAutoscaler {
	least := p.leastReplicas()
	h := &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: beside(p.meta()),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: p.Name},
			MinReplicas:    &least,
			MaxReplicas:    max(p.Scale.MaxReplicas, least),
		},
	}
	for _, m := range resourceMetrics(p.Scale) {
		if target, ok := hpaTarget(m); ok {
			h.Spec.Metrics = append(h.Spec.Metrics, autoscalingv2.MetricSpec{
				Type:     autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{Name: m.Name, Target: target},
			})
		}
	}
	h.Spec.Behavior = defaultBehavior()
	if a := p.Scale.AutoScaling; a != nil && a.Behavior != nil {
		h.Spec.Behavior = a.Behavior.DeepCopy()
	}
	return h
}

// defaultBehavior is what an API server makes of a behavior that says nothing. Without any, steps up are smaller:
// to twice the pods or to four of them, not to four more.
func defaultBehavior() *autoscalingv2.HorizontalPodAutoscalerBehavior {
	const pods, percent, seconds = 4, 100, 15
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp: &autoscalingv2.HPAScalingRules{
			StabilizationWindowSeconds: ptr.To[int32](0),
			SelectPolicy:               ptr.To(autoscalingv2.MaxChangePolicySelect),
			Policies: []autoscalingv2.HPAScalingPolicy{
				{Type: autoscalingv2.PodsScalingPolicy, Value: pods, PeriodSeconds: seconds},
				{Type: autoscalingv2.PercentScalingPolicy, Value: percent, PeriodSeconds: seconds},
			},
		},
		ScaleDown: &autoscalingv2.HPAScalingRules{
			SelectPolicy: ptr.To(autoscalingv2.MaxChangePolicySelect),
			Policies:     []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PercentScalingPolicy, Value: percent, PeriodSeconds: seconds}},
		},
	}
}

// resourceMetrics are the processor and memory targets of a component, in the order given. Where no list is given,
// the short form counts.
func resourceMetrics(s v1beta1.ComponentExtensionSpec) []v1beta1.ResourceMetricSource {
	if s.AutoScaling == nil || len(s.AutoScaling.Metrics) == 0 {
		return shortForm(s)
	}
	var out []v1beta1.ResourceMetricSource
	for _, m := range s.AutoScaling.Metrics {
		if m.Resource != nil {
			out = append(out, *m.Resource)
		}
	}
	return out
}

// shortForm reads scaleMetric, scaleMetricType and scaleTarget. Memory has no target that suits everybody, so without
// one nothing is said and the API server's own default holds.
func shortForm(s v1beta1.ComponentExtensionSpec) []v1beta1.ResourceMetricSource {
	metric := ptr.Deref(s.ScaleMetric, v1beta1.MetricCPU)
	if metric != v1beta1.MetricCPU && (metric != v1beta1.MetricMemory || s.ScaleTarget == nil) {
		return nil
	}
	m := v1beta1.ResourceMetricSource{Name: corev1.ResourceName(metric)}
	m.Target.Type = ptr.Deref(s.ScaleMetricType, autoscalingv2.UtilizationMetricType)
	switch {
	case s.ScaleTarget == nil:
		m.Target.Type = autoscalingv2.UtilizationMetricType
	case m.Target.Type == autoscalingv2.UtilizationMetricType:
		m.Target.AverageUtilization = s.ScaleTarget
	default:
		m.Target.AverageValue = ptr.To(v1beta1.MetricQuantity(resource.NewQuantity(int64(*s.ScaleTarget), resource.DecimalSI).String()))
	}
	return []v1beta1.ResourceMetricSource{m}
}

// hpaTarget says what an HPA may aim for: a share of the request, or an amount per pod. An amount for all pods
// together, which it cannot measure for a resource, is understood as one per pod.
func hpaTarget(m v1beta1.ResourceMetricSource) (autoscalingv2.MetricTarget, bool) {
	amount := m.Target.AverageValue
	if amount == nil {
		amount = m.Target.Value
	}
	if amount != nil && m.Target.Type != autoscalingv2.UtilizationMetricType {
		q, err := amount.Quantity()
		return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &q}, err == nil
	}
	share := m.Target.AverageUtilization
	if share == nil && m.Name == corev1.ResourceCPU {
		share = ptr.To[int32](defaultCPUUtilization)
	}
	return autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(ptr.Deref(share, 0))}, share != nil
}
