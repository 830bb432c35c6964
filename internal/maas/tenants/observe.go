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
)

// Kind is the kind AITenant.
type Kind struct{ *Platform }

var (
	_ engine.Kind[*v1alpha1.AITenant, Seen]     = Kind{}
	_ engine.Teardown[*v1alpha1.AITenant, Seen] = Kind{}
)

// DatabaseSecret has the address of the database with the keys.
const DatabaseSecret = "maas-db-config" //nolint:gosec // a name

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
	// Owner is the tenant that the namespace belongs to; empty if none.
	Owner string
	// Labels that other tenants' gateways want otherwise on the namespace of the services than this one's.
	Disagree *disagreement
	// Revoke is the Job that revokes keys, and Keys whether there is a database that may have some.
	Revoke *batchv1.Job
	Keys   bool
	Now    time.Time
}

// gatewayName is the gateway that a tenant asks for.
func (p *Platform) gatewayName(obj *v1alpha1.AITenant) string {
	name := obj.Name
	if name == naming.DefaultTenant {
		name = p.GatewayName
	}
	if obj.Spec.Gateway != nil {
		name = cmp.Or(obj.Spec.Gateway.Name, name)
	}
	return name
}

func (p *Platform) gatewayKey(obj *v1alpha1.AITenant) client.ObjectKey {
	return client.ObjectKey{Namespace: p.GatewayNamespace, Name: p.gatewayName(obj)}
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
	for _, read := range []func(context.Context, engine.Reader, *v1alpha1.AITenant, *Seen) error{k.readPlace, k.readClaim, k.readSettings, k.readEnd} {
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
	claim, err := head(ctx, r, corev1.SchemeGroupVersion.WithKind("ConfigMap"), client.ObjectKey{Namespace: k.TenantNamespace, Name: claimName(seen.Gateway.Key)})
	if claim == nil {
		return err
	}
	seen.Claim = claim
	name := claim.Labels[naming.LabelTenantName]
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "AITenant" {
		name = owner.Name
	}
	seen.Holder, err = k.alive(ctx, r, name)
	return err
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
	secret, err := head(ctx, r, corev1.SchemeGroupVersion.WithKind("Secret"), client.ObjectKey{Namespace: k.InfraNamespace, Name: DatabaseSecret})
	seen.Keys = secret != nil
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
