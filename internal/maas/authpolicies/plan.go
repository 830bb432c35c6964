// SPDX-License-Identifier: Apache-2.0

package authpolicies

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
)

// Conditions and events of a MaaSAuthPolicy.
const (
	ConditionReady     = "Ready"
	ConditionConflict  = "ConflictingAuthPolicy"
	eventResolved      = "ConflictingAuthPolicyResolved"
	reasonConflict     = "ConflictDetected"
	reasonNone         = "NoConflict"
	waitingForKuadrant = "Kuadrant has not told yet that the gateway asks for credentials. Check that its operator runs, and that the Gateway %s is there."
)

// Plan implements engine.Kind.
func (k Kind) Plan(p *v1alpha1.MaaSAuthPolicy, seen Seen) engine.Plan {
	var cs kube.Conditions
	phase, problem, pending := judge(p, &seen)
	switch {
	case problem != nil:
		cs.False(ConditionReady, problem.Reason, problem.Message)
	case pending != "":
		cs.Unknown(ConditionReady, string(v1alpha1.ReasonUnknown), pending)
	default:
		cs.True(ConditionReady, string(v1alpha1.ReasonReconciled), "The policy is in force.")
	}
	plan := engine.Plan{Problem: problem}
	out := &v1alpha1.MaaSAuthPolicyStatus{Phase: phase}
	if seen.Tenant != nil {
		plan.Events = conflicting(&cs, p, &seen)
		out.Conditions = append(cs.Standard(), seen.Enforcement.Condition())
	} else {
		out.Conditions = cs.Standard()
	}
	plan.Status = out
	return plan
}

// judge makes a phase of what was seen; pending says what it waits for.
func judge(p *v1alpha1.MaaSAuthPolicy, seen *Seen) (phase v1alpha1.Phase, problem *engine.Problem, pending string) {
	missing := strings.Join(seen.Missing, ", ")
	switch {
	case seen.Tenant == nil:
		return v1alpha1.PhasePending, nil, fmt.Sprintf(
			"Namespace %s belongs to no tenant, so that the policy is left out of account. Create it in the namespace of an AITenant.", p.Namespace)
	case seen.All == 0:
		return v1alpha1.PhaseInvalid, engine.MustChange(string(v1alpha1.ReasonInvalidSpec), "The policy names no model. Set spec.modelRefs."), ""
	case len(seen.Missing) == seen.All:
		return v1alpha1.PhaseFailed, engine.WaitFor(string(v1alpha1.ReasonReconcileFailed), "None of the models exists: %s. Create a MaaSModelRef for each, or correct spec.modelRefs.", missing), ""
	}
	if problem := seen.Enforcement.Problem(); problem != nil {
		problem.Reason = string(v1alpha1.ReasonReconcileFailed)
		return v1alpha1.PhaseFailed, problem, ""
	}
	if !seen.Enforcement.Processed() {
		if said, waits := notEnforced(p, seen); waits {
			return v1alpha1.PhasePending, nil, said
		}
	}
	if len(seen.Missing) > 0 {
		return v1alpha1.PhaseDegraded, engine.WaitFor(string(v1alpha1.ReasonPartialFailure), "Some models do not exist: %s. Create a MaaSModelRef for each, or take them out of spec.modelRefs.", missing), ""
	}
	return v1alpha1.PhaseActive, nil, ""
}

// notEnforced says why the gateway does not ask for credentials yet. One that did still does while its policy changes.
func notEnforced(p *v1alpha1.MaaSAuthPolicy, seen *Seen) (string, bool) {
	silent := fmt.Sprintf(waitingForKuadrant, seen.Tenant.Gateway)
	if seen.Gateway == nil {
		return silent, true
	}
	v := kuadrant.VerdictOn(seen.Gateway)
	switch {
	case v.Accepted && v.Enforced, v.Before && (p.Status.Phase == v1alpha1.PhaseActive || p.Status.Phase == v1alpha1.PhaseDegraded):
		return "", false
	case v.Message != "":
		return fmt.Sprintf("Kuadrant does not enforce AuthPolicy %s/%s (%s). Look at its status.", seen.Gateway.GetNamespace(), seen.Gateway.GetName(), v.Message), true
	}
	return silent, true
}

// conflicting tells of policies of others, once when they come and once when they go.
func conflicting(cs *kube.Conditions, p *v1alpha1.MaaSAuthPolicy, seen *Seen) []engine.Event {
	if len(seen.Conflicts) > 0 {
		message := fmt.Sprintf("AuthPolicy %s of somebody else is for the route of a model, and takes the place of the gateway's. Remove it, or the model is not guarded.", strings.Join(seen.Conflicts, ", "))
		cs.True(ConditionConflict, reasonConflict, message)
		return []engine.Event{{Warning: true, Reason: ConditionConflict, Message: message}}
	}
	cs.False(ConditionConflict, reasonNone, "No policy of somebody else is for the routes of the models.")
	if before := meta.FindStatusCondition(p.Status.Conditions, ConditionConflict); before != nil && before.Reason == reasonConflict {
		return []engine.Event{{Reason: eventResolved, Message: "No policy of somebody else is for the routes of the models any more."}}
	}
	return nil
}
