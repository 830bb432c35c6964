// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
)

// unfinished says which of the services do not answer yet.
func (p *planner) unfinished() *engine.Problem {
	wanted := []string{p.name(apiName), p.name(processorName)}
	if !p.builtIn {
		wanted = append(wanted, p.name(preProcessorName))
	}
	var silent []string
	for _, name := range wanted {
		if d := p.seen.Deployments[name]; d == nil || d.Status.ObservedGeneration < d.Generation || !kube.Answers(d) {
			silent = append(silent, name)
		}
	}
	if len(silent) == 0 {
		return nil
	}
	return engine.WaitFor("DeploymentsNotReady", "The pods of %s do not answer yet. Look at them if this stays.", strings.Join(silent, ", "))
}

// of tells what a problem is about.
func of(problem *engine.Problem, reasons ...string) bool {
	return problem != nil && slices.Contains(reasons, problem.Reason)
}

// status says how the tenant's services are; the engine says in Ready what is wrong.
func (p *planner) status(problem *engine.Problem) *v1alpha1.MaasTenantConfigStatus {
	out := &v1alpha1.MaasTenantConfigStatus{Phase: v1alpha1.TenantActive, InfraNamespace: p.InfraNamespace}
	set := func(typ string, status metav1.ConditionStatus, reason, message string) {
		out.Conditions = append(out.Conditions, metav1.Condition{Type: typ, Status: status, Reason: reason, Message: message})
	}
	switch {
	case problem == nil && len(p.warnings) > 0:
		out.Phase = v1alpha1.TenantDegraded
	case problem != nil && problem.Family == engine.Invalid && problem.Reason != "ManagementStateIdle", of(problem, "PlatformReconcileFailed", "DependenciesNotAvailable", "PrerequisitesNotMet"):
		out.Phase = v1alpha1.TenantFailed
	case problem != nil:
		out.Phase = v1alpha1.TenantPending
	}
	if problem == nil {
		set("Ready", metav1.ConditionTrue, "Reconciled", "The services of the tenant run.")
	}
	if of(problem, "DependenciesNotAvailable") {
		set("DependenciesAvailable", metav1.ConditionFalse, problem.Reason, problem.Message)
	} else {
		set("DependenciesAvailable", metav1.ConditionTrue, "Available", p.enforces())
	}
	if of(problem, "PrerequisitesNotMet") {
		set("MaaSPrerequisitesAvailable", metav1.ConditionFalse, problem.Reason, problem.Message)
	} else if p.seen.Database {
		set("MaaSPrerequisitesAvailable", metav1.ConditionTrue, "Available", "There is an address of a database.")
	}
	switch {
	case problem == nil, of(problem, reasonSwitching):
		set("DeploymentsAvailable", metav1.ConditionTrue, "Available", "All services answer.")
	case of(problem, "DeploymentsNotReady"):
		set("DeploymentsAvailable", metav1.ConditionFalse, problem.Reason, problem.Message)
	}
	if p.by != nil {
		out.Conditions = append(out.Conditions, *p.by)
	}
	p.degraded(problem, set)
	return out
}

// enforces says who checks requests.
func (p *planner) enforces() string {
	if p.builtIn {
		if len(p.seen.MissingKuadrant) > 0 {
			return fmt.Sprintf("The payload processor checks requests itself: the cluster does not serve %s (kuadrant.io).", strings.Join(p.seen.MissingKuadrant, " and "))
		}
		if p.kuadrant {
			return fmt.Sprintf("The payload processor checks requests until Kuadrant enforces the policies of Gateway %s: %s.", p.seen.Gateway.Key, p.awaited())
		}
		return "The payload processor checks requests itself, as the tenant asks."
	}
	return "Kuadrant checks requests."
}

// degraded says what works less well than it could.
func (p *planner) degraded(problem *engine.Problem, set func(typ string, status metav1.ConditionStatus, reason, message string)) {
	switch {
	case of(problem, "PrerequisitesNotMet"):
		set("Degraded", metav1.ConditionTrue, "PrerequisitesMissing", problem.Message)
	case of(problem, "DependenciesNotAvailable"):
		set("Degraded", metav1.ConditionTrue, "DependenciesNotMet", problem.Message)
	case len(p.warnings) == 0:
		set("Degraded", metav1.ConditionFalse, "NoWarnings", "Nothing is known that would be less than asked for.")
	case len(p.warnings) == 1:
		set("Degraded", metav1.ConditionTrue, p.warnings[0].reason, p.warnings[0].message)
	default:
		var all []string
		for _, w := range p.warnings {
			all = append(all, w.message)
		}
		set("Degraded", metav1.ConditionTrue, "MultipleWarnings", strings.Join(all, " "))
	}
}
