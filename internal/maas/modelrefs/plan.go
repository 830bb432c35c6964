// SPDX-License-Identifier: Apache-2.0

package modelrefs

import (
	"cmp"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/routes"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// Plan implements engine.Kind.
func (k Kind) Plan(m *v1alpha1.MaaSModelRef, seen Seen) engine.Plan {
	s := judge(m, &seen)
	plan := engine.Plan{Status: s.status(), Events: s.events, Problem: s.problem, KeepChildren: seen.Enforcement.Switching}
	if seen.Route == nil || seen.Leader != m.Name || len(seen.Grants) == 0 || seen.Enforcement.Mode != tenancy.Kuadrant || len(seen.Enforcement.Missing) > 0 {
		return plan
	}
	policy := kuadrant.Limits{Namespace: m.Namespace, Model: m.Name, Route: seen.Route.Name, Grants: seen.Grants}.Policy()
	plan.Children = []engine.Child{{Object: policy, Adopt: true, Unmanaged: seen.Kept}}
	return plan
}

// state is the judgement on a model.
type state struct {
	model   *v1alpha1.MaaSModelRef
	seen    *Seen
	phase   v1alpha1.MaaSModelRefPhase
	problem *engine.Problem
	events  []engine.Event
	runtime string // what is wrong with it; empty if nothing is
}

// judge goes from what only a person can mend to what comes by itself.
func judge(m *v1alpha1.MaaSModelRef, seen *Seen) *state {
	s := &state{model: m, seen: seen, runtime: unhealthy(m, seen)}
	ref := m.Spec.ModelRef
	failed := func(phase v1alpha1.MaaSModelRefPhase, p *engine.Problem) *state {
		s.phase, s.problem = phase, p
		return s
	}
	switch {
	case ref.Kind == "" || ref.Name == "":
		return failed(v1alpha1.MaaSModelRefInvalid, engine.MustChange(string(v1alpha1.ReasonInvalidSpec), "The model has no kind or no name. Set spec.modelRef."))
	case seen.Backend.Unsupported:
		return failed(v1alpha1.MaaSModelRefFailed, engine.MustChange("Unsupported",
			"A model of the kind %s cannot be published. Use LLMInferenceService, InferenceService or ExternalModel in spec.modelRef.kind.", ref.Kind))
	case seen.Gateway == nil:
		return failed(v1alpha1.MaaSModelRefFailed, engine.WaitFor(string(v1alpha1.ReasonReconcileFailed),
			"There is no AITenant %s. Create it, or correct spec.tenantRef.", m.Spec.TenantRef))
	case seen.Backend.NoAPI:
		return failed(v1alpha1.MaaSModelRefPending, engine.WaitFor(string(v1alpha1.ReasonBackendNotReady),
			"The cluster does not serve the kind %s. Install it; nothing needs a restart.", ref.Kind))
	case seen.NoGateways:
		return failed(v1alpha1.MaaSModelRefPending, engine.WaitFor(string(v1alpha1.ReasonBackendNotReady),
			"The cluster does not serve the Gateway API, so that no route can lead to the model. Install it; nothing needs a restart."))
	case seen.Route == nil:
		return failed(v1alpha1.MaaSModelRefPending, s.withoutRoute())
	case !routes.HangsOn(seen.Route, *seen.Gateway):
		return failed(v1alpha1.MaaSModelRefFailed, engine.MustChange(string(v1alpha1.ReasonReconcileFailed),
			"HTTPRoute %s does not hang on the Gateway %s, through which the model should be reached. Name that Gateway in the route, or another tenant in spec.tenantRef.",
			seen.Route.Name, seen.Gateway))
	}
	s.works()
	return s
}

// withoutRoute says what is missed first.
func (s *state) withoutRoute() *engine.Problem {
	ref := s.model.Spec.ModelRef
	if !s.seen.Backend.Exists {
		return engine.WaitFor(string(v1alpha1.ReasonBackendNotReady), "%s %s does not exist in namespace %s. Create it.", ref.Kind, ref.Name, s.model.Namespace)
	}
	return engine.WaitFor(string(v1alpha1.ReasonBackendNotReady),
		"There is no HTTPRoute that leads to %s %s yet. Look at its status if none comes.", ref.Kind, ref.Name)
}

// works judges a model that can be reached.
func (s *state) works() {
	governed := s.seen.Subscribed && s.seen.Permitted
	switch {
	case governed && s.runtime == "":
		s.phase = v1alpha1.MaaSModelRefReady
	case governed:
		s.phase, s.problem = v1alpha1.MaaSModelRefUnhealthy, engine.WaitFor(string(v1alpha1.ReasonBackendNotReady), "%s", s.runtime)
	default:
		s.phase, s.problem = v1alpha1.MaaSModelRefPending, engine.WaitFor(string(v1alpha1.ReasonBackendNotReady), "%s", cmp.Or(s.runtime, s.ungoverned()))
	}
}

// unhealthy says why the model does not answer; empty if it does.
func unhealthy(m *v1alpha1.MaaSModelRef, seen *Seen) string {
	ref := m.Spec.ModelRef
	name := string(ref.Kind) + " " + ref.Name
	switch {
	case ref.Kind == "" || ref.Name == "":
		return "It is not known what runs the model. Set spec.modelRef."
	case !seen.Backend.Exists:
		return name + " does not exist. Create it."
	case seen.Backend.ByRoute && seen.Route == nil:
		return name + " has no HTTPRoute yet. Look at its status if none comes."
	case seen.Backend.ByRoute && seen.Gateway != nil:
		if taken, said := routes.Accepted(seen.Route, *seen.Gateway); !taken {
			return "The Gateway " + seen.Gateway.String() + " has not accepted HTTPRoute " + seen.Route.Name + cmp.Or(parenthesis(said), " yet") + ". Look at the status of the route."
		}
		if said := seen.Backend.Message; said != "" {
			return name + " does not work" + parenthesis(said) + ". Look at its status."
		}
	case !seen.Backend.ByRoute && !seen.Backend.Ready:
		return name + " is not ready" + parenthesis(seen.Backend.Message) + ". Look at its status."
	}
	return ""
}

func parenthesis(said string) string {
	if said == "" {
		return ""
	}
	return " (" + said + ")"
}

// ungoverned says what is missing for somebody to use the model.
func (s *state) ungoverned() string {
	seen, name := s.seen, s.model.Namespace+"/"+s.model.Name
	switch {
	case !seen.SubscriptionNamed && !seen.PolicyNamed:
		return "No MaaSSubscription and no MaaSAuthPolicy of a tenant names the model " + name + ", so that nobody can use it. Create both."
	case !seen.SubscriptionNamed:
		return "No MaaSSubscription of a tenant names the model " + name + ", so that nobody can use it. Create one."
	case !seen.PolicyNamed:
		return "No MaaSAuthPolicy of a tenant names the model " + name + ", so that nobody can use it. Create one."
	case !seen.Subscribed:
		return "No MaaSSubscription that names the model " + name + " is in force. Look at their status."
	}
	return "No MaaSAuthPolicy that names the model " + name + " is in force. Look at their status."
}
