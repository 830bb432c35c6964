// SPDX-License-Identifier: Apache-2.0

// Package webhooks refuses objects of Models-as-a-Service that could never work where they are: a tenant outside the namespace of
// tenants, or on the gateway of another; subscriptions and policies where nobody looks after them; and models of tenants that do
// not exist. It reads other objects, and changes none.
//
// What it misses, because something else came at the same moment, is told in conditions.
package webhooks

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/settings"
)

// rules of one platform.
type rules struct{ current func() settings.Settings }

type validate = func(ctx context.Context, r admission.Reader, old, obj client.Object) error

// Rules adds the rules to the kinds of the domain. The settings are asked for when an object comes.
func Rules(kinds []admission.Kind, current func() settings.Settings) []admission.Kind {
	r := rules{current}
	by := map[string]validate{
		"AITenant": r.tenant, "MaaSSubscription": r.placed, "MaaSAuthPolicy": r.placed, "MaaSModelRef": r.model,
	}
	for i, k := range kinds {
		if rule, has := by[k.GVK.Kind]; has && k.GVK.Group == v1alpha1.GroupVersion.Group {
			kinds[i].Validate = asked(k.Validate, rule)
		}
		if k.GVK.Kind == "Config" && k.GVK.Group == v1alpha1.GroupVersion.Group {
			kinds[i].Validate = warned(k.Validate)
		}
	}
	return kinds
}

// asked asks one rule after those that the kind has. Without a cluster an object that others must be there for is not wrong: they
// are only not at hand.
func asked(first func(context.Context, client.Object, client.Object) ([]string, error), rule validate) func(context.Context, client.Object, client.Object) ([]string, error) {
	return func(ctx context.Context, old, obj client.Object) (warnings []string, err error) {
		if first != nil {
			if warnings, err = first(ctx, old, obj); err != nil {
				return warnings, err
			}
		}
		reader := admission.ReaderFrom(ctx)
		if _, offline := reader.(*engine.World); reader == nil || offline || obj.GetDeletionTimestamp() != nil {
			return warnings, nil
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // a cache that is filled takes none of it
		defer cancel()
		return warnings, rule(ctx, reader, old, obj)
	}
}

// warned tells of fields of a Config that are kept for other tools, and that nothing here reads.
func warned(first func(context.Context, client.Object, client.Object) ([]string, error)) func(context.Context, client.Object, client.Object) ([]string, error) {
	return func(ctx context.Context, old, obj client.Object) (warnings []string, err error) {
		if first != nil {
			warnings, err = first(ctx, old, obj)
		}
		config, ok := obj.(*v1alpha1.Config)
		if !ok || err != nil {
			return warnings, err
		}
		if every := config.Spec.LimitadorScrapeInterval; every != "" && every != defaultScrape {
			warnings = append(warnings, "spec.limitadorScrapeInterval: nothing reads it; set the interval in the ServiceMonitor or PodMonitor of Limitador")
		}
		if config.Spec.UsageLogging != nil && *config.Spec.UsageLogging {
			warnings = append(warnings, "spec.usageLogging: nothing reads it; what was used is told by maas-api at /v1/usage and by metrics")
		}
		return warnings, nil
	}
}

// defaultScrape is what the API server fills in where nothing is said.
const defaultScrape = "30s"

// tenant refuses a tenant that is in the wrong namespace, or asks for the gateway of another.
func (r rules) tenant(ctx context.Context, reader admission.Reader, old, obj client.Object) error {
	t, ok := obj.(*v1alpha1.AITenant)
	s := r.current()
	if !ok {
		return nil
	}
	if t.Namespace != s.TenantNamespace {
		if old != nil {
			return nil // it is there already, and its condition says so
		}
		return field.Invalid(field.NewPath("metadata", "namespace"), t.Namespace, fmt.Sprintf("AITenant must be created in namespace %q", s.TenantNamespace))
	}
	others := &v1alpha1.AITenantList{}
	if err := reader.List(ctx, others, client.InNamespace(s.TenantNamespace)); err != nil {
		return fmt.Errorf("cannot check which gateways other AITenants have: %w", err)
	}
	mine := gatewayOf(t, s)
	if was, ok := old.(*v1alpha1.AITenant); ok && was != nil && gatewayOf(was, s) == mine {
		return nil // an update that has nothing to do with it
	}
	for i := range others.Items {
		if o := &others.Items[i]; o.Name != t.Name && o.DeletionTimestamp == nil && gatewayOf(o, s) == mine {
			return field.Invalid(field.NewPath("spec", "gateway", "name"), mine, fmt.Sprintf("Gateway %s/%s is already used by AITenant %s/%s", s.GatewayNamespace, mine, o.Namespace, o.Name))
		}
	}
	return nil
}

// gatewayOf is the gateway that a tenant asks for.
func gatewayOf(t *v1alpha1.AITenant, s settings.Settings) string {
	name := t.Name
	if name == naming.DefaultTenant {
		name = s.GatewayName
	}
	if g := t.Spec.Gateway; g != nil {
		name = cmp.Or(g.Name, name)
	}
	return name
}

// placed refuses new subscriptions and policies where there are no settings of a tenant.
func (rules) placed(ctx context.Context, reader admission.Reader, old, obj client.Object) error {
	if old != nil {
		return nil
	}
	namespace := obj.GetNamespace()
	for _, there := range []client.Object{&v1alpha1.MaasTenantConfig{}, &v1alpha1.Tenant{}} {
		err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.MaasTenantConfigName}, there)
		if err == nil {
			return nil
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot check whether namespace %q belongs to a tenant: %w", namespace, err)
		}
	}
	return field.Forbidden(field.NewPath("metadata", "namespace"),
		fmt.Sprintf("namespace %q is not enabled for MaaS tenant resources. Create a MaasTenantConfig CR in it, or use the namespace of an AITenant", namespace))
}

// model refuses a model of a tenant that does not exist.
func (r rules) model(ctx context.Context, reader admission.Reader, old, obj client.Object) error {
	ref, ok := obj.(*v1alpha1.MaaSModelRef)
	if !ok || ref.Spec.TenantRef == "" {
		return nil
	}
	if was, ok := old.(*v1alpha1.MaaSModelRef); ok && was != nil && was.Spec.TenantRef == ref.Spec.TenantRef {
		return nil
	}
	s := r.current()
	err := reader.Get(ctx, client.ObjectKey{Namespace: s.TenantNamespace, Name: ref.Spec.TenantRef}, &v1alpha1.AITenant{})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot check whether the AITenant %s exists: %w", ref.Spec.TenantRef, err)
	}
	if err != nil {
		return field.Invalid(field.NewPath("spec", "tenantRef"), ref.Spec.TenantRef, fmt.Sprintf("AITenant %s does not exist in namespace %s. Create it first", ref.Spec.TenantRef, s.TenantNamespace))
	}
	return nil
}
