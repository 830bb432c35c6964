// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
)

// mesh leaves the predictor to the model mesh and looks after what stands
// around it: on Knative where there is one, otherwise on Deployments.
func (p *planner) mesh() engine.Plan {
	if p.isvc.Spec.Transformer == nil && p.isvc.Spec.Explainer == nil {
		return engine.Plan{Children: p.children, Status: p.meshStatus(nil, nil)}
	}
	if f := p.build(); f != nil {
		plan := p.fail(f)
		cs := kube.Conditions{}
		cs.False(readyConditions[f.of], f.problem.Reason, f.problem.Message)
		plan.Status = p.meshStatus(cs, nil)
		return plan
	}
	cs := kube.Conditions{}
	status := &v1beta1.InferenceServiceStatus{}
	if p.seen.has(knativeService) {
		now := p.addServerless(p.components())
		p.judgeServerless(&cs, status, now, p.components())
	} else {
		for _, c := range p.components() {
			p.addWorkload(c)
			cs.Set(p.standing(c))
		}
	}
	return engine.Plan{Children: p.children, Status: p.meshStatus(cs, status.Components), Problem: p.problem}
}

// meshStatus adds what we look after to what the model mesh says.
func (p *planner) meshStatus(cs kube.Conditions, components map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec) *v1beta1.InferenceServiceStatus {
	s := p.isvc.Status.DeepCopy()
	s.DeploymentMode = p.recordedMode()
	for of, status := range components {
		if s.Components == nil {
			s.Components = map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec{}
		}
		s.Components[of] = status
	}
	all := kube.Conditions{}
	for _, typ := range []string{predictorReady, ingressReady} {
		if c, ok := p.before(typ); ok {
			all.Set(c)
		} else {
			all.Unknown(typ, "LeftToModelMesh", "The model mesh has not reported yet. Check that it is installed and looks after this namespace.")
		}
	}
	for _, c := range cs {
		all.Set(c)
	}
	p.conclude(s, all)
	return s
}
