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
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		Inputs: slices.Concat(tenancy.Inputs(), tenancy.RouteInputs(), []engine.Input{
			tenancy.HomeInput(),
			tenancy.ClaimInput(),
			{Object: &corev1.Secret{}, MetadataOnly: true},
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
	// Pass is the Secret with the newest pass of the tenant.
	Pass string
	// Kept are the names of policies that a user keeps for himself.
	Kept []string
	// Deny is the name of the policy that lets nobody have tokens.
	Deny string
	// Routes lead to models through a gateway that belongs to no tenant any more.
	Routes []string
}

// Observe implements engine.Kind.
func (k Kind) Observe(ctx context.Context, r engine.Reader, g *gatewayv1.Gateway) (Seen, error) {
	seen := Seen{Settings: k.settings()}
	tenants, err := tenancy.Observe(ctx, r, seen.Settings)
	if err != nil {
		return seen, err
	}
	claims, err := tenancy.ObserveClaims(ctx, r, seen.Settings)
	if err != nil {
		return seen, err
	}
	key := client.ObjectKeyFromObject(g)
	tenant, found := tenants.At(key, claims)
	if !found {
		err := seen.left(ctx, r, key)
		return seen, err
	}
	seen.Tenant, seen.Deny = &tenant, naming.GatewayDeny(tenant.Name)+claims.Suffix(key, tenant.Name)
	if seen.Enforcement, err = tenancy.ObserveEnforcement(ctx, r, tenant.Namespace); err != nil || seen.Enforcement.Mode != tenancy.Kuadrant {
		return seen, err
	}
	models := &inferencev1alpha1.ExternalModelList{}
	if err := r.List(ctx, models, engine.MatchingFunc(speaksMessages)); err != nil {
		return seen, err
	}
	seen.KeyHeader = slices.ContainsFunc(models.Items, func(m inferencev1alpha1.ExternalModel) bool { return speaksMessages(&m) })
	if seen.Pass, err = newest(ctx, r, tenant.Name); err != nil {
		return seen, err
	}
	err = seen.kept(ctx, r, g)
	return seen, err
}

// left looks for routes at a gateway that belonged to a tenant, of which policies are left.
func (s *Seen) left(ctx context.Context, r engine.Reader, gateway types.NamespacedName) error {
	policy := kuadrant.New(kuadrant.AuthPolicy)
	policy.SetNamespace(gateway.Namespace)
	policy.SetName(s.authPolicy(gateway))
	err := r.Child(ctx, policy)
	if err != nil {
		if meta.IsNoMatchError(err) {
			return nil
		}
		return client.IgnoreNotFound(err)
	}
	s.Routes, err = tenancy.ModelRoutes(ctx, r, gateway)
	return err
}

// authPolicy is the name of the policy that asks everybody at a gateway for credentials.
func (s *Seen) authPolicy(gateway types.NamespacedName) string {
	isDefault := gateway == types.NamespacedName{Namespace: s.GatewayNamespace, Name: s.GatewayName}
	return naming.GatewayAuthPolicy(gateway.Name, isDefault)
}

// newest finds the Secret with the newest pass of a tenant. Before there is one, it is a name that no Secret has: who checks
// requests then is refused by the tenant's service, and refuses them.
func newest(ctx context.Context, r engine.Reader, tenant string) (string, error) {
	name := naming.OfTenant("maas-api-pass", tenant)
	home, err := tenancy.KuadrantHome(ctx, r)
	if err != nil || home == "" {
		return name, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	ofTenant := engine.MatchingFunc(func(obj client.Object) bool { return obj.GetLabels()[naming.LabelTenantName] == tenant })
	if err := r.List(ctx, list, client.InNamespace(home), client.HasLabels{naming.LabelPass}, ofTenant); err != nil {
		return name, err
	}
	var best int64
	var made metav1.Time
	for i := range list.Items {
		s := &list.Items[i]
		period, err := strconv.ParseInt(s.Labels[naming.LabelPass], 10, 64)
		if err != nil || s.Labels[naming.LabelTenantName] != tenant || s.DeletionTimestamp != nil || period < best || period == best && s.CreationTimestamp.Before(&made) {
			continue
		}
		name, best, made = s.Name, period, s.CreationTimestamp
	}
	return name, nil
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
	if seen.Tenant == nil {
		return engine.Plan{KeepChildren: len(seen.Routes) > 0} // nobody else would check requests for them
	}
	if seen.Enforcement.Mode != tenancy.Kuadrant {
		return engine.Plan{KeepChildren: seen.Enforcement.Switching}
	}
	if p := seen.Enforcement.Problem(); p != nil {
		return engine.Plan{KeepChildren: true, Problem: p}
	}
	if len(seen.Enforcement.Missing) > 0 {
		return engine.Plan{KeepChildren: true} // there is nothing that could be made
	}
	auth := kuadrant.Auth{
		Namespace: g.Namespace, Gateway: g.Name, Name: seen.authPolicy(client.ObjectKeyFromObject(g)),
		API:      fmt.Sprintf("https://%s.%s.svc.cluster.local:8444", naming.OfTenant("maas-api", seen.Tenant.Name), seen.InfraNamespace),
		Pass:     seen.Pass,
		Audience: seen.Audience, OIDC: seen.Tenant.OIDC, KeyHeader: seen.KeyHeader,
		MetadataTTL: seen.MetadataTTL, AuthorizationTTL: seen.AuthorizationTTL,
	}.Policy()
	deny := kuadrant.Deny(g.Namespace, g.Name, seen.Deny)
	var plan engine.Plan
	for _, policy := range []client.Object{auth, deny} {
		plan.Children = append(plan.Children, engine.Child{Object: policy, Adopt: true, Unmanaged: slices.Contains(seen.Kept, policy.GetName())})
	}
	return plan
}
