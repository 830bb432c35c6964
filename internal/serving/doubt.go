// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/knative"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// madeOf are the keys of the configuration that the children of a service are
// made of. Others concern pods when they are created, or other kinds.
var madeOf = []string{
	config.KeyExplainers, config.KeyInferenceService, config.KeyMultiNode, config.KeyOpenTelemetryCollector, config.KeyAutoscaler,
	config.KeyStorageInitializer, config.KeyCredentials, config.KeyIngress, config.KeyDeploy, config.KeyService,
}

const (
	// updatesHeld is there only while what runs is not what would be made now.
	updatesHeld         = "UpdatesHeld"
	reasonInvalidConfig = "InvalidConfiguration"
)

// doubtful is the plan while a part of the configuration is not known: it was
// wrong already when we started, so that its default is no more than a guess.
// What runs goes on as it is, and says so; what is new or was changed waits.
func (p *planner) doubtful() engine.Plan {
	message := p.seen.Doubt.Fault + " Correct it; until then nothing is made or changed."
	before, _ := p.before(predictorReady)
	told := before.Reason == reasonInvalidConfig // of a change that waits, or of a new service
	if p.seen.Mode == config.ModeModelMesh {
		plan := p.mesh()
		plan.Hold = true
		return plan
	}
	if len(p.seen.Deployments)+len(p.seen.Knative) == 0 || p.isvc.Status.ObservedGeneration != p.isvc.Generation || told {
		return p.fail(&failure{of: v1beta1.PredictorComponent, problem: engine.WaitFor(reasonInvalidConfig, "%s", message)})
	}
	return engine.Plan{
		Hold:   true,
		Status: p.heldStatus(reasonInvalidConfig, message),
		Events: []engine.Event{{Warning: true, Reason: reasonInvalidConfig, Message: message}},
	}
}

// heldStatus says how the pods are and leaves the rest as it was said before.
func (p *planner) heldStatus(reason, message string) *v1beta1.InferenceServiceStatus {
	s := p.isvc.Status.DeepCopy()
	cs := kube.Conditions{}
	for _, c := range s.Conditions {
		if c.Type != engine.Stalled && c.Type != v1beta1.ConditionReady {
			before, _ := p.before(c.Type)
			cs.Set(before)
		}
	}
	p.bare()
	if p.seen.Mode == config.ModeKnative {
		now := p.liveServerless(p.components())
		p.judgeServerless(&cs, s, now, p.components())
		s.ModelStatus = p.knativeModel(now, cs.IsTrue(predictorReady))
	} else {
		for _, c := range p.components() {
			cs.Set(p.standing(c))
		}
		s.ModelStatus = p.modelStatus(p.predictor)
	}
	cs.True(updatesHeld, reason, message)
	p.conclude(s, cs)
	return s
}

// bare makes the components as far as judging them goes: by their names.
func (p *planner) bare() {
	part := func(of v1beta1.ComponentType, name string) *component {
		return &component{Part: workload.Part{Component: of, Name: name}}
	}
	p.predictor = part(v1beta1.PredictorComponent, predictorName(p.isvc, p.isvc.Spec.Predictor.Name))
	p.predictor.Scale = p.isvc.Spec.Predictor.ComponentExtensionSpec
	if worker := p.predictor.Name + "-worker"; p.seen.Deployments[worker] != nil {
		p.predictor.Part.Worker = &workload.Worker{Name: worker}
	}
	if t := p.isvc.Spec.Transformer; t != nil {
		p.transformer = part(v1beta1.TransformerComponent, p.isvc.Name+"-"+string(v1beta1.TransformerComponent))
		p.transformer.Scale = t.ComponentExtensionSpec
	}
	if e := p.isvc.Spec.Explainer; e != nil {
		p.explainer = part(v1beta1.ExplainerComponent, p.isvc.Name+"-"+string(v1beta1.ExplainerComponent))
		p.explainer.Scale = e.ComponentExtensionSpec
	}
}

// liveServerless reads what became of components on Knative.
func (p *planner) liveServerless(components []*component) serverless {
	now := serverless{
		components: map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec{},
		conditions: map[v1beta1.ComponentType]kube.Conditions{},
	}
	for _, c := range components {
		now.components[c.Component], now.conditions[c.Component] =
			knative.Status(p.seen.Knative[c.Name], p.isvc.Status.Components[c.Component], c.Scale.CanaryTrafficPercent)
	}
	return now
}
