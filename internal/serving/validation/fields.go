// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// verdict is what becomes of a field in a mode.
type verdict int

const (
	// honoured: the mode does what the field says.
	honoured verdict = iota
	// warned: the field has no effect, and the service answers all the same.
	// Manifests that carry it have always been accepted.
	warned
	// refused: without the field the service would not do what its author relies on.
	refused
	// refusedLater is warned at creation, when there is nothing yet that the
	// field could keep apart, and refused when a change brings it in.
	refusedLater
)

func (v verdict) String() string {
	return [...]string{"yes", "warning", "refused", "warning at creation, then refused"}[v]
}

// outcome is a verdict with the reason, which ends in what to do where
// something can be done.
type outcome struct {
	verdict
	why string
}

var yes = outcome{}

func warning(why string) outcome { return outcome{warned, why} }
func refusal(why string) outcome { return outcome{refused, why} }
func later(why string) outcome   { return outcome{refusedLater, why} }

// fieldRule says of one field which modes can honour it. The transformer and
// the explainer of a service in the mesh are run by Knative, and are judged so.
type fieldRule struct {
	name string
	// get returns the value; nil, a nil pointer or an empty one means that the
	// field says nothing.
	get func(*part) any
	// standard and knative hold for all components, mesh for the predictor.
	standard, knative, mesh outcome
	// only limits the rule to one component.
	only v1beta1.ComponentType
}

const (
	meshPods    = "the pods are those of the ServingRuntime; set it there"
	meshScaling = "the mesh decides how many copies of a model are loaded, and the ServingRuntime how many pods there are"
	notMesh     = "use Standard or Knative mode for it"
)

// fieldRules are all fields that some mode cannot honour. Fields that are not
// listed work in all modes.
var fieldRules = []fieldRule{
	{name: "minReplicas", get: func(p *part) any { return p.scale.MinReplicas }, mesh: warning(meshScaling)},
	{name: "maxReplicas", get: func(p *part) any { return p.scale.MaxReplicas }, mesh: warning(meshScaling)},
	{name: "scaleTarget", get: func(p *part) any { return p.scale.ScaleTarget }, mesh: warning(meshScaling)},
	{name: "scaleMetric", get: func(p *part) any { return p.scale.ScaleMetric }, mesh: warning(meshScaling)},
	{name: "scaleMetricType", get: func(p *part) any { return p.scale.ScaleMetricType },
		knative: warning("targets of Knative are always numbers per pod"), mesh: warning(meshScaling)},
	{name: "autoScaling", get: func(p *part) any { return p.scale.AutoScaling },
		knative: refusal("Knative scales by scaleMetric and scaleTarget; use those, or Standard mode"),
		mesh:    refusal(meshScaling + "; remove it, or use Standard mode")},
	{name: "containerConcurrency", get: func(p *part) any { return unless(p.scale.ContainerConcurrency, 0) },
		standard: warning("nothing counts the requests of a pod there unless the activator scales it; limit them in the server, or use Knative mode"),
		mesh:     warning(meshPods), only: v1beta1.PredictorComponent},
	{name: "timeout", get: func(p *part) any { return p.scale.TimeoutSeconds }, mesh: warning("the mesh has its own time limits")},
	{name: "canaryTrafficPercent", get: func(p *part) any { return unless(p.scale.CanaryTrafficPercent, 100) },
		standard: later("a change replaces all pods; use spec.canary to send a share of the traffic to a new model"),
		mesh:     later("the mesh switches to a new model when it is loaded; remove it")},
	{name: "logger", get: func(p *part) any { return p.scale.Logger },
		mesh: refusal("nothing would be logged; " + notMesh)},
	{name: "batcher", get: func(p *part) any { return p.scale.Batcher }, only: v1beta1.PredictorComponent,
		mesh: warning("requests are not collected; the answers are the same")},
	{name: "batcher", get: func(p *part) any { return p.scale.Batcher }, only: v1beta1.ExplainerComponent,
		standard: warning("explanations are not batched"), knative: warning("explanations are not batched")},
	{name: "labels", get: func(p *part) any { return p.scale.Labels }, mesh: warning(meshPods)},
	{name: "annotations", get: func(p *part) any { return p.scale.Annotations }, mesh: warning(meshPods)},
	{name: "deploymentStrategy", get: func(p *part) any { return p.scale.DeploymentStrategy },
		knative: refusal("customizing deploymentStrategy is only supported in Standard mode, because Knative replaces pods by revisions; remove it"),
		mesh:    refusal("customizing deploymentStrategy is only supported in Standard mode; remove it")},
	{name: "name", get: func(p *part) any { return p.predictor.Name }, mesh: warning("there is no Deployment that would be called so"),
		only: v1beta1.PredictorComponent},
	{name: "storageUris", get: func(p *part) any { return p.uris },
		mesh: refusal("the mesh loads one model from model.storageUri or model.storage; use one of those")},
	{name: "storageContainerName", get: func(p *part) any { return p.predictor.StorageContainerName },
		mesh: warning("the mesh fetches models itself"), only: v1beta1.PredictorComponent},
	{name: "workerSpec", get: func(p *part) any { return p.predictor.WorkerSpec },
		knative: refusal("a revision of Knative is one pod per replica and cannot span nodes; use Standard mode"),
		mesh:    refusal("a model of the mesh cannot span nodes; use Standard mode"), only: v1beta1.PredictorComponent},
	{name: "containers", get: func(p *part) any { return p.pod.Containers },
		mesh: refusal("the mesh serves models by their format; describe the model in model, or use Standard or Knative mode"),
		only: v1beta1.PredictorComponent},
	{name: "model.confidential", get: func(p *part) any { return confidential(p) },
		mesh: refusal("the mesh would load the model without decrypting it; " + notMesh), only: v1beta1.PredictorComponent},
}

