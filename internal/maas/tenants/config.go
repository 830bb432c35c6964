// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/naming"
)

// annotationBootstrapped of a Config says that another controller has made the first tenant; bootstrapped is the ConfigMap that
// remembers it here. Who then deletes the tenant does not get it again.
const (
	annotationBootstrapped = "maas.opendatahub.io/default-aitenant-bootstrapped"
	bootstrapped           = "maas-default-aitenant-bootstrapped"
)

// Configs is the kind Config.
type Configs struct{ *Platform }

// ConfigSeen is everything that the decision about the Config depends on.
type ConfigSeen struct {
	// Done tells whether the first tenant was made once.
	Done bool
	// Former is the Tenant whose settings the first tenant takes over.
	Former *v1alpha1.Tenant
	// Infra is the namespace of the services, nil while there is none, and Labels what the gateways ask of it.
	Infra  *metav1.PartialObjectMetadata
	Labels map[string]wanted
}

// Observe implements engine.Kind.
func (k Configs) Observe(ctx context.Context, r engine.Reader, obj *v1alpha1.Config) (ConfigSeen, error) {
	seen := ConfigSeen{}
	if obj.Name != v1alpha1.ConfigName {
		return seen, nil
	}
	marker, err := head(ctx, r, corev1.SchemeGroupVersion.WithKind("ConfigMap"), client.ObjectKey{Namespace: k.TenantNamespace, Name: bootstrapped})
	if err != nil {
		return seen, err
	}
	seen.Done = obj.Annotations[annotationBootstrapped] == "true" || marker != nil && marker.Labels[engine.LabelOwner] == string(obj.UID)
	if !seen.Done {
		former := &v1alpha1.Tenant{}
		err := r.Get(ctx, client.ObjectKey{Namespace: k.SubscriptionNamespace, Name: v1alpha1.TenantName}, former)
		if err != nil && !gateways.Absent(err) {
			return seen, err
		}
		if err == nil {
			seen.Former = former
		}
	}
	if seen.Infra, err = head(ctx, r, corev1.SchemeGroupVersion.WithKind("Namespace"), client.ObjectKey{Name: k.InfraNamespace}); err != nil {
		return seen, err
	}
	seen.Labels, err = k.agreed(ctx, r)
	return seen, err
}

// Plan implements engine.Kind.
func (k Configs) Plan(obj *v1alpha1.Config, seen ConfigSeen) engine.Plan {
	if obj.Name != v1alpha1.ConfigName {
		return engine.Plan{}
	}
	plan := engine.Plan{Children: []engine.Child{
		{Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: k.TenantNamespace}}, CreateOnly: true, Retain: true},
	}}
	if seen.Infra == nil || len(seen.Labels) > 0 || seen.Infra.Labels[engine.LabelOwner] != "" {
		plan.Children = append(plan.Children, engine.Child{Object: k.infra(seen.Labels), Adopt: true, Retain: true})
	}
	if !seen.Done {
		plan.Children = append(plan.Children, engine.Child{Object: k.first(seen.Former), CreateOnly: true, Retain: true, Stage: 1})
	}
	if obj.Annotations[annotationBootstrapped] != "true" {
		marker := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.TenantNamespace, Name: bootstrapped, Labels: map[string]string{naming.LabelManagedBy: naming.ManagedBy}}}
		plan.Children = append(plan.Children, engine.Child{Object: marker, Adopt: true, Stage: 2})
	}
	return plan
}

// infra is the namespace of the services, with the labels that gateways ask for. It is not ours alone.
func (k Configs) infra(labels map[string]wanted) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: k.InfraNamespace}}
	if len(labels) == 0 {
		return ns
	}
	ns.Labels, ns.Annotations = map[string]string{}, map[string]string{naming.AnnotationSelectorLabels: ownership(labels)}
	for key, w := range labels {
		ns.Labels[key] = w.Value
	}
	return ns
}

// first is the tenant of those who have no other, with what the former Tenant said of it.
func (k Configs) first(former *v1alpha1.Tenant) *v1alpha1.AITenant {
	t := &v1alpha1.AITenant{ObjectMeta: metav1.ObjectMeta{Namespace: k.TenantNamespace, Name: naming.DefaultTenant, Labels: map[string]string{naming.LabelManagedBy: naming.ManagedBy}}}
	t.Spec.Gateway = &v1alpha1.AITenantGateway{Name: k.GatewayName}
	if former != nil {
		if ref := former.Spec.GatewayRef; ref != nil && ref.Name != "" {
			t.Spec.Gateway.Name = ref.Name
		}
		t.Spec.OIDC = former.Spec.ExternalOIDC.DeepCopy()
	}
	return t
}

// formers is the former kind Tenant, of which nothing is made: it is read once, and goes.
type formers struct{}

// Observe implements engine.Kind.
func (formers) Observe(context.Context, engine.Reader, *v1alpha1.Tenant) (struct{}, error) {
	return struct{}{}, nil
}

// Plan implements engine.Kind.
func (formers) Plan(*v1alpha1.Tenant, struct{}) engine.Plan { return engine.Plan{NoFinalizer: true} }
