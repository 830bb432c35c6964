// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"math"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// Classes of autoscalers.
const (
	classHPA      = "hpa"
	classKEDA     = "keda"
	classExternal = "external"
	classNone     = "none"

	// knativeClass is the annotation of Knative for the same purpose.
	knativeClass    = "autoscaling.knative.dev/class"
	knativeClassHPA = "hpa.autoscaling.knative.dev"
)

var (
	classes         = []string{classHPA, classExternal, classKEDA, classNone}
	classAnnotation = annotations.Key(v1beta1.AnnotationAutoscalerClass)
)

// class is who scales a service in Standard mode.
func (s *service) class() string {
	if class := s.isvc.Annotations[v1beta1.AnnotationAutoscalerClass]; class != "" {
		return class
	}
	return classHPA
}

func (s *service) checkClass() {
	class, ok := s.isvc.Annotations[v1beta1.AnnotationAutoscalerClass]
	switch {
	case !ok:
	case !slices.Contains(classes, class):
		s.Refuse(field.Invalid(classAnnotation, class, fmt.Sprintf("[%s] is not a supported autoscaler class type (unsupported autoscaler class); "+
			"choose hpa, keda, external or none", class)))
	case s.mode == config.ModeStandard:
	case s.mode == config.ModeModelMesh:
		s.Warn(classAnnotation, "has no effect in ModelMesh mode: the pods of the mesh are scaled by annotations of their ServingRuntime")
	case class == classHPA:
		s.Refuse(field.Forbidden(classAnnotation, "Knative mode cannot honour the autoscaler class hpa as it is written here; "+
			"set "+knativeClass+": "+knativeClassHPA+", or use Standard mode"))
	case class == classKEDA:
		s.Refuse(field.Forbidden(classAnnotation, "Knative mode cannot honour the autoscaler class keda: Knative scales by itself; "+
			"remove the annotation, or use Standard mode"))
	default:
		s.Warn(classAnnotation, "has no effect in Knative mode: Knative always scales; set minReplicas and maxReplicas to the same number to fix it")
	}
}

// checkBounds looks at numbers that are wrong in every mode.
func (s *service) checkBounds(p *part) {
	e := p.scale
	least := ptr.Deref(e.MinReplicas, 1)
	if least < 0 {
		s.Refuse(field.Invalid(p.path.Child("minReplicas"), least, "MinReplicas cannot be less than 0"))
	}
	if e.MaxReplicas < 0 {
		s.Refuse(field.Invalid(p.path.Child("maxReplicas"), e.MaxReplicas, "MaxReplicas cannot be less than 0"))
	}
	if e.MaxReplicas > 0 && least > e.MaxReplicas {
		s.Refuse(field.Invalid(p.path.Child("minReplicas"), least, fmt.Sprintf("MinReplicas cannot be greater than MaxReplicas, which is %d; "+
			"lower the one or raise the other", e.MaxReplicas)))
	}
	if n := ptr.Deref(e.ContainerConcurrency, 0); n < 0 {
		s.Refuse(field.Invalid(p.path.Child("containerConcurrency"), n, "parallelism cannot be less than 0; 0 means no limit"))
	}
	if n := ptr.Deref(e.TimeoutSeconds, 0); n < 0 {
		s.Refuse(field.Invalid(p.path.Child("timeout"), n, "must be a number of seconds, not less than 0"))
	}
	s.checkBatcher(p)
	if n := ptr.Deref(e.CanaryTrafficPercent, 0); n < 0 || n > 100 {
		s.Refuse(field.Invalid(p.path.Child("canaryTrafficPercent"), n, "must be a percentage from 0 to 100"))
	}
}

// checkBatcher refuses what the agent could not start with.
func (s *service) checkBatcher(p *part) {
	b := p.scale.Batcher
	if b == nil {
		return
	}
	for _, n := range []struct {
		name string
		is   *int
		what string
	}{{"maxBatchSize", b.MaxBatchSize, "a number of instances"}, {"maxLatency", b.MaxLatency, "a number of milliseconds"}, {"timeout", b.Timeout, "a number of seconds"}} {
		if n.is != nil && (*n.is < 1 || *n.is > math.MaxInt32) {
			s.Refuse(field.Invalid(p.path.Child("batcher", n.name), *n.is, fmt.Sprintf("must be %s from 1 to %d; leave it out for the platform's", n.what, math.MaxInt32)))
		}
	}
}

