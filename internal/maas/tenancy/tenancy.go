// SPDX-License-Identifier: Apache-2.0

// Package tenancy tells which tenant a namespace belongs to, through which gateway the tenant is reached, and who enforces its
// policies. It is the one place where this is decided. It reads for other rooms, and plans nothing.
package tenancy

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/settings"
)

// Tenant is one tenant as far as others must know it.
type Tenant struct {
	Name      string
	Namespace string
	Gateway   types.NamespacedName
	OIDC      *v1alpha1.OIDCConfig
}

// IsDefault tells whether objects of the tenant have no suffix.
func (t Tenant) IsDefault() bool { return t.Name == naming.DefaultTenant }

// Tenants are all of the cluster, the default one first. That one is always there, also before its AITenant is.
type Tenants []Tenant

// Inputs are what is read here.
func Inputs() []engine.Input {
	return []engine.Input{
		{Object: &v1alpha1.AITenant{}},
		{Object: &v1alpha1.MaasTenantConfig{}},
		{Object: &corev1.Namespace{}, MetadataOnly: true},
	}
}

// Observe reads the tenants.
func Observe(ctx context.Context, r engine.Reader, s settings.Settings) (Tenants, error) {
	list := &v1alpha1.AITenantList{}
	if err := r.List(ctx, list, client.InNamespace(s.TenantNamespace)); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.AITenant) int { return cmp.Compare(a.Name, b.Name) })
	out := Tenants{{
		Name: naming.DefaultTenant, Namespace: s.SubscriptionNamespace,
		Gateway: types.NamespacedName{Namespace: s.GatewayNamespace, Name: s.GatewayName},
	}}
	for i := range list.Items {
		t := of(&list.Items[i], s)
		if t.IsDefault() {
			out[0] = t
		} else if !s.OnlyDefault {
			out = append(out, t)
		}
	}
	return out, nil
}

// of is a tenant as its AITenant says, or as it will say.
func of(ai *v1alpha1.AITenant, s settings.Settings) Tenant {
	t := Tenant{Name: ai.Name, Namespace: naming.TenantNamespace(ai.Name, s.SubscriptionNamespace), OIDC: ai.Spec.OIDC}
	t.Namespace = cmp.Or(ai.Status.TenantNamespace, t.Namespace)
	t.Gateway = Wanted(ai, s)
	if ref := ai.Status.GatewayRef; ref != nil && ref.Name != "" {
		t.Gateway = types.NamespacedName{Namespace: cmp.Or(ref.Namespace, s.GatewayNamespace), Name: ref.Name}
	}
	return t
}

// Default is the default tenant.
func (ts Tenants) Default() Tenant { return ts[0] }

// Named finds a tenant by its name.
func (ts Tenants) Named(name string) (Tenant, bool) {
	i := slices.IndexFunc(ts, func(t Tenant) bool { return t.Name == name })
	if i < 0 {
		return Tenant{}, false
	}
	return ts[i], true
}

// At finds the tenant that a gateway belongs to. A gateway belongs to the one that has claimed it; where none has and two ask for
// it, the default one has it, and then the first by name.
func (ts Tenants) At(gateway types.NamespacedName, claims Claims) (Tenant, bool) {
	if claim, found := claims.On(gateway); found {
		return ts.Named(claim.Tenant)
	}
	i := slices.IndexFunc(ts, func(t Tenant) bool { return t.Gateway == gateway })
	if i < 0 {
		return Tenant{}, false
	}
	return ts[i], true
}

// Of finds the tenant that a namespace belongs to: by what its AITenant says, or by the namespace's labels.
func (ts Tenants) Of(ctx context.Context, r engine.Reader, namespace string) (Tenant, bool, error) {
	if i := slices.IndexFunc(ts, func(t Tenant) bool { return t.Namespace == namespace }); i >= 0 {
		return ts[i], true, nil
	}
	if len(ts) == 1 {
		return Tenant{}, false, nil
	}
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.Get(ctx, types.NamespacedName{Name: namespace}, ns); err != nil {
		return Tenant{}, false, client.IgnoreNotFound(err)
	}
	name := ns.Labels[naming.LabelTenant]
	if ns.Labels[naming.LabelManagedByTenant] == "true" {
		name = cmp.Or(name, ns.Labels[naming.LabelTenantName])
	}
	t, found := ts.Named(name)
	return t, found, nil
}
