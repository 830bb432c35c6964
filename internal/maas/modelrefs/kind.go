// SPDX-License-Identifier: Apache-2.0

// Package modelrefs looks after MaaSModelRefs: where the model behind one is reached, whether it runs, whether somebody may use
// it, and which token limits hold on its route. The limits of all models and subscriptions that share a route are one policy,
// made by the oldest of these models, so that no two policies compete for a route.
//
// It neither runs models nor routes to them.
package modelrefs

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	inferencev1alpha1 "github.com/modelplane/modelplane/api/inference/v1alpha1"
	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1alpha2"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/limits"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// Conditions of a MaaSModelRef.
const (
	ConditionReady      = "Ready"
	ConditionGoverned   = "GovernanceAttached"
	ConditionRuntime    = "RuntimeReady"
	ConditionUnique     = "ModelIdentityUnique"
	ConditionConflict   = "ConflictingTokenRateLimitPolicy"
	reasonNameConflict  = "ModelNameConflict"
	reasonNameResolved  = "ModelNameConflictResolved"
	reasonForeignLimits = "ConflictDetected"
)

// Kind is the kind MaaSModelRef.
type Kind struct{ settings func() settings.Settings }

var _ engine.Kind[*v1alpha1.MaaSModelRef, Seen] = Kind{}

// Controller of MaaSModelRefs.
func Controller(of func() settings.Settings) engine.Controller {
	policy := func() *unstructured.Unstructured { return kuadrant.New(kuadrant.TokenRateLimitPolicy) }
	return engine.For[*v1alpha1.MaaSModelRef, Seen](Kind{of}, engine.Spec{
		Name: "maas-model", ReadyEvent: "ModelReady", NotReadyEvent: "ModelNotReady",
		OptOut: naming.Managed, OldManagers: []string{naming.OldManager}, OldFinalizers: []string{naming.FinalizerModel},
		FormerOwners: []engine.FormerOwner{{Group: gatewayv1.GroupName, Kind: "HTTPRoute"}},
		Children:     []engine.ChildKind{{Object: policy(), Optional: true}},
		Inputs: slices.Concat(tenancy.Inputs(), []engine.Input{
			{Object: &v1alpha1.MaaSModelRef{}, Index: around},
			{Object: &v1alpha1.MaaSSubscription{}, Index: limits.ByModel},
			{Object: &v1alpha1.MaaSAuthPolicy{}, Index: limits.ByModel},
			{Object: &v1alpha1.ExternalModel{}},
			{Object: &inferencev1alpha1.ExternalModel{}},
			{Object: &v1alpha2.LLMInferenceService{}, Optional: true},
			{Object: &v1beta1.InferenceService{}, Optional: true},
			{Object: &gatewayv1.HTTPRoute{}, Optional: true},
			// All of a Gateway, which others keep a part of: in memory of its own.
			{Object: &gatewayv1.Gateway{}, Resource: "gateways", Optional: true, Select: labels.Everything()},
			{Object: policy(), Optional: true, Index: kuadrant.ByTarget},
		}),
	})
}

// Values of the index of models.
func byAlias(alias string) string { return "alias:" + alias }
func byRoute(namespace, name string) string {
	return "route:" + namespace + "/" + name
}
func byBackend(namespace string, ref v1alpha1.BackendRef) string {
	return "backend:" + namespace + "/" + string(ref.Kind) + "/" + ref.Name
}

// around is an index of models by what two of them can have in common.
func around(obj client.Object) []string {
	m, ok := obj.(*v1alpha1.MaaSModelRef)
	if !ok {
		return nil
	}
	out := []string{byBackend(m.Namespace, m.Spec.ModelRef)}
	if m.Status.ResolvedModelAlias != "" {
		out = append(out, byAlias(m.Status.ResolvedModelAlias))
	}
	if m.Status.HTTPRouteName != "" {
		out = append(out, byRoute(m.Status.HTTPRouteNamespace, m.Status.HTTPRouteName))
	}
	return out
}
