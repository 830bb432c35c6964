// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// checkCanaries looks at predictors on trial.
func (s *service) checkCanaries() {
	canaries, at := s.isvc.Spec.Canary, field.NewPath("spec", "canary")
	if len(canaries) == 0 {
		return
	}
	if s.mode != config.ModeStandard {
		s.Refuse(field.Forbidden(at, fmt.Sprintf("%s mode cannot honour canary, which is for Standard mode; %s", s.mode, s.canaryHint())))
		return
	}
	if uri, _ := s.parts[0].storageURI(); len(s.parts[0].blocks()) == 0 && uri == "" && len(s.parts[0].uris) == 0 {
		s.Refuse(field.Required(field.NewPath("spec", "predictor", "model"), "a canary needs a stable predictor with a model or storage to compare with"))
	}
	if !s.cfg.Ingress.EnableGatewayAPI {
		s.Warn(at, "traffic is shared out by routes of the Gateway API, which ingress.enableGatewayApi of ConfigMap %s does not turn on; "+
			"until then the canary gets none", config.Name)
	}
	names := map[string]bool{s.isvc.Spec.Predictor.Name: true}
	total := int64(0)
	for i := range canaries {
		s.checkCanary(at.Index(i), &canaries[i], names)
		total += max(int64(canaries[i].TrafficPercent), 0)
	}
	if total > 100 {
		s.Refuse(field.Invalid(at, total, "the trafficPercent of all canaries must not exceed 100 together; the stable predictor gets the rest"))
	}
}

func (s *service) canaryHint() string {
	if s.mode == config.ModeKnative {
		return "use spec.predictor.canaryTrafficPercent"
	}
	return "remove it: the mesh switches to a new model when it is loaded"
}

func (s *service) checkCanary(at *field.Path, c *v1beta1.CanarySpec, names map[string]bool) {
	p, path := &c.Predictor, at.Child("predictor")
	switch {
	case p.Name == "":
		s.Refuse(field.Required(path.Child("name"), "name the canary; its Deployment and Service are called by it"))
	case names[p.Name]:
		s.Refuse(explain(field.Duplicate(path.Child("name"), p.Name), "the stable predictor or another canary is called so; choose another name"))
	}
	names[p.Name] = true
	if c.TrafficPercent < 0 || c.TrafficPercent > 100 {
		s.Refuse(field.Invalid(at.Child("trafficPercent"), c.TrafficPercent, "must be a percentage from 0 to 100"))
	}
	if len(p.EphemeralContainers) > 0 {
		s.Refuse(ephemeral(path))
	}
	stable := max(ptr.Deref(s.isvc.Spec.Predictor.MinReplicas, 1), 1)
	if least := ptr.Deref(p.MinReplicas, 0); least > stable {
		s.Refuse(field.Invalid(path.Child("minReplicas"), least, fmt.Sprintf("must not exceed the minReplicas of the stable predictor, which is %d", stable)))
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"workerSpec", p.WorkerSpec != nil},
		{"maxReplicas", p.MaxReplicas != 0},
		{"scaleTarget", p.ScaleTarget != nil},
		{"scaleMetric", p.ScaleMetric != nil},
		{"autoScaling", p.AutoScaling != nil},
	} {
		if f.set {
			s.Refuse(field.Forbidden(path.Child(f.name), "a canary has a fixed number of pods on one node each; remove the field, and set minReplicas if it needs a number of its own"))
		}
	}
}
