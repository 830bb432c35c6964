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
		plan.Status = told(judge, cs, isvc.Status.Components) // which are kept
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
	return engine.Plan{Children: plan.Children, Status: told(judge, cs, standard.Addresses(isvc, seen, parts, cs)), Problem: plan.Problem}
}

// told adds what we look after to what the model mesh says. Nothing else that was said before stays: it spoke of parts
// that the service no longer has.
func told(judge status.Judge, cs kube.Conditions, components map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec) *v1beta1.InferenceServiceStatus {
	s, before := judge.New(), judge.Isvc.Status.DeepCopy()
	s.ModelStatus, s.URL = before.ModelStatus, before.URL
	s.Components = around(judge.Isvc, components)
	if predictor, said := before.Components[v1beta1.PredictorComponent]; said {
		s.Components[v1beta1.PredictorComponent] = predictor
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
	status.Ignored(&all, judge.IgnoredMode())
	judge.Conclude(s, all)
	return s
}

// around are the components of a service that are not the mesh's.
func around(isvc *v1beta1.InferenceService, components map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec) map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec {
	wanted := map[v1beta1.ComponentType]bool{
		v1beta1.TransformerComponent: isvc.Spec.Transformer != nil, v1beta1.ExplainerComponent: isvc.Spec.Explainer != nil,
	}
	out := map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec{}
	for of, status := range components {
		if wanted[of] {
			out[of] = status
		}
	}
	return out
}
