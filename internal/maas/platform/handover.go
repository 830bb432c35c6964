// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// Who checks requests is handed over, never dropped: the payload processor goes on until Kuadrant enforces the policies of the
// gateway, and Kuadrant's policies stay until the processor checks again. While both do, a request may be refused that would be
// let through; none is let through that would be refused.

// Standing is how far Kuadrant is with the policies of the tenant's gateway.
type Standing struct {
	// Enforced says that all of them are in force.
	Enforced bool
	// Missing is a policy that is not there, and Said what Kuadrant has against one that is, since when.
	Missing, Said string
	Since         time.Time
	// Ours and Theirs are EnvoyExtensionPolicies that Envoy Gateway refuses, because it takes one for each Gateway.
	Ours, Theirs string
}

// patienceWithKuadrant is how long it may say of policies which it had enforced that it does not: it does whenever a route comes,
// for as long as it takes to have the route checked, too.
const patienceWithKuadrant = 30 * time.Second

// drainTime is how long pods that were replaced may still be asked, where the cluster does not say whether there are some.
const drainTime = 45 * time.Second

// reasonRefused is said where Envoy Gateway does not take a policy beside another, and reasonSwitching while pods are replaced.
const (
	reasonRefused   = "ExtensionPolicyRefused"
	reasonSwitching = "Switching"
)

// readStanding looks at the policies of the gateway, and of the one that the tenant moves to.
func (k Kind) readStanding(ctx context.Context, r engine.Reader, _ *v1alpha1.MaasTenantConfig, seen *Seen) (err error) {
	if seen.Standing, err = k.standing(ctx, r, seen, seen.Gateway.Key); err != nil || seen.Coming == nil {
		return err
	}
	if seen.Coming.Standing, err = k.standing(ctx, r, seen, seen.Coming.Key); err != nil {
		return err
	}
	seen.Coming.Asked, err = k.asked(ctx, r, seen)
	return err
}

func (k Kind) standing(ctx context.Context, r engine.Reader, seen *Seen, gateway client.ObjectKey) (Standing, error) {
	out := Standing{}
	if err := out.refused(ctx, r, gateway, seen.Tenant); err != nil || len(seen.MissingKuadrant) > 0 {
		return out, err
	}
	isDefault := gateway == client.ObjectKey{Namespace: k.GatewayNamespace, Name: k.GatewayName}
	auth, deny := kuadrant.New(kuadrant.AuthPolicy), kuadrant.New(kuadrant.TokenRateLimitPolicy)
	auth.SetName(naming.GatewayAuthPolicy(gateway.Name, isDefault))
	deny.SetName(naming.GatewayDeny(seen.Tenant) + seen.Suffixes[gateway])
	out.Enforced = seen.Passes.Home != ""
	for _, policy := range []*unstructured.Unstructured{auth, deny} {
		name := policy.GetName()
		err := r.Get(ctx, client.ObjectKey{Namespace: gateway.Namespace, Name: name}, policy)
		if err != nil && !gateways.Absent(err) {
			return out, err
		}
		target := kuadrant.TargetOf(policy).Name
		if err != nil || policy.GetDeletionTimestamp() != nil || target != "" && target != gateway.Name {
			out.Enforced, out.Missing = false, policy.GetKind()+" "+name
			continue
		}
		v := kuadrant.VerdictOn(policy)
		if v.Accepted && v.Enforced || v.Before {
			continue
		}
		out.Enforced = false
		out.Said = fmt.Sprintf("%s %s/%s: %s", policy.GetKind(), gateway.Namespace, name, v.Message)
		if v.Message == "" {
			out.Said = fmt.Sprintf("Kuadrant has not told of %s %s/%s yet", policy.GetKind(), gateway.Namespace, name)
		}
		out.Since = v.Since
	}
	return out, nil
}

// asked tells whether the gateway that the tenant moves to asks the payload processor. Istio does not tell; what it reads is there.
func (k Kind) asked(ctx context.Context, r engine.Reader, seen *Seen) (bool, error) {
	name, kind := naming.OfTenant(processorName, seen.Tenant), gateways.EnvoyExtensionPolicy
	if seen.Coming.Flavour == gateways.Istio {
		name, kind = name+seen.Suffixes[seen.Coming.Key], gateways.EnvoyFilter
		head := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: k.GatewayNamespace, Name: name}}
		head.SetGroupVersionKind(kind)
		err := r.Child(ctx, head)
		if gateways.Absent(err) {
			return false, nil
		}
		return err == nil, err
	}
	policy := gateways.Foreign(kind)
	err := r.Get(ctx, client.ObjectKey{Namespace: k.GatewayNamespace, Name: name}, policy)
	if gateways.Absent(err) {
		return false, nil
	}
	return err == nil && says(policy, seen.Coming.Key.Name, "True", "Accepted"), err
}