// checkScaling applies the rules of whoever will scale the component. Canaries
// are not scaled, and neither is a predictor in the mesh.
func (s *service) checkScaling(p *part) {
	if p.canary || s.mode == config.ModeModelMesh && p.predictor != nil {
		return
	}
	if s.mode != config.ModeStandard {
		if class(p.scale.Annotations, s.isvc.Annotations) == knativeClassHPA {
			s.checkHPA(p, true)
			return
		}
		s.checkKnative(p)
		return
	}
	if s.activated(p) {
		s.checkActivated(p)
		return
	}
	switch s.class() {
	case classHPA:
		s.checkHPA(p, s.isvc.Annotations[v1beta1.AnnotationAutoscalerClass] != "")
		s.checkShadowed(p)
	case classKEDA:
		s.checkKEDA(p)
		s.checkShadowed(p)
	case classNone, classExternal:
		s.checkUnscaled(p)
	}
}

func class(layers ...map[string]string) string {
	for _, l := range layers {
		if c := l[knativeClass]; c != "" {
			return c
		}
	}
	return ""
}

// checkHPA is for the horizontal pod autoscaler of Kubernetes. The limit of 100
// percent is kept where the class is named, as it has always been; the
// autoscaler itself has none, since pods may use more than they request.
func (s *service) checkHPA(p *part, named bool) {
	metric := ptr.Deref(p.scale.ScaleMetric, v1beta1.MetricCPU)
	if metric != v1beta1.MetricCPU && metric != v1beta1.MetricMemory {
		other := "the activator (docs/scale-to-zero.md), the autoscaler class keda, or Knative mode"
		if s.mode != config.ModeStandard {
			other = "or remove the annotation " + knativeClass
		}
		s.Refuse(field.Invalid(p.path.Child("scaleMetric"), metric, fmt.Sprintf(
			"[%s] is not a supported metric of the autoscaler hpa in %s mode; choose cpu or memory, %s", metric, s.mode, other)))
	}
	if p.scale.ScaleTarget != nil {
		s.checkHPATarget(p, metric, named)
	}
	if s.mode == config.ModeStandard && p.scale.MinReplicas != nil && *p.scale.MinReplicas == 0 {
		s.Warn(p.path.Child("minReplicas"), "the autoscaler hpa keeps at least 1 pod in Standard mode; to scale to zero %s, or use the class keda, or Knative mode", s.zeroHint())
	}
	if p.scale.AutoScaling == nil || s.mode != config.ModeStandard {
		return
	}
	for i, m := range p.scale.AutoScaling.Metrics {
		at := p.path.Child("autoScaling", "metrics").Index(i)
		switch {
		case m.Type != v1beta1.ResourceMetricSourceType:
			s.Refuse(field.Invalid(at.Child("type"), m.Type, fmt.Sprintf("the autoscaler hpa reads metrics of type Resource only; "+
				"set the annotation %s: keda to scale by others", v1beta1.AnnotationAutoscalerClass)))
		case m.Resource == nil:
			s.Refuse(field.Required(at.Child("resource"), "the type is Resource; say which resource and what to aim for"))
		default:
			s.checkHPAResource(at.Child("resource", "target"), m.Resource)
		}
	}
}

// activated tells whether the component is scaled by its traffic.
func (s *service) activated(p *part) bool {
	return s.mode == config.ModeStandard && s.cfg.Autoscaler.Activator != "" && !p.canary && (p.predictor == nil || p.predictor.WorkerSpec == nil) &&
		workload.ByTraffic(s.isvc.Annotations[v1beta1.AnnotationAutoscalerClass], *p.scale)
}

// checkActivated is for the activator.
func (s *service) checkActivated(p *part) {
	if t := p.scale.ScaleTarget; t != nil && *t < 1 {
		s.Refuse(field.Invalid(p.path.Child("scaleTarget"), *t, "the target should be at least 1 request per pod"))
	}
	if p.scale.AutoScaling != nil && p.scale.AutoScaling.Behavior != nil {
		s.Warn(p.path.Child("autoScaling", "behavior"), "has no effect on a component that is scaled by its traffic")
	}
	for _, annotations := range []map[string]string{s.isvc.Annotations, p.scale.Annotations} {
		if _, err := workload.Retention(annotations); err != nil {
			s.Refuse(field.Invalid(field.NewPath("metadata", "annotations").Key(workload.AnnotationRetention), annotations[workload.AnnotationRetention], err.Error()))
			return
		}
	}
}

// zeroHint is how the pods of a service could all go.
func (s *service) zeroHint() string {
	if s.cfg.Autoscaler.Activator == "" {
		return "let the platform run the activator (docs/scale-to-zero.md)"
	}
	return "name neither a class, nor cpu or memory"
}

