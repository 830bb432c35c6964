// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"cmp"
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// Kind is the kind AITenant.
type Kind struct{ *Platform }

var (
	_ engine.Kind[*v1alpha1.AITenant, Seen]     = Kind{}
	_ engine.Teardown[*v1alpha1.AITenant, Seen] = Kind{}
)

// DatabaseSecret has the address of the database with the keys, below databaseKey.
const (
	DatabaseSecret = "maas-db-config"    //nolint:gosec // a name
	databaseKey    = "DB_CONNECTION_URL" //nolint:gosec // a name
)

// Seen is everything that the decision about a tenant depends on.
type Seen struct {
	Gateway gateways.Seen
	// Namespace is the tenant's own, nil while there is none, and Config the settings there.
	Namespace *metav1.PartialObjectMetadata
	Config    *v1alpha1.MaasTenantConfig
	// Former is the Tenant that the settings were in before.
	Former *v1alpha1.Tenant
	// Holder is the tenant that has claimed the gateway; empty if nobody has. Claim is what it was claimed with.
	Holder string
	Claim  *metav1.PartialObjectMetadata
	// Held is the gateway through which models are reached until requests are checked at the one that is asked for; nil if it is none.
	Held *gateways.Seen
	// Others are the tenant's claims on other gateways than the one that is asked for.
	Others []otherClaim
	// Owner is the tenant that the namespace belongs to; empty if none.
	Owner string
	// Labels that other tenants' gateways want otherwise on the namespace of the services than this one's.
	Disagree *disagreement
	// Revoke is the Job that revokes keys, and Keys whether there is the address of a database that may have some.
	Revoke *batchv1.Job
	Keys   bool
	// Routes lead to models through the gateway; they are looked for when the tenant goes.
	Routes []string
	Now    time.Time
}

// otherClaim is one on a gateway that is not asked for any more, with the routes that lead to models through it.
type otherClaim struct {
	tenancy.Claim
	Routes []string
}

// gatewayKey is the gateway that a tenant asks for.
func (p *Platform) gatewayKey(obj *v1alpha1.AITenant) client.ObjectKey {
	return tenancy.Wanted(obj, p.Settings)
}

func (p *Platform) namespaceOf(obj *v1alpha1.AITenant) string {
	return naming.TenantNamespace(obj.Name, p.SubscriptionNamespace)
}

// Observe implements engine.Kind.
func (k Kind) Observe(ctx context.Context, r engine.Reader, obj *v1alpha1.AITenant) (Seen, error) {
	seen := Seen{Now: k.Now()}
	if obj.Namespace != k.TenantNamespace {
		return seen, nil
	}
	var err error
	if seen.Gateway, err = gateways.Observe(ctx, r, k.gatewayKey(obj)); err != nil {
		return seen, err
	}
	for _, read := range []func(context.Context, engine.Reader, *v1alpha1.AITenant, *Seen) error{k.readPlace, k.readClaim, k.readOthers, k.readSettings, k.readEnd} {
		if err := read(ctx, r, obj, &seen); err != nil {
			return seen, err
		}
	}
	seen.Disagree, err = k.disagreement(ctx, r, obj, seen.Gateway)
	return seen, err
}

// readPlace looks at the namespace of the tenant, and whose it is.
func (k Kind) readPlace(ctx context.Context, r engine.Reader, obj *v1alpha1.AITenant, seen *Seen) error {
	ns, err := head(ctx, r, corev1.SchemeGroupVersion.WithKind("Namespace"), client.ObjectKey{Name: k.namespaceOf(obj)})
	if ns == nil {
		return err
	}
	seen.Namespace = ns
	seen.Owner, err = k.alive(ctx, r, cmp.Or(ns.Labels[naming.LabelTenant], ns.Labels[naming.LabelTenantName]))
	return err
}

// readClaim looks at who has claimed the gateway.
func (k Kind) readClaim(ctx context.Context, r engine.Reader, _ *v1alpha1.AITenant, seen *Seen) error {
	claim, err := head(ctx, r, corev1.SchemeGroupVersion.WithKind("ConfigMap"), client.ObjectKey{Namespace: k.TenantNamespace, Name: tenancy.ClaimName(seen.Gateway.Key)})
	if claim == nil {
		return err
	}
	seen.Claim = claim
	seen.Holder, err = k.alive(ctx, r, tenancy.ClaimedBy(claim))
	return err
}

// readOthers looks at gateways that the tenant had before, and at what leads to models there.
func (k Kind) readOthers(ctx context.Context, r engine.Reader, obj *v1alpha1.AITenant, seen *Seen) error {
	claims, err := tenancy.ObserveClaims(ctx, r, k.Settings)
	if err != nil {
		return err
	}
	for _, c := range claims.Of(obj.Name) {
		if c.Gateway == seen.Gateway.Key {
			continue
		}
		other := otherClaim{Claim: c}
		if other.Routes, err = tenancy.ModelRoutes(ctx, r, c.Gateway); err != nil {
			return err
		}
		seen.Others = append(seen.Others, other)
	}
	if held := claims.Held(obj, k.Settings); held.Name != "" {
		at, err := gateways.Observe(ctx, r, held)
		if err != nil {
			return err
		}
		seen.Held = &at
	}
	return nil
}

// alive is the name of a tenant if there is such a one: what one that is gone has left belongs to nobody.
func (k Kind) alive(ctx context.Context, r engine.Reader, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	err := r.Get(ctx, client.ObjectKey{Namespace: k.TenantNamespace, Name: name}, &v1alpha1.AITenant{})
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return name, nil
}

// readSettings looks at the settings of the tenant, and at those of the former kind.
func (k Kind) readSettings(ctx context.Context, r engine.Reader, obj *v1alpha1.AITenant, seen *Seen) error {
	namespace := k.namespaceOf(obj)
	config := &v1alpha1.MaasTenantConfig{}
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.MaasTenantConfigName}, config)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil {
		seen.Config = config
	}
	former := &v1alpha1.Tenant{}
	err = r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.TenantName}, former)
	if gateways.Absent(err) {
		return nil
	}
	if err == nil {
		seen.Former = former
	}
	return err
}

// readEnd looks at what the end of a tenant waits for.
func (k Kind) readEnd(ctx context.Context, r engine.Reader, obj *v1alpha1.AITenant, seen *Seen) error {
	if obj.DeletionTimestamp == nil {
		return nil
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: k.InfraNamespace, Name: jobName(obj.Name)}}
	err := r.Child(ctx, job)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil {
		seen.Revoke = job
	}
	secret := &corev1.Secret{}
	err = r.GetUncached(ctx, client.ObjectKey{Namespace: k.InfraNamespace, Name: DatabaseSecret}, secret)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	seen.Keys = len(secret.Data[databaseKey]) > 0 || secret.StringData[databaseKey] != ""
	seen.Routes, err = tenancy.ModelRoutes(ctx, r, seen.Gateway.Key)
	return err
}

// head reads the metadata of an object; nil if there is none.
func head(ctx context.Context, r engine.Reader, gvk schema.GroupVersionKind, key client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
	out := &metav1.PartialObjectMetadata{}
	out.SetGroupVersionKind(gvk)
	if err := r.Get(ctx, key, out); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return out, nil
}
