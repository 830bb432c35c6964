// SPDX-License-Identifier: Apache-2.0

package external

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	inferencev1alpha1 "github.com/modelplane/modelplane/api/inference/v1alpha1"
	maasv1alpha1 "github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/gateways"
)

// kindExternalModel is how MaaSModelRefs name models of both groups.
const kindExternalModel = "ExternalModel"

// doorsOf are the gateways that a model is reached through: those of the tenants that its MaaSModelRefs name, else that of the
// tenant of the namespace, else that of the platform.
func (s *Settings) doorsOf(ctx context.Context, r engine.Reader, namespace, name string) ([]gateways.Seen, error) {
	refs := &maasv1alpha1.MaaSModelRefList{}
	its := engine.MatchingFunc(func(obj client.Object) bool {
		ref, ok := obj.(*maasv1alpha1.MaaSModelRef)
		return ok && ref.Spec.ModelRef.Kind == kindExternalModel && ref.Spec.ModelRef.Name == name
	})
	if err := r.List(ctx, refs, client.InNamespace(namespace), its); err != nil {
		return nil, err
	}
	tenants := []string{}
	for i := range refs.Items {
		if its(&refs.Items[i]) {
			tenants = append(tenants, refs.Items[i].Spec.TenantRef)
		}
	}
	if len(tenants) == 0 {
		tenants = append(tenants, "")
	}
	slices.Sort(tenants)
	var out []gateways.Seen
	for _, tenant := range slices.Compact(tenants) {
		key, err := s.gatewayOf(ctx, r, namespace, tenant)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(g gateways.Seen) bool { return g.Key == key }) {
			continue
		}
		seen, err := gateways.Observe(ctx, r, key)
		if err != nil {
			return nil, err
		}
		out = append(out, seen)
	}
	return out, nil
}

// gatewayOf is the gateway of a tenant, or of the namespace's if none is named.
func (s *Settings) gatewayOf(ctx context.Context, r engine.Reader, namespace, tenant string) (client.ObjectKey, error) {
	if tenant == "" {
		ns := &metav1.PartialObjectMetadata{}
		ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		if err := r.Get(ctx, client.ObjectKey{Name: namespace}, ns); client.IgnoreNotFound(err) != nil {
			return client.ObjectKey{}, err
		}
		tenant = ns.Labels[labelTenant]
	}
	if tenant == "" {
		return s.Gateway, nil
	}
	obj := &maasv1alpha1.AITenant{}
	err := r.Get(ctx, client.ObjectKey{Namespace: s.TenantsNamespace, Name: tenant}, obj)
	if err != nil {
		return s.Gateway, client.IgnoreNotFound(err)
	}
	if ref := obj.Status.GatewayRef; ref != nil && ref.Name != "" {
		return client.ObjectKey{Namespace: cmp.Or(ref.Namespace, s.Gateway.Namespace), Name: ref.Name}, nil
	}
	return s.Gateway, nil
}

// byModelName is the index of models by the name that clients ask for.
func byModelName(obj client.Object) []string { return []string{modelName(obj)} }

func modelName(obj client.Object) string {
	if m, ok := obj.(*inferencev1alpha1.ExternalModel); ok {
		return cmp.Or(m.Spec.ModelName, m.Name)
	}
	return obj.GetName()
}

// claim is another model that clients ask for by the same name.
type claim struct {
	Key   client.ObjectKey
	Group string
	At    metav1.Time
}

// othersOf are the models with a name, of both groups, but this one.
func othersOf(ctx context.Context, r engine.Reader, obj client.Object, group string) ([]claim, error) {
	name := modelName(obj)
	var out []claim
	add := func(o client.Object, of string) {
		if o.GetDeletionTimestamp() == nil && (of != group || client.ObjectKeyFromObject(o) != client.ObjectKeyFromObject(obj)) {
			out = append(out, claim{client.ObjectKeyFromObject(o), of, o.GetCreationTimestamp()})
		}
	}
	current, former := &inferencev1alpha1.ExternalModelList{}, &maasv1alpha1.ExternalModelList{}
	if err := r.List(ctx, current, engine.Indexed(name)); err != nil {
		return nil, err
	}
	if err := r.List(ctx, former, engine.Indexed(name)); err != nil {
		return nil, err
	}
	for i := range current.Items {
		add(&current.Items[i], inferencev1alpha1.GroupVersion.Group)
	}
	for i := range former.Items {
		add(&former.Items[i], maasv1alpha1.GroupVersion.Group)
	}
	return out, nil
}

// taken is the problem of a model whose name an earlier one has: which of them a request by that name meant could not be told.
// A former model of the same name and namespace stands for the same one, and steps aside by itself.
func taken(obj client.Object, group string, others []claim) *engine.Problem {
	mine := claim{client.ObjectKeyFromObject(obj), group, obj.GetCreationTimestamp()}
	first := slices.MinFunc(append(slices.Clone(others), mine), func(a, b claim) int {
		if a.Key == b.Key {
			return cmp.Compare(a.Group, b.Group) // inference goes before maas
		}
		return cmp.Or(a.At.Compare(b.At.Time), cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	if first.Key == mine.Key {
		return nil
	}
	return engine.MustChange("ModelNameConflict", "Clients that ask for %q mean the ExternalModel %s of %s already. Give one of them another name.",
		modelName(obj), first.Key, first.Group)
}