// refused looks for policies that Envoy Gateway does not take for the gateway, because it has taken another.
func (s *Standing) refused(ctx context.Context, r engine.Reader, gateway client.ObjectKey, tenant string) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gateways.EnvoyExtensionPolicy.GroupVersion().WithKind(gateways.EnvoyExtensionPolicy.Kind + "List"))
	if err := r.List(ctx, list, client.InNamespace(gateway.Namespace)); err != nil {
		if meta.IsNoMatchError(err) {
			return nil
		}
		return err
	}
	for i := range list.Items {
		policy := &list.Items[i]
		if !says(policy, gateway.Name, "False", "Conflicted") {
			continue
		}
		switch name := policy.GetName(); {
		case name == naming.OfTenant(processorName, tenant):
			s.Ours = policy.GetNamespace() + "/" + name
		case policy.GetLabels()["kuadrant.io/managed"] == "true", strings.HasPrefix(name, "kuadrant-"):
			s.Theirs = policy.GetNamespace() + "/" + name
		}
	}
	return nil
}

// says tells whether Envoy Gateway says for what reason that it has taken a policy for a gateway as it is now, or that it has not.
func says(policy *unstructured.Unstructured, gateway, accepted, why string) bool {
	ancestors, _, _ := unstructured.NestedSlice(policy.Object, "status", "ancestors")
	return slices.ContainsFunc(ancestors, func(item any) bool {
		ancestor, _ := item.(map[string]any)
		name, _, _ := unstructured.NestedString(ancestor, "ancestorRef", "name")
		conditions, _, _ := unstructured.NestedSlice(ancestor, "conditions")
		return name == gateway && slices.ContainsFunc(conditions, func(item any) bool {
			c, _ := item.(map[string]any)
			about, stamped := c["observedGeneration"].(int64)
			return c["type"] == "Accepted" && c["status"] == accepted && c["reason"] == why && (!stamped || about >= policy.GetGeneration())
		})
	})
}

// trimExtensionPolicy keeps of an EnvoyExtensionPolicy what Envoy Gateway says of it.
func trimExtensionPolicy(obj client.Object) { gateways.Keep(obj, []string{"status", "ancestors"}) }

// was is who enforced when it was last told for sure.
func (p *planner) was() string {
	if c := p.told(); c != nil && c.Status == metav1.ConditionTrue {
		return c.Reason
	}
	return ""
}

// handedOver tells whether requests are left to Kuadrant. It has to say so itself; once it has, it may take its time with what is
// new, unless it is known that it cannot.
func (p *planner) handedOver() bool {
	s := &p.seen.Standing
	switch {
	case len(p.seen.MissingKuadrant) > 0:
		return false
	case s.Enforced:
		return true
	case p.was() != tenancy.ByKuadrant, s.Missing != "", s.Theirs != "", p.seen.Passes.Home == "", s.Since.IsZero():
		return false
	}
	left := s.Since.Add(patienceWithKuadrant).Sub(p.seen.Now)
	if left <= 0 {
		return false
	}
	p.lookIn(left)
	return true
}

// lookIn asks for another look.
func (p *planner) lookIn(d time.Duration) {
	if p.look == 0 || d < p.look {
		p.look = d
	}
}

// checks tells whether the payload processor checks requests: all of its pods, and no former one is asked any more.
func (p *planner) checks() bool {
	d := p.seen.Deployments[p.name(processorName)]
	switch {
	case d == nil, d.Annotations[naming.AnnotationEnforcement] != string(tenancy.BuiltIn), d.Status.ObservedGeneration < d.Generation, !kube.RolledOut(d):
		return false
	case p.unwired() != nil, p.seen.Standing.Ours != "":
		return false
	case d.Status.TerminatingReplicas != nil:
		return *d.Status.TerminatingReplicas == 0
	}
	i := slices.IndexFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == appsv1.DeploymentProgressing })
	if i < 0 {
		return true
	}
	left := d.Status.Conditions[i].LastUpdateTime.Add(drainTime).Sub(p.seen.Now)
	if left <= 0 {
		return true
	}
	p.lookIn(left)
	return false
}

// told is the condition that says who enforces, as it was told last.
func (p *planner) told() *metav1.Condition {
	before := meta.FindStatusCondition(p.config.Status.Conditions, tenancy.ConditionEnforcedBy)
	if before == nil {
		return nil
	}
	return &metav1.Condition{Type: before.Type, Status: before.Status, Reason: before.Reason, Message: before.Message}
}

