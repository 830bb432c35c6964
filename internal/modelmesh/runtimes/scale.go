// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"maps"
	"strconv"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// annotationIdle, on a Deployment, says since when no model needs its pods. It outlives the manager, and is no part of the
// pods.
const annotationIdle = "modelplane.dev/without-models-since"

// Annotations with which a runtime asks for an autoscaler, besides those in the API.
const (
	annotationMinScale = "serving.kserve.io/min-scale"
	annotationMaxScale = "serving.kserve.io/max-scale"
)

const (
	classHPA  = "hpa"
	classNone = "none"

	defaultUtilization = 80
)

// count is how many pods there are to be.
type count struct {
	replicas int32
	// initial says that the number belongs to the autoscaler once there are pods.
	initial bool
	// idleSince is when the last model went, while that still matters, and again when to look the next time.
	idleSince string
	again     time.Duration
}

// scale decides how many pods there are: none when no model has needed them for a while.
func (p *planner) scale() count {
	live := p.place.live()
	running := live != nil && ptr.Deref(live.Spec.Replicas, 1) > 0
	if p.place.Needed || !p.config.ScaleToZero.Enabled {
		return p.up(running)
	}
	if !running {
		return count{}
	}
	grace := p.config.ScaleToZero.Grace()
	since, err := time.Parse(time.RFC3339, live.Annotations[annotationIdle])
	if err != nil || since.After(p.seen.Now) {
		since = p.seen.Now.Truncate(time.Second)
	}
	left := since.Add(grace).Sub(p.seen.Now)
	if left <= 0 {
		return count{}
	}
	out := p.up(running)
	out.idleSince, out.again = since.UTC().Format(time.RFC3339), left
	return out
}

// up is the number of pods while models need them. An autoscaler has its say as soon as there are any.
func (p *planner) up(running bool) count {
	if p.autoscaled() {
		least, _ := p.bounds()
		return count{replicas: least, initial: running || p.place.live() == nil}
	}
	n := p.config.PodsPerRuntime
	if p.spec.Replicas != nil {
		n = int32(*p.spec.Replicas)
	}
	return count{replicas: n}
}

func (p *planner) autoscaled() bool { return autoscaled(p.runtime.annotations) }

func autoscaled(annotations map[string]string) bool {
	return annotations[v1beta1.AnnotationAutoscalerClass] == classHPA
}

// bounds are the least and the largest number of pods.
func (p *planner) bounds() (least, most int32) {
	least = max(p.number(annotationMinScale, 1), 1)
	return least, max(p.number(annotationMaxScale, 1), least)
}

func (p *planner) number(annotation string, otherwise int32) int32 {
	n, err := strconv.ParseInt(p.runtime.annotations[annotation], 10, 32)
	if err != nil {
		return otherwise
	}
	return int32(n)
}

// autoscaler looks after the number of pods between the bounds.
func (p *planner) autoscaler() *autoscalingv2.HorizontalPodAutoscaler {
	least, most := p.bounds()
	metric := corev1.ResourceCPU
	if p.runtime.annotations[v1beta1.AnnotationMetrics] == string(corev1.ResourceMemory) {
		metric = corev1.ResourceMemory
	}
	labels := maps.Clone(p.runtime.labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1beta1.LabelInferenceService] = p.runtime.name
	labels["component"] = "predictor"
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.place.Namespace, Name: p.name(), Labels: labels},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: p.name()},
			MinReplicas:    &least, MaxReplicas: most,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{Name: metric, Target: autoscalingv2.MetricTarget{
					Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(p.number(v1beta1.AnnotationTargetUtilization, defaultUtilization)),
				}},
			}},
		},
	}
}
