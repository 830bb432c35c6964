// SPDX-License-Identifier: Apache-2.0

// Package authpolicies looks after MaaSAuthPolicies: whether the models they open are there, whether the gateway asks for
// credentials at all, and whether a policy of somebody else is in the way. Who may use which model is asked for at each request;
// nothing is generated for a single policy.
package authpolicies

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// Kind is the kind MaaSAuthPolicy.
type Kind struct{ settings func() settings.Settings }

var _ engine.Kind[*v1alpha1.MaaSAuthPolicy, Seen] = Kind{}

// Controller of MaaSAuthPolicies.
func Controller(of func() settings.Settings) engine.Controller {
	return engine.For[*v1alpha1.MaaSAuthPolicy, Seen](Kind{of}, engine.Spec{
		Name: "maas-authpolicy", ReadyEvent: "AuthPolicyActive", NotReadyEvent: "AuthPolicyNotActive",
		OldFinalizers: []string{naming.FinalizerAuthPolicy},
		Inputs: slices.Concat(tenancy.Inputs(), []engine.Input{
			{Object: &v1alpha1.MaaSModelRef{}},
			{Object: kuadrant.New(kuadrant.AuthPolicy), Optional: true, Index: kuadrant.ByTarget},
		}),
	})
}

// Seen is everything that the decision about a policy depends on.
type Seen struct {
	// Tenant is nil where the namespace belongs to none.
	Tenant      *tenancy.Tenant
	Enforcement tenancy.Enforcement
	// Missing are models that are not there, of All.
	Missing []string
	All     int
	// Gateway is the policy that asks for credentials at the gateway, nil without one.
	Gateway *unstructured.Unstructured
	// Conflicts are policies of others for routes of the models.
	Conflicts []string
}

// Observe implements engine.Kind.
func (k Kind) Observe(ctx context.Context, r engine.Reader, p *v1alpha1.MaaSAuthPolicy) (Seen, error) {
	var seen Seen
	s := k.settings()
	tenants, err := tenancy.Observe(ctx, r, s)
	if err != nil {
		return seen, err
	}
	tenant, found, err := tenants.Of(ctx, r, p.Namespace)
	if err != nil || !found {
		return seen, err
	}
	seen.Tenant = &tenant
	if seen.Enforcement, err = tenancy.ObserveEnforcement(ctx, r, tenant.Namespace); err != nil {
		return seen, err
	}
	if err := seen.models(ctx, r, p); err != nil || seen.Enforcement.Mode != tenancy.Kuadrant {
		return seen, err
	}
	isDefault := tenant.Gateway == types.NamespacedName{Namespace: s.GatewayNamespace, Name: s.GatewayName}
	policy := kuadrant.New(kuadrant.AuthPolicy)
	err = r.Get(ctx, types.NamespacedName{Namespace: tenant.Gateway.Namespace, Name: naming.GatewayAuthPolicy(tenant.Gateway.Name, isDefault)}, policy)
	if err == nil {
		seen.Gateway = policy
	}
	return seen, absent(err)
}

// models looks at those that the policy opens.
func (s *Seen) models(ctx context.Context, r engine.Reader, p *v1alpha1.MaaSAuthPolicy) error {
	known := map[types.NamespacedName]bool{}
	for _, ref := range p.Spec.ModelRefs {
		name := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
		if known[name] {
			continue
		}
		known[name] = true
		model := &v1alpha1.MaaSModelRef{}
		err := r.Get(ctx, name, model)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		s.All++
		if err != nil || model.DeletionTimestamp != nil {
			s.Missing = append(s.Missing, name.String())
			continue
		}
		if err := s.conflicts(ctx, r, model); err != nil {
			return err
		}
	}
	slices.Sort(s.Missing)
	slices.Sort(s.Conflicts)
	s.Conflicts = slices.Compact(s.Conflicts)
	return nil
}

// conflicts finds policies of others for the route of a model: they take the place of that of the gateway.
func (s *Seen) conflicts(ctx context.Context, r engine.Reader, model *v1alpha1.MaaSModelRef) error {
	if model.Status.HTTPRouteName == "" || s.Enforcement.Mode != tenancy.Kuadrant {
		return nil
	}
	list := kuadrant.List(kuadrant.AuthPolicy)
	on := kuadrant.Target{Kind: "HTTPRoute", Namespace: cmp.Or(model.Status.HTTPRouteNamespace, model.Namespace), Name: model.Status.HTTPRouteName}
	if err := r.List(ctx, list, engine.Indexed(on.String())); err != nil {
		return absent(err)
	}
	for i := range list.Items {
		if policy := &list.Items[i]; !kuadrant.Ours(policy) && policy.GetDeletionTimestamp() == nil {
			s.Conflicts = append(s.Conflicts, policy.GetNamespace()+"/"+policy.GetName())
		}
	}
	return nil
}

// absent is nil when something is not there, be it an object or its API.
func absent(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}
