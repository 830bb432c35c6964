// SPDX-License-Identifier: Apache-2.0

// Package gatewaypolicies guards the gateways of tenants where Kuadrant enforces: one policy asks everybody for credentials, and
// one lets nobody have tokens where no route says otherwise. They belong to the Gateway, not to a MaaSAuthPolicy, so that the
// last of those does not open the gateway when it goes. Where somebody changes or deletes them, they are set back at once.
//
// What is enforced without Kuadrant is not decided here.
package gatewaypolicies

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	inferencev1alpha1 "github.com/modelplane/modelplane/api/inference/v1alpha1"
	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// messages is the format of an external model whose clients send keys in the header x-api-key.
const messages = "messages"

// Kind is the kind Gateway.
type Kind struct{ settings func() settings.Settings }

var _ engine.Kind[*gatewayv1.Gateway, Seen] = Kind{}

// Controller of Gateways.
func Controller(of func() settings.Settings) engine.Controller {
	return engine.For[*gatewayv1.Gateway, Seen](Kind{of}, engine.Spec{
		// All of a Gateway, which others keep a part of: in memory of its own.
		Select: labels.Everything(),
		Name:   "maas-gateway", Resource: "gateways", NoStatus: true, OptOut: naming.Managed, OldManagers: []string{naming.OldManager, naming.ManagedBy},
		FormerOwners: []engine.FormerOwner{{Group: v1alpha1.GroupVersion.Group, Kind: "Config"}},
		Children: []engine.ChildKind{
			{Object: kuadrant.New(kuadrant.AuthPolicy), Optional: true},
			{Object: kuadrant.New(kuadrant.TokenRateLimitPolicy), Optional: true},
		},
		Inputs: slices.Concat(tenancy.Inputs(), []engine.Input{
			{Object: &inferencev1alpha1.ExternalModel{}},
			{Object: kuadrant.New(kuadrant.AuthPolicy), Optional: true, Index: kuadrant.ByTarget},
			{Object: kuadrant.New(kuadrant.TokenRateLimitPolicy), Optional: true, Index: kuadrant.ByTarget},
		}),
	})
}

// Seen is everything that the decision about a gateway depends on.
type Seen struct {
	settings.Settings
	// Tenant is nil where the gateway belongs to none.
	Tenant      *tenancy.Tenant
	Enforcement tenancy.Enforcement
	KeyHeader   bool
	// Kept are the names of policies that a user keeps for himself.
	Kept []string
}

// Observe implements engine.Kind.
func (k Kind) Observe(ctx context.Context, r engine.Reader, g *gatewayv1.Gateway) (Seen, error) {
	seen := Seen{Settings: k.settings()}
	tenants, err := tenancy.Observe(ctx, r, seen.Settings)
	if err != nil {
		return seen, err
	}
	tenant, found := tenants.At(client.ObjectKeyFromObject(g))
	if !found {
		return seen, nil
	}
	seen.Tenant = &tenant
	if seen.Enforcement, err = tenancy.ObserveEnforcement(ctx, r, tenant.Namespace); err != nil || seen.Enforcement.Mode != tenancy.Kuadrant {
		return seen, err
	}
	models := &inferencev1alpha1.ExternalModelList{}
	if err := r.List(ctx, models, engine.MatchingFunc(speaksMessages)); err != nil {
		return seen, err
	}
	seen.KeyHeader = slices.ContainsFunc(models.Items, func(m inferencev1alpha1.ExternalModel) bool { return speaksMessages(&m) })
	err = seen.kept(ctx, r, g)
	return seen, err
}

func speaksMessages(obj client.Object) bool {
	m, ok := obj.(*inferencev1alpha1.ExternalModel)
	return ok && slices.ContainsFunc(m.Spec.ExternalProviderRefs, func(p inferencev1alpha1.ExternalProviderRef) bool { return p.APIFormat == messages })
}

// kept finds policies of the gateway that a user keeps for himself.
func (s *Seen) kept(ctx context.Context, r engine.Reader, g *gatewayv1.Gateway) error {
	on := kuadrant.Target{Kind: "Gateway", Namespace: g.Namespace, Name: g.Name}
	for _, gvk := range kuadrant.Kinds() {
		list := kuadrant.List(gvk)
		if err := r.List(ctx, list, engine.Indexed(on.String())); err != nil {
			if meta.IsNoMatchError(err) {
				continue
			}
			return err
		}
		for i := range list.Items {
			if kuadrant.Left(&list.Items[i]) {
				s.Kept = append(s.Kept, list.Items[i].GetName())
			}
		}
	}
	return nil
}

// Plan implements engine.Kind.
func (k Kind) Plan(g *gatewayv1.Gateway, seen Seen) engine.Plan {
	if seen.Tenant == nil || seen.Enforcement.Mode != tenancy.Kuadrant {
		return engine.Plan{}
	}
	if p := seen.Enforcement.Problem(); p != nil {
		return engine.Plan{KeepChildren: true, Problem: p}
	}
	isDefault := client.ObjectKeyFromObject(g) == types.NamespacedName{Namespace: seen.GatewayNamespace, Name: seen.GatewayName}
	auth := kuadrant.Auth{
		Namespace: g.Namespace, Gateway: g.Name, Name: naming.GatewayAuthPolicy(g.Name, isDefault),
		API:      fmt.Sprintf("https://%s.%s.svc.cluster.local:8444", naming.OfTenant("maas-api", seen.Tenant.Name), seen.InfraNamespace),
		Audience: seen.Audience, OIDC: seen.Tenant.OIDC, KeyHeader: seen.KeyHeader,
		MetadataTTL: seen.MetadataTTL, AuthorizationTTL: seen.AuthorizationTTL,
	}.Policy()
	deny := kuadrant.Deny(g.Namespace, g.Name, seen.Tenant.Name)
	var plan engine.Plan
	for _, policy := range []client.Object{auth, deny} {
		plan.Children = append(plan.Children, engine.Child{Object: policy, Adopt: true, Unmanaged: slices.Contains(seen.Kept, policy.GetName())})
	}
	return plan
}