// checkHPAResource wants a number to aim for. For the CPU there is a default.
func (s *service) checkHPAResource(at *field.Path, r *v1beta1.ResourceMetricSource) {
	t := r.Target
	amount, percent := t.AverageValue != nil || t.Value != nil, t.AverageUtilization
	switch {
	case percent != nil && *percent < 1:
		s.Refuse(field.Invalid(at.Child("averageUtilization"), *percent, "must be at least 1 percent of what the containers request"))
	case t.Type == autoscalingv2.UtilizationMetricType && percent == nil && r.Name != corev1.ResourceCPU:
		s.Refuse(field.Required(at.Child("averageUtilization"), "the type is Utilization; say how many percent to aim for"))
	case (t.Type == autoscalingv2.AverageValueMetricType || t.Type == autoscalingv2.ValueMetricType) && !amount:
		s.Refuse(field.Required(at.Child("averageValue"), fmt.Sprintf("the type is %s; say what to aim for", t.Type)))
	}
}

func (s *service) checkHPATarget(p *part, metric v1beta1.ScaleMetric, named bool) {
	target, at := *p.scale.ScaleTarget, p.path.Child("scaleTarget")
	percent := ptr.Deref(p.scale.ScaleMetricType, autoscalingv2.UtilizationMetricType) == autoscalingv2.UtilizationMetricType
	switch {
	case target < 1 && metric == v1beta1.MetricMemory:
		s.Refuse(field.Invalid(at, target, "the target memory should be at least 1"))
	case target < 1:
		s.Refuse(field.Invalid(at, target, "the target utilization percentage should be a [1-100] integer"))
	case target > 100 && metric == v1beta1.MetricCPU && percent && named:
		s.Refuse(field.Invalid(at, target, "the target utilization percentage should be a [1-100] integer; it is a share of the CPU that the containers request"))
	}
}

// checkKnative is for the autoscaler of Knative.
func (s *service) checkKnative(p *part) {
	metric := ptr.Deref(p.scale.ScaleMetric, v1beta1.MetricConcurrency)
	if metric != v1beta1.MetricConcurrency && metric != v1beta1.MetricRPS {
		s.Refuse(field.Invalid(p.path.Child("scaleMetric"), metric, fmt.Sprintf("[%s] is not a supported metric in %s mode; "+
			"choose concurrency or rps, set the annotation %s: %s, or use Standard mode", metric, s.mode, knativeClass, knativeClassHPA)))
	}
	if t := p.scale.ScaleTarget; t != nil && *t < 1 {
		s.Refuse(field.Invalid(p.path.Child("scaleTarget"), *t, fmt.Sprintf("the target for %s should be at least 1", metric)))
	}
}

// checkKEDA is for KEDA, which takes its metrics from autoScaling.
func (s *service) checkKEDA(p *part) {
	if p.scale.ScaleMetric != nil {
		s.Refuse(field.Forbidden(p.path.Child("scaleMetric"), "ScaleMetric is not supported for KEDA; describe the metric in autoScaling.metrics"))
	}
	if p.scale.AutoScaling == nil {
		return
	}
	for i, m := range p.scale.AutoScaling.Metrics {
		at := p.path.Child("autoScaling", "metrics").Index(i)
		switch {
		case m.Type == v1beta1.ResourceMetricSourceType && m.Resource != nil:
			s.checkKEDAResource(at.Child("resource"), m.Resource)
		case m.Type == v1beta1.ExternalMetricSourceType && m.External != nil:
			s.checkQuery(at.Child("external"), m.External.Metric.Backend, m.External.Metric.Query, m.External.Target)
		case m.Type == v1beta1.PodMetricSourceType && m.PodMetric != nil:
			s.checkQuery(at.Child("podmetric"), m.PodMetric.Metric.Backend, m.PodMetric.Metric.Query, m.PodMetric.Target)
		default:
			s.checkMetricBlock(at, m.Type)
		}
	}
}

var metricBlocks = map[v1beta1.MetricSourceType]string{
	v1beta1.ResourceMetricSourceType: "resource",
	v1beta1.ExternalMetricSourceType: "external",
	v1beta1.PodMetricSourceType:      "podmetric",
}

func (s *service) checkMetricBlock(at *field.Path, kind v1beta1.MetricSourceType) {
	name, ok := metricBlocks[kind]
	if !ok {
		s.Refuse(field.NotSupported(at.Child("type"), kind, []v1beta1.MetricSourceType{
			v1beta1.ResourceMetricSourceType, v1beta1.ExternalMetricSourceType, v1beta1.PodMetricSourceType}))
		return
	}
	s.Refuse(field.Required(at.Child(name), fmt.Sprintf("the type is %s; describe the metric here", kind)))
}

