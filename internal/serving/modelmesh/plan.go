// SPDX-License-Identifier: Apache-2.0

// Package modelmesh leaves the predictor of an InferenceService to the model mesh, which is another domain's, and looks
// after what stands around it: on Knative where there is one, otherwise on Deployments.
//
// It is pure, and adds to what the mesh says in the status without contradicting it.
package modelmesh

import (
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/resolve"
	"github.com/modelplane/modelplane/internal/serving/serverless"
	"github.com/modelplane/modelplane/internal/serving/standard"
	"github.com/modelplane/modelplane/internal/serving/status"
)

// Plan goes on with a plan that was begun with what a service needs in every mode.
func Plan(isvc *v1beta1.InferenceService, seen *observed.State, begun engine.Plan) engine.Plan {
	judge := status.Judge{Isvc: isvc, Seen: seen}
	if isvc.Spec.Transformer == nil && isvc.Spec.Explainer == nil {
		return engine.Plan{Children: begun.Children, Status: told(judge, nil, nil)}
	}
	parts, f := resolve.Service(isvc, seen)
	if f != nil {
		plan := judge.Fail(f)
		cs := kube.Conditions{}
		cs.False(status.ReadyConditions[f.Of], f.Problem.Reason, f.Problem.Message)
		plan.Status = told(judge, cs, nil)
		return plan
	}
	judge.Parts = parts
	if seen.Has(observed.KnativeService) {
		plan, cs, components := serverless.Services(isvc, seen, parts, begun)
		return engine.Plan{Children: plan.Children, Status: told(judge, cs, components), Problem: plan.Problem}
	}
	plan := standard.Workloads(isvc, seen, parts, begun)
	cs := kube.Conditions{}
	for _, c := range parts.List() {
		cs.Set(judge.Standing(c))
	}
	return engine.Plan{Children: plan.Children, Status: told(judge, cs, nil), Problem: plan.Problem}
}

// told adds what we look after to what the model mesh says.
func told(judge status.Judge, cs kube.Conditions, components map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec) *v1beta1.InferenceServiceStatus {
	s := judge.Isvc.Status.DeepCopy()
	s.DeploymentMode = judge.RecordedMode()
	for of, status := range components {
		if s.Components == nil {
			s.Components = map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec{}
		}
		s.Components[of] = status
	}
	all := kube.Conditions{}
	for _, typ := range []string{status.PredictorReady, status.IngressReady} {
		if c, ok := judge.Before(typ); ok {
			all.Set(c)
		} else {
			all.Unknown(typ, "LeftToModelMesh", "The model mesh has not reported yet. Check that it is installed and looks after this namespace.")
		}
	}
	for _, c := range cs {
		all.Set(c)
	}
	judge.Conclude(s, all)
	return s
}