// unless returns the value if it is not the one that means nothing.
func unless(value *int64, nothing int64) *int64 {
	if value == nil || *value == nothing {
		return nil
	}
	return value
}

func confidential(p *part) *v1beta1.ConfidentialSpec {
	for _, b := range p.blocks() {
		if b.Confidential != nil && b.Confidential.Enabled {
			return b.Confidential
		}
	}
	return nil
}

// in is what becomes of a component's field in a mode.
func (r fieldRule) in(mode string, of v1beta1.ComponentType) outcome {
	switch {
	case r.only != "" && r.only != of:
		return yes
	case mode == config.ModeStandard:
		return r.standard
	case mode == config.ModeModelMesh && of == v1beta1.PredictorComponent:
		return r.mesh
	default:
		return r.knative
	}
}

// checkFields compares what a component asks for with what the mode can do.
func (s *service) checkFields(p *part) {
	if p.canary && s.mode != config.ModeStandard {
		return // refused as a whole
	}
	for _, r := range fieldRules {
		o := r.in(s.mode, p.of)
		if o.verdict == honoured || r.name == "containerConcurrency" && s.activated(p) {
			continue
		}
		if value := r.get(p); says(value) {
			s.judge(r.at(p), value, o)
		}
	}
	if s.mode == config.ModeModelMesh && p.predictor != nil {
		s.checkMeshPod(p)
	}
	if s.mode == config.ModeStandard && p.scale.TimeoutSeconds != nil && !s.cfg.Ingress.EnableGatewayAPI {
		s.Warn(p.path.Child("timeout"), "has no effect on requests from outside while ingress.enableGatewayApi of ConfigMap %s is off: an Ingress has no time limit", config.Name)
	}
}

// at is where a rule finds its field; the confidential block is where it was
// written.
func (r fieldRule) at(p *part) *field.Path {
	if first, rest, nested := strings.Cut(r.name, "."); nested && first == "model" {
		for _, b := range p.blocks() {
			if b.Confidential != nil {
				return b.path.Child(rest)
			}
		}
	}
	return p.path.Child(r.name)
}

func says(value any) bool {
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() > 0
	}
	return v.IsValid() && !v.IsZero()
}

func (s *service) judge(at *field.Path, value any, o outcome) {
	if o.verdict == warned || o.verdict == refusedLater && s.fresh {
		s.Warn(at, "has no effect in %s mode: %s", s.mode, o.why)
		return
	}
	err := field.Forbidden(at, fmt.Sprintf("%s mode cannot honour this field: %s", s.mode, o.why))
	err.BadValue = value // not shown, but a change of it is noticed
	s.Refuse(err)
}

// checkMeshPod warns of settings for pods and containers that the predictor of a
// service in the mesh does not have.
func (s *service) checkMeshPod(p *part) {
	if names := setFields(*p.pod, "containers", "automountServiceAccountToken"); len(names) > 0 {
		s.Warn(p.path, "%s: no effect in ModelMesh mode: %s", strings.Join(names, ", "), meshPods)
	}
	for _, b := range p.blocks() {
		names := setFields(b.Container)
		if b.RuntimeVersion != nil {
			names = append(names, "runtimeVersion")
		}
		if len(names) > 0 {
			s.Warn(b.path, "%s: no effect in ModelMesh mode: %s", strings.Join(names, ", "), meshPods)
		}
	}
}

// setFields lists the fields of a struct that say something, by their names on
// the wire.
func setFields(v any, except ...string) []string {
	value := reflect.ValueOf(v)
	var names []string
	for i := range value.NumField() {
		name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		if name == "-" || value.Field(i).IsZero() || slices.Contains(except, name) {
			continue
		}
		names = append(names, name)
	}
	return names
}