func (s *service) checkKEDAResource(at *field.Path, r *v1beta1.ResourceMetricSource) {
	target, most := at.Child("target"), int32(0)
	switch r.Name {
	case corev1.ResourceCPU:
		if r.Target.Type != autoscalingv2.UtilizationMetricType {
			s.Refuse(field.Invalid(target.Child("type"), r.Target.Type, "the cpu target value type should be Utilization"))
			return
		}
		most = 100
	case corev1.ResourceMemory:
		if t := r.Target.Type; t != autoscalingv2.UtilizationMetricType && t != autoscalingv2.AverageValueMetricType {
			s.Refuse(field.Invalid(target.Child("type"), t, "the memory target value type should be AverageValue or Utilization"))
			return
		}
		s.checkMemory(target, r.Target)
	default:
		s.Refuse(field.NotSupported(at.Child("name"), r.Name, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}))
		return
	}
	s.checkTarget(target, r.Target, most)
}

var oneMebibyte = resource.MustParse("1Mi")

func (s *service) checkMemory(at *field.Path, t v1beta1.MetricTarget) {
	if t.Type != autoscalingv2.AverageValueMetricType || t.AverageValue == nil {
		return
	}
	if q, err := t.AverageValue.Quantity(); err == nil && q.Cmp(oneMebibyte) < 0 {
		s.Refuse(field.Invalid(at.Child("averageValue"), string(*t.AverageValue), "the memory target value should be at least 1 MiB (1Mi)"))
	}
}

func (s *service) checkQuery(at *field.Path, backend, query string, t v1beta1.MetricTarget) {
	if backend == "" {
		s.Refuse(field.Required(at.Child("metric", "backend"), "say who is asked for the metric; without a backend nothing would be scaled by it"))
	}
	if query == "" {
		s.Refuse(field.Required(at.Child("metric", "query"), "the query should not be empty; say what to ask the backend for"))
	}
	if t.Value == nil {
		s.Refuse(field.Required(at.Child("target", "value"), "the target threshold value should not be empty; say what to aim for"))
		return
	}
	s.checkTarget(at.Child("target"), t, 0)
}

// checkTarget wants the value that belongs to the type of the target; most
// bounds a percentage, unless it is 0.
func (s *service) checkTarget(at *field.Path, t v1beta1.MetricTarget, most int32) {
	switch t.Type {
	case autoscalingv2.UtilizationMetricType:
		switch n := t.AverageUtilization; {
		case n == nil:
			s.Refuse(field.Required(at.Child("averageUtilization"), "the type is Utilization; say how many percent to aim for"))
		case most > 0 && (*n < 1 || *n > most):
			s.Refuse(field.Invalid(at.Child("averageUtilization"), *n, fmt.Sprintf("the target utilization percentage should be a [1-%d] integer", most)))
		case *n < 1:
			s.Refuse(field.Invalid(at.Child("averageUtilization"), *n, "must be at least 1 percent of what the containers request"))
		}
	case autoscalingv2.AverageValueMetricType:
		s.needAmount(at.Child("averageValue"), t.Type, t.AverageValue)
	case autoscalingv2.ValueMetricType:
		s.needAmount(at.Child("value"), t.Type, t.Value)
	}
}

func (s *service) needAmount(at *field.Path, kind autoscalingv2.MetricTargetType, amount *v1beta1.MetricQuantity) {
	if amount == nil {
		s.Refuse(field.Required(at, fmt.Sprintf("the type is %s; say what to aim for", kind)))
	}
}

// checkUnscaled warns of settings for an autoscaler that there is not.
func (s *service) checkUnscaled(p *part) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"scaleTarget", p.scale.ScaleTarget != nil},
		{"scaleMetric", p.scale.ScaleMetric != nil},
		{"autoScaling", p.scale.AutoScaling != nil},
	} {
		if f.set {
			s.Warn(p.path.Child(f.name), "has no effect with the autoscaler class %s", s.class())
		}
	}
}

// checkShadowed warns of the short form beside the long one, which wins.
func (s *service) checkShadowed(p *part) {
	if p.scale.AutoScaling == nil || len(p.scale.AutoScaling.Metrics) == 0 {
		return
	}
	if p.scale.ScaleTarget != nil {
		s.Warn(p.path.Child("scaleTarget"), "has no effect beside autoScaling.metrics; set the target there")
	}
	if p.scale.ScaleMetric != nil && s.class() == classHPA {
		s.Warn(p.path.Child("scaleMetric"), "has no effect beside autoScaling.metrics")
	}
}
