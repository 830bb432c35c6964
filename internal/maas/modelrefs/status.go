// SPDX-License-Identifier: Apache-2.0

package modelrefs

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/maas/routes"
)

func (s *state) status() *v1alpha1.MaaSModelRefStatus {
	m, seen := s.model, s.seen
	out := &v1alpha1.MaaSModelRefStatus{
		Phase: s.phase, ResolvedTenantRef: m.Spec.TenantRef,
		// What clients know the model by is remembered while its object does not say it.
		ResolvedModelAlias: cmp.Or(seen.Backend.Alias, m.Status.ResolvedModelAlias),
	}
	if seen.Route != nil {
		out.HTTPRouteName, out.HTTPRouteNamespace = seen.Route.Name, seen.Route.Namespace
		for _, h := range seen.Route.Spec.Hostnames {
			out.HTTPRouteHostnames = append(out.HTTPRouteHostnames, string(h))
		}
		if seen.Gateway != nil && routes.HangsOn(seen.Route, *seen.Gateway) {
			out.HTTPRouteGatewayName, out.HTTPRouteGatewayNamespace = seen.Gateway.Name, seen.Gateway.Namespace
		}
	}
	if s.phase == v1alpha1.MaaSModelRefReady {
		out.Endpoint = cmp.Or(m.Spec.EndpointOverride, endpoint(seen))
	}
	out.Conditions = s.conditions(out.ResolvedModelAlias).Standard()
	return out
}

func (s *state) conditions(alias string) kube.Conditions {
	var cs kube.Conditions
	if s.problem == nil {
		cs.True(ConditionReady, string(v1alpha1.ReasonReconciled), "The model answers, and somebody may use it.")
	} else {
		cs.False(ConditionReady, s.problem.Reason, s.problem.Message)
	}
	s.governed(&cs)
	if s.runtime == "" {
		cs.True(ConditionRuntime, string(v1alpha1.ReasonRuntimeHealthy), "The model runs.")
	} else {
		cs.False(ConditionRuntime, string(v1alpha1.ReasonRuntimeHealthFailure), s.runtime)
	}
	s.unique(&cs, alias)
	if len(s.seen.Foreign) > 0 {
		cs.True(ConditionConflict, reasonForeignLimits, fmt.Sprintf(
			"TokenRateLimitPolicy %s of somebody else is for HTTPRoute %s too, and Kuadrant enforces only one. Remove it.", strings.Join(s.seen.Foreign, ", "), s.seen.Route.Name))
	}
	return cs
}

// governed tells a model that nobody could use yet from one that somebody could.
func (s *state) governed(cs *kube.Conditions) {
	if s.seen.Subscribed && s.seen.Permitted {
		cs.True(ConditionGoverned, string(v1alpha1.ReasonGovernancePaired), "A MaaSSubscription and a MaaSAuthPolicy open the model.")
		return
	}
	before := meta.FindStatusCondition(s.model.Status.Conditions, ConditionGoverned)
	reason := v1alpha1.ReasonNoPairingFound
	if before != nil && (before.Status == metav1.ConditionTrue || before.Reason == string(v1alpha1.ReasonGovernanceGap)) {
		reason = v1alpha1.ReasonGovernanceGap
	}
	cs.False(ConditionGoverned, string(reason), s.ungoverned())
}

// unique says whether clients mean this model and no other by its name.
func (s *state) unique(cs *kube.Conditions, alias string) {
	before := meta.FindStatusCondition(s.model.Status.Conditions, ConditionUnique)
	switch {
	case alias == "":
		cs.Unknown(ConditionUnique, "AliasNotResolved", "It is not known yet by which name clients ask for the model.")
	case len(s.seen.Twins) > 0:
		message := fmt.Sprintf("Clients ask for %s by the name %q too, at the same gateway. Publish the model under one name only.", strings.Join(s.seen.Twins, ", "), alias)
		cs.False(ConditionUnique, reasonNameConflict, message)
		s.events = append(s.events, engine.Event{Warning: true, Reason: reasonNameConflict, Message: message})
	default:
		cs.True(ConditionUnique, "UniqueIdentity", "No other model has the name.")
		if before != nil && before.Reason == reasonNameConflict {
			s.events = append(s.events, engine.Event{Reason: reasonNameResolved, Message: fmt.Sprintf("No other model has the name %q any more.", alias)})
		}
	}
}
