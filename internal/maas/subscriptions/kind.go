// SPDX-License-Identifier: Apache-2.0

// Package subscriptions looks after MaaSSubscriptions: whether the models they name are there, and whether their limits are in
// force. It makes nothing: the limits of a route are one policy, which the room modelrefs makes for all who share the route.
package subscriptions

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/routes"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// Kind is the kind MaaSSubscription.
type Kind struct{ settings func() settings.Settings }

var _ engine.Kind[*v1alpha1.MaaSSubscription, Seen] = Kind{}

// Controller of MaaSSubscriptions.
func Controller(of func() settings.Settings) engine.Controller {
	return engine.For[*v1alpha1.MaaSSubscription, Seen](Kind{of}, engine.Spec{
		Name: "maas-subscription", ReadyEvent: "SubscriptionActive", NotReadyEvent: "SubscriptionNotActive",
		OldFinalizers: []string{naming.FinalizerSubscription},
		Inputs: slices.Concat(tenancy.Inputs(), []engine.Input{
			{Object: &v1alpha1.MaaSSubscription{}, Index: byPriority},
			{Object: &v1alpha1.MaaSModelRef{}},
			{Object: &gatewayv1.HTTPRoute{}, Optional: true},
			{Object: kuadrant.New(kuadrant.TokenRateLimitPolicy), Optional: true, Index: kuadrant.ByTarget},
		}),
	})
}

// byPriority is an index of subscriptions by namespace and priority.
func byPriority(obj client.Object) []string {
	if s, ok := obj.(*v1alpha1.MaaSSubscription); ok {
		return []string{priorityOf(s)}
	}
	return nil
}

func priorityOf(s *v1alpha1.MaaSSubscription) string {
	return s.Namespace + "/" + strconv.Itoa(int(s.Spec.Priority))
}

// early is how long the policy with the limits of a new subscription may take before it is told that there is none yet.
const early = 15 * time.Second

// Seen is everything that the decision about a subscription depends on.
type Seen struct {
	// Tenant is nil where the namespace belongs to none.
	Tenant      *tenancy.Tenant
	Enforcement tenancy.Enforcement
	// Models that the subscription names, each once, in its order.
	Models []Model
	// Peer is the first other subscription of the namespace with the same priority, empty without one.
	Peer string
	// Young is for how long it is too early to say that nothing is known yet.
	Young time.Duration
}

// Model is one of them.
type Model struct {
	types.NamespacedName
	Exists bool
	// Route leads to it, empty without one. Elsewhere says that it does not hang on the tenant's gateway.
	Route     string
	Elsewhere bool
	// Policy has the limits of the route, nil without one; Foreign are policies of others for it.
	Policy  *unstructured.Unstructured
	Foreign []string
}

// Observe implements engine.Kind.
func (k Kind) Observe(ctx context.Context, r engine.Reader, s *v1alpha1.MaaSSubscription) (Seen, error) {
	var seen Seen
	tenants, err := tenancy.Observe(ctx, r, k.settings())
	if err != nil {
		return seen, err
	}
	tenant, found, err := tenants.Of(ctx, r, s.Namespace)
	if err != nil || !found {
		return seen, err
	}
	seen.Tenant = &tenant
	if seen.Enforcement, err = tenancy.ObserveEnforcement(ctx, r, tenant.Namespace); err != nil {
		return seen, err
	}
	for _, ref := range s.Spec.ModelRefs {
		name := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
		if slices.ContainsFunc(seen.Models, func(m Model) bool { return m.NamespacedName == name }) {
			continue
		}
		model, err := look(ctx, r, name, tenant.Gateway, seen.Enforcement.Mode)
		if err != nil {
			return seen, err
		}
		seen.Models = append(seen.Models, model)
	}
	seen.Young = max(0, time.Until(s.CreationTimestamp.Add(early)))
	err = seen.peer(ctx, r, s)
	return seen, err
}

// look finds a model, its route and the policy of the route.
func look(ctx context.Context, r engine.Reader, name, gateway types.NamespacedName, mode tenancy.Mode) (Model, error) {
	model := Model{NamespacedName: name}
	ref := &v1alpha1.MaaSModelRef{}
	if err := r.Get(ctx, name, ref); err != nil {
		return model, client.IgnoreNotFound(err)
	}
	model.Exists = ref.DeletionTimestamp == nil
	if ref.Status.HTTPRouteName == "" {
		return model, nil
	}
	route := &gatewayv1.HTTPRoute{}
	if err := r.Get(ctx, types.NamespacedName{Namespace: ref.Status.HTTPRouteNamespace, Name: ref.Status.HTTPRouteName}, route); err != nil {
		return model, absent(err)
	}
	model.Route, model.Elsewhere = route.Name, !routes.HangsOn(route, gateway)
	if mode != tenancy.Kuadrant {
		return model, nil
	}
	list := kuadrant.List(kuadrant.TokenRateLimitPolicy)
	on := kuadrant.Target{Kind: "HTTPRoute", Namespace: route.Namespace, Name: route.Name}
	if err := r.List(ctx, list, engine.Indexed(on.String())); err != nil {
		return model, absent(err)
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	for i := range list.Items {
		switch policy := &list.Items[i]; {
		case !kuadrant.Ours(policy):
			model.Foreign = append(model.Foreign, policy.GetName())
		case model.Policy == nil || policy.GetName() == naming.RateLimitPolicy(name.Name):
			model.Policy = policy
		}
	}
	return model, nil
}

// absent is nil when something is not there, be it an object or its API.
func absent(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// peer finds the first of the others by name. It alone is told: one more of hundreds changes nothing, and only what comes before
// it, or it itself, wakes those that name it.
func (s *Seen) peer(ctx context.Context, r engine.Reader, of *v1alpha1.MaaSSubscription) error {
	for {
		until := s.Peer
		list := &v1alpha1.MaaSSubscriptionList{}
		concerns := engine.MatchingFunc(func(obj client.Object) bool { return until == "" || obj.GetName() <= until })
		// The others are only looked at: no copy of them is made.
		if err := r.List(ctx, list, client.InNamespace(of.Namespace), engine.Indexed(priorityOf(of)), concerns, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		s.Peer = ""
		for i := range list.Items {
			other := &list.Items[i]
			if other.Name != of.Name && other.DeletionTimestamp == nil && (s.Peer == "" || other.Name < s.Peer) {
				s.Peer = other.Name
			}
		}
		if s.Peer == until {
			return nil
		}
	}
}
