// SPDX-License-Identifier: Apache-2.0

package subscriptions

import (
	"fmt"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/limits"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// Conditions of a MaaSSubscription.
const (
	ConditionReady     = "Ready"
	ConditionDuplicate = "SpecPriorityDuplicate"
)

// Plan implements engine.Kind.
func (k Kind) Plan(s *v1alpha1.MaaSSubscription, seen Seen) engine.Plan {
	if seen.Tenant == nil {
		return engine.Plan{Status: outside(s)}
	}
	out := &v1alpha1.MaaSSubscriptionStatus{}
	for _, m := range seen.Models {
		out.ModelRefStatuses = append(out.ModelRefStatuses, found(m))
		out.TokenRateLimitStatuses = append(out.TokenRateLimitStatuses, limited(s, &seen, m))
	}
	phase, problem := judge(out, seen.Enforcement)
	out.Phase = phase
	if phase == v1alpha1.PhasePending && problem == nil && len(s.Status.Conditions) == 0 && seen.Young > 0 {
		return engine.Plan{RequeueAfter: seen.Young} // the next look has more to tell, most likely
	}
	var cs kube.Conditions
	switch {
	case problem != nil:
		cs.False(ConditionReady, problem.Reason, problem.Message)
	case phase == v1alpha1.PhasePending:
		cs.Unknown(ConditionReady, string(v1alpha1.ReasonUnknown), untold)
	default:
		cs.True(ConditionReady, string(v1alpha1.ReasonReconciled), "The limits are in force on all models.")
	}
	duplicate(&cs, s, &seen)
	out.Conditions = append(cs.Standard(), seen.Enforcement.Condition())
	return engine.Plan{Status: out, Problem: problem}
}

// outside is the status of a subscription that nobody asks for.
func outside(s *v1alpha1.MaaSSubscription) *v1alpha1.MaaSSubscriptionStatus {
	var cs kube.Conditions
	cs.Unknown(ConditionReady, string(v1alpha1.ReasonUnknown), fmt.Sprintf(
		"Namespace %s belongs to no tenant, so that the subscription is left out of account. Create it in the namespace of an AITenant.", s.Namespace))
	return &v1alpha1.MaaSSubscriptionStatus{Phase: v1alpha1.PhasePending, Conditions: cs.Standard()}
}

// found says whether a model is there.
func found(m Model) v1alpha1.ResourceStatus {
	out := v1alpha1.ResourceStatus{Name: m.Name, Namespace: m.Namespace, Ready: m.Exists, Reason: v1alpha1.ReasonValid}
	if !m.Exists {
		out.Reason, out.Message = v1alpha1.ReasonNotFound, fmt.Sprintf("MaaSModelRef %s does not exist in namespace %s. Create it, or take it out of spec.modelRefs.", m.Name, m.Namespace)
	}
	return out
}

// limited says whether the limits on a model are in force.
func limited(s *v1alpha1.MaaSSubscription, seen *Seen, m Model) v1alpha1.TokenRateLimitStatus {
	out := v1alpha1.TokenRateLimitStatus{Model: m.Name}
	out.Name, out.Namespace = naming.RateLimitPolicy(m.Name), m.Namespace
	if m.Policy != nil {
		out.Name = m.Policy.GetName()
	}
	rates := limits.On(s, m.NamespacedName)
	wrong := limits.Check(rates)
	no := func(reason v1alpha1.Reason, format string, args ...any) v1alpha1.TokenRateLimitStatus {
		out.Reason, out.Message = reason, fmt.Sprintf(format, args...)
		return out
	}
	switch {
	case !m.Exists:
		return no(v1alpha1.ReasonBackendNotReady, "There is no such model.")
	case wrong != "":
		return no(v1alpha1.ReasonInvalidSpec, "%s", wrong)
	case m.Route == "":
		return no(v1alpha1.ReasonBackendNotReady, "No HTTPRoute leads to the model yet. Look at its MaaSModelRef.")
	case m.Elsewhere:
		return no(v1alpha1.ReasonBackendNotReady, "HTTPRoute %s does not hang on the tenant's Gateway %s. Name that Gateway in the route.", m.Route, seen.Tenant.Gateway)
	case seen.Enforcement.Processed():
		out.Ready = true
		return no(v1alpha1.ReasonEnforced, "The payload processor of the gateway counts tokens.")
	case len(m.Foreign) > 0:
		return no(v1alpha1.ReasonNotAccepted, "TokenRateLimitPolicy %s of somebody else is for HTTPRoute %s too, and Kuadrant enforces only one. Remove it.", strings.Join(m.Foreign, ", "), m.Route)
	}
	g := kuadrant.Grant{Namespace: s.Namespace, Name: s.Name, ModelNamespace: m.Namespace, Model: m.Name, Rates: rates}
	return byKuadrant(out, m, g, held(s, m))
}

// untold is said of limits that Kuadrant has not looked at yet.
const untold = "Kuadrant has not told of a policy with these limits yet. Check that its operator runs."

// changing is said of limits that take the place of others which are in force.
const changing = "These limits take the place of others when Kuadrant has taken them; those hold until then."

// held tells whether the subscription had limits in force on a model.
func held(s *v1alpha1.MaaSSubscription, m Model) bool {
	return slices.ContainsFunc(s.Status.TokenRateLimitStatuses, func(l v1alpha1.TokenRateLimitStatus) bool {
		return l.Model == m.Name && l.Namespace == m.Namespace && l.Ready && l.Reason == v1alpha1.ReasonAccepted
	})
}

// byKuadrant says what Kuadrant says. A policy that it has not looked at yet is told like one that is about to be made. Who had
// limits in force is not shut out while they change, or while others come into their policy.
func byKuadrant(out v1alpha1.TokenRateLimitStatus, m Model, g kuadrant.Grant, held bool) v1alpha1.TokenRateLimitStatus {
	out.Reason, out.Message = v1alpha1.ReasonNotFound, untold
	if m.Policy == nil {
		return out
	}
	v := kuadrant.VerdictOn(m.Policy)
	holds := kuadrant.Holds(m.Policy, g)
	switch {
	case holds && (v.Accepted || v.Before && held):
		out.Ready, out.Reason, out.Message = true, v1alpha1.ReasonAccepted, ""
	case held && kuadrant.Lists(m.Policy, g.Namespace, g.Name) && (v.Accepted || v.Before):
		out.Ready, out.Reason, out.Message = true, v1alpha1.ReasonAccepted, changing
	case holds && v.Told:
		out.Reason, out.Message = v1alpha1.ReasonNotAccepted, fmt.Sprintf("Kuadrant does not accept the policy (%s). Look at its status.", v.Message)
	}
	return out
}

// judge makes one phase of all models.
func judge(status *v1alpha1.MaaSSubscriptionStatus, by tenancy.Enforcement) (v1alpha1.Phase, *engine.Problem) {
	var invalid, unavailable, waiting []string
	for i, l := range status.TokenRateLimitStatuses {
		name := status.ModelRefStatuses[i].Namespace + "/" + l.Model
		switch {
		case l.Ready:
		case l.Reason == v1alpha1.ReasonInvalidSpec:
			invalid = append(invalid, name)
		case l.Reason == v1alpha1.ReasonBackendNotReady:
			unavailable = append(unavailable, name)
		default:
			waiting = append(waiting, name)
		}
	}
	all, sorry := len(status.TokenRateLimitStatuses), func(names []string) string { return strings.Join(names, ", ") }
	if p := by.Problem(); p != nil {
		p.Reason = string(v1alpha1.ReasonReconcileFailed)
		return v1alpha1.PhaseFailed, p
	}
	switch {
	case len(invalid) == all:
		return v1alpha1.PhaseInvalid, engine.MustChange(string(v1alpha1.ReasonInvalidSpec), "The limits on %s cannot hold. status.tokenRateLimitStatuses says why; correct them.", sorry(invalid))
	case len(invalid)+len(unavailable) == all:
		return v1alpha1.PhaseFailed, engine.WaitFor(string(v1alpha1.ReasonReconcileFailed), "None of the models can be used: %s. The status of each says why.", sorry(append(invalid, unavailable...)))
	case len(invalid)+len(unavailable) > 0:
		return v1alpha1.PhaseDegraded, engine.WaitFor(string(v1alpha1.ReasonPartialFailure), "Some models cannot be used: %s. The status of each says why.", sorry(append(invalid, unavailable...)))
	case len(waiting) == all && untoldOnly(status):
		return v1alpha1.PhasePending, nil
	case len(waiting) > 0:
		return v1alpha1.PhaseDegraded, engine.WaitFor(string(v1alpha1.ReasonPartialFailure), "The limits are not in force on %s. status.tokenRateLimitStatuses says why.", sorry(waiting))
	}
	return v1alpha1.PhaseActive, nil
}

// untoldOnly tells whether nothing is known against the limits.
func untoldOnly(status *v1alpha1.MaaSSubscriptionStatus) bool {
	return !slices.ContainsFunc(status.TokenRateLimitStatuses, func(l v1alpha1.TokenRateLimitStatus) bool { return l.Reason != v1alpha1.ReasonNotFound })
}

// duplicate says whether it is open which of several subscriptions is taken.
func duplicate(cs *kube.Conditions, s *v1alpha1.MaaSSubscription, seen *Seen) {
	if seen.Peer == "" {
		cs.False(ConditionDuplicate, "NoDuplicatePeers", "No other subscription of the namespace has the priority.")
		return
	}
	cs.True(ConditionDuplicate, "SharedPriority", fmt.Sprintf(
		"The priority %d is also that of %s, and perhaps of others. Where several fit a caller, the one with the higher limit is taken, and then the first by name: set different priorities to choose.", s.Spec.Priority, seen.Peer))
}