// decideBy says who checks requests. Until the payload processor does for the first time, nobody is named.
func (p *planner) decideBy() {
	before, was := p.told(), p.was()
	p.by = &metav1.Condition{Type: tenancy.ConditionEnforcedBy, Status: metav1.ConditionTrue, Reason: tenancy.ByKuadrant, Message: p.enforces()}
	switch {
	case !p.builtIn:
	case was == tenancy.ByProcessor || p.checks():
		p.by.Reason = tenancy.ByProcessor
	case before == nil:
		p.by = nil
	default:
		p.by.Status, p.by.Reason = metav1.ConditionUnknown, reasonSwitching
		p.by.Message = "The payload processor is about to check requests. What Kuadrant enforces stays until all of its pods do."
	}
}

// arrived tells whether requests are checked at the gateway that the tenant moves to.
func (p *planner) arrived() bool {
	c := p.seen.Coming
	switch {
	case c == nil || !c.Exists:
		return false
	case !p.builtIn:
		return c.Standing.Enforced
	}
	return c.Asked && p.by != nil && p.by.Status == metav1.ConditionTrue
}

// moving is the problem of a tenant that is about to move to another gateway.
func (p *planner) moving() *engine.Problem {
	c := p.seen.Coming
	switch {
	case c == nil || !c.Exists:
		return nil
	case c.Flavour == gateways.Other && p.builtIn:
		return engine.WaitFor("GatewayNotReady", "The tenant does not move to Gateway %s: nothing is known of its implementation, so that requests for models would not be checked there. Use a Gateway of Envoy Gateway or Istio, or install Kuadrant.", c.Key)
	case c.Standing.Ours != "" && p.builtIn:
		return engine.WaitFor(reasonRefused, "The tenant does not move to Gateway %s: Envoy Gateway takes one EnvoyExtensionPolicy for each Gateway, and has refused %s there. Delete the other policy for that Gateway.", c.Key, c.Standing.Ours)
	case !p.builtIn && c.Standing.Said != "":
		return engine.WaitFor("GatewayNotReady", "The tenant moves to Gateway %s when requests are checked there: %s.", c.Key, c.Standing.Said)
	}
	return engine.WaitFor("GatewayNotReady", "The tenant moves to Gateway %s when requests are checked there. Until they are, its models are reached through Gateway %s.", c.Key, p.seen.Gateway.Key)
}

// switching is the problem of who waits for the payload processor to check requests again.
func (p *planner) switching() *engine.Problem {
	if p.by == nil || p.by.Status == metav1.ConditionTrue {
		return nil
	}
	return engine.WaitFor(p.by.Reason, "%s", p.by.Message)
}

// shows tells whether Kuadrant asks maas-api, or still does.
func (p *planner) shows() bool {
	return p.kuadrant || p.by != nil && p.by.Status != metav1.ConditionTrue
}

// awaited says what the payload processor checks requests for until Kuadrant does.
func (p *planner) awaited() string {
	s := &p.seen.Standing
	switch {
	case p.seen.Passes.Home == "":
		return "there is no Kuadrant object. Create one"
	case s.Missing != "":
		return s.Missing + " is not there yet"
	case s.Said != "":
		return s.Said
	}
	return "it has not told of them yet"
}

// refusals tells of policies that Envoy Gateway does not take beside others.
func (p *planner) refusals() *engine.Problem {
	s, gateway := &p.seen.Standing, p.seen.Gateway.Key
	switch {
	case s.Ours != "" && p.builtIn:
		return engine.WaitFor(reasonRefused, "Envoy Gateway takes one EnvoyExtensionPolicy for each Gateway, and has refused %s: the payload processor is not asked, and requests for models at Gateway %s are not checked by it. Delete the other policy for that Gateway.", s.Ours, gateway)
	case s.Ours != "":
		return engine.WaitFor(reasonRefused, "Envoy Gateway takes one EnvoyExtensionPolicy for each Gateway, and has refused %s: Kuadrant checks requests, but models are found by their path only, and external ones cannot be used. Set the annotation %s to %s, or use a Gateway of Istio.", s.Ours, naming.AnnotationEnforcement, tenancy.BuiltIn)
	case s.Theirs != "" && p.kuadrant:
		p.warnings = append(p.warnings, warning{reason: reasonRefused, message: fmt.Sprintf(
			"Envoy Gateway takes one EnvoyExtensionPolicy for each Gateway, and has refused %s, with which Kuadrant would check requests: the payload processor goes on checking them. Set the annotation %s to %s to have it so, or use a Gateway of Istio for Kuadrant.",
			s.Theirs, naming.AnnotationEnforcement, tenancy.BuiltIn)})
	}
	return nil
}
