// SPDX-License-Identifier: Apache-2.0

package external

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	inferencev1alpha1 "github.com/modelplane/modelplane/api/inference/v1alpha1"
	maasv1alpha1 "github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/naming"
)

// kindExternalModel is how MaaSModelRefs name models of both groups.
const kindExternalModel = "ExternalModel"

// doors are the gateways that a model is reached through.
type doors struct {
	Open []gateways.Seen
	// Shut are tenants that have no gateway: there are none of the name, or they are about to go.
	Shut []string
}

// byBackend, byAlias and byPath are values of the index of published models: by the external model behind one, by the name that
// clients ask for one that runs in the cluster, and by the path that leads there.
func byBackend(key client.ObjectKey) string { return "external:" + key.String() }
func byAlias(name string) string            { return "alias:" + name }
func byOwnPath(key client.ObjectKey) string { return "path:" + key.String() }

// published is an index of models by what an external model has in common with them.
func published(obj client.Object) []string {
	ref, ok := obj.(*maasv1alpha1.MaaSModelRef)
	if !ok {
		return nil
	}
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Spec.ModelRef.Name}
	if ref.Spec.ModelRef.Kind == kindExternalModel {
		return []string{byBackend(key)}
	}
	out := []string{byOwnPath(key)}
	if alias := ref.Status.ResolvedModelAlias; alias != "" {
		out = append(out, byAlias(alias))
	}
	return out
}

// doorsOf are the gateways that a model is reached through: those of the tenants that its MaaSModelRefs name, else that of the
// tenant of the namespace, else that of the platform.
func (s *Settings) doorsOf(ctx context.Context, r engine.Reader, key client.ObjectKey) (doors, error) {
	keys, shut, err := s.keysOf(ctx, r, key)
	out := doors{Shut: shut}
	if err != nil {
		return out, err
	}
	for _, k := range keys {
		seen, err := gateways.Observe(ctx, r, k)
		if err != nil {
			return out, err
		}
		out.Open = append(out.Open, seen)
	}
	return out, nil
}

// keysOf are the names of those gateways, and the tenants that have none.
func (s *Settings) keysOf(ctx context.Context, r engine.Reader, model client.ObjectKey) (keys []client.ObjectKey, shut []string, err error) {
	refs := &maasv1alpha1.MaaSModelRefList{}
	if err := r.List(ctx, refs, engine.Indexed(byBackend(model))); err != nil {
		return nil, nil, err
	}
	tenants := []string{}
	for i := range refs.Items {
		tenants = append(tenants, refs.Items[i].Spec.TenantRef)
	}
	if len(tenants) == 0 {
		tenants = append(tenants, "")
	}
	slices.Sort(tenants)
	for _, tenant := range slices.Compact(tenants) {
		if tenant == "" {
			if tenant, err = tenantOf(ctx, r, model.Namespace); err != nil {
				return nil, nil, err
			}
		}
		key, has, err := s.gatewayOf(ctx, r, tenant)
		switch {
		case err != nil:
			return nil, nil, err
		case !has:
			shut = append(shut, tenant)
		case !slices.Contains(keys, key):
			keys = append(keys, key)
		}
	}
	return keys, shut, nil
}

// tenantOf is the tenant of a namespace: the first one where none is named.
func tenantOf(ctx context.Context, r engine.Reader, namespace string) (string, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := r.Get(ctx, client.ObjectKey{Name: namespace}, ns)
	return cmp.Or(ns.Labels[labelTenant], naming.DefaultTenant), client.IgnoreNotFound(err)
}

// gatewayOf is the gateway of a tenant, if it has one: a tenant that is not there, or about to go, has none, so that nothing of it
// is reached through the gateway of another. Where there is no platform of tenants at all, the first one has its gateway anyway.
func (s *Settings) gatewayOf(ctx context.Context, r engine.Reader, tenant string) (client.ObjectKey, bool, error) {
	obj := &maasv1alpha1.AITenant{}
	err := r.Get(ctx, client.ObjectKey{Namespace: s.TenantsNamespace, Name: tenant}, obj)
	if client.IgnoreNotFound(err) != nil {
		return s.Gateway, false, err
	}
	if err != nil {
		if tenant != naming.DefaultTenant {
			return s.Gateway, false, nil
		}
		err := r.Get(ctx, client.ObjectKey{Name: maasv1alpha1.ConfigName}, &maasv1alpha1.Config{})
		return s.Gateway, err != nil, client.IgnoreNotFound(err)
	}
	if obj.DeletionTimestamp != nil {
		return s.Gateway, false, nil
	}
	if ref := obj.Status.GatewayRef; ref != nil && ref.Name != "" {
		return client.ObjectKey{Namespace: cmp.Or(ref.Namespace, s.Gateway.Namespace), Name: ref.Name}, true, nil
	}
	return s.Gateway, tenant == naming.DefaultTenant, nil
}

// byModelName is the index of models by the name that clients ask for.
func byModelName(obj client.Object) []string { return []string{modelName(obj)} }

func modelName(obj client.Object) string {
	if m, ok := obj.(*inferencev1alpha1.ExternalModel); ok {
		return cmp.Or(m.Spec.ModelName, m.Name)
	}
	return obj.GetName()
}

// claim is a model that clients ask for by a name. A current and a former model of the same namespace and name are one, which is
// as old as the older of them: a model that moves to the other group keeps its name.
type claim struct {
	Key client.ObjectKey
	At  metav1.Time
	// What says what it is, in words.
	What string
}

// claims are the external models with a name.
func claims(ctx context.Context, r engine.Reader, name string) ([]claim, error) {
	current, former := &inferencev1alpha1.ExternalModelList{}, &maasv1alpha1.ExternalModelList{}
	if err := r.List(ctx, current, engine.Indexed(name)); err != nil {
		return nil, err
	}
	if err := r.List(ctx, former, engine.Indexed(name)); err != nil {
		return nil, err
	}
	var out []claim
	for i := range current.Items {
		if m := &current.Items[i]; m.DeletionTimestamp == nil {
			out = append(out, claim{client.ObjectKeyFromObject(m), m.CreationTimestamp, "ExternalModel of " + inferencev1alpha1.GroupVersion.Group})
		}
	}
	for i := range former.Items {
		m := &former.Items[i]
		key := client.ObjectKeyFromObject(m)
		if m.DeletionTimestamp != nil {
			continue
		}
		if same := slices.IndexFunc(out, func(c claim) bool { return c.Key == key }); same >= 0 {
			if m.CreationTimestamp.Before(&out[same].At) {
				out[same].At = m.CreationTimestamp
			}
			continue
		}
		stands, err := superseded(ctx, r, key)
		if err != nil {
			return nil, err
		}
		if !stands {
			out = append(out, claim{key, m.CreationTimestamp, "ExternalModel of " + maasv1alpha1.GroupVersion.Group})
		}
	}
	return out, nil
}

// superseded tells whether a former model has moved to the other group, by whatever name clients ask for it there: both would
// be reached at the same path.
func superseded(ctx context.Context, r engine.Reader, key client.ObjectKey) (bool, error) {
	now := &inferencev1alpha1.ExternalModel{}
	err := r.Get(ctx, key, now)
	return err == nil && now.DeletionTimestamp == nil, client.IgnoreNotFound(err)
}

// rivalOf is the model to which the name of this one belongs at one of its gateways, nil if it is its own. Models that run in the
// cluster have the names and paths that follow from their own, and external ones take none of them; among external ones the
// oldest has it. The order is the same for whoever asks.
func (s *Settings) rivalOf(ctx context.Context, r engine.Reader, obj client.Object) (*claim, error) {
	key, name := client.ObjectKeyFromObject(obj), modelName(obj)
	mine, _, err := s.keysOf(ctx, r, key)
	if err != nil {
		return nil, err
	}
	if own, err := runsIn(ctx, r, mine, byOwnPath(key), byAlias(name)); own != nil || err != nil {
		return own, err
	}
	if at, err := s.pathOf(ctx, r, key, name, mine); at != nil || err != nil {
		return at, err
	}
	all, err := claims(ctx, r, name)
	if err != nil {
		return nil, err
	}
	var first *claim
	for i := range all {
		theirs, _, err := s.keysOf(ctx, r, all[i].Key)
		if err != nil {
			return nil, err
		}
		if all[i].Key != key && !share(mine, theirs) {
			continue
		}
		if first == nil || older(all[i], *first) < 0 {
			first = &all[i]
		}
	}
	if first == nil || first.Key == key {
		return nil, nil
	}
	return first, nil
}

func older(a, b claim) int {
	return cmp.Or(a.At.Compare(b.At.Time), cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
}

func share(a, b []client.ObjectKey) bool {
	return slices.ContainsFunc(a, func(k client.ObjectKey) bool { return slices.Contains(b, k) })
}

// runsIn is a published model of the cluster with one of these values, at one of these gateways.
func runsIn(ctx context.Context, r engine.Reader, at []client.ObjectKey, values ...string) (*claim, error) {
	for _, value := range values {
		refs := &maasv1alpha1.MaaSModelRefList{}
		if err := r.List(ctx, refs, engine.Indexed(value)); err != nil {
			return nil, err
		}
		slices.SortFunc(refs.Items, func(a, b maasv1alpha1.MaaSModelRef) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		for i := range refs.Items {
			ref := &refs.Items[i]
			door := client.ObjectKey{Namespace: ref.Status.HTTPRouteGatewayNamespace, Name: ref.Status.HTTPRouteGatewayName}
			if ref.DeletionTimestamp != nil || door.Name != "" && !slices.Contains(at, door) {
				continue
			}
			key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Spec.ModelRef.Name}
			return &claim{Key: key, What: string(ref.Spec.ModelRef.Kind)}, nil
		}
	}
	return nil, nil
}

// pathOf is another model whose path is the name: /namespace/name leads there.
func (s *Settings) pathOf(ctx context.Context, r engine.Reader, own client.ObjectKey, name string, at []client.ObjectKey) (*claim, error) {
	namespace, rest, is := strings.Cut(name, "/")
	key := client.ObjectKey{Namespace: namespace, Name: rest}
	if !is || key == own || strings.Contains(rest, "/") {
		return nil, nil
	}
	if in, err := runsIn(ctx, r, at, byOwnPath(key)); in != nil || err != nil {
		return in, err
	}
	theirs, _, err := s.keysOf(ctx, r, key)
	if err != nil || !share(at, theirs) {
		return nil, err
	}
	for _, there := range []client.Object{&inferencev1alpha1.ExternalModel{}, &maasv1alpha1.ExternalModel{}} {
		err := r.Get(ctx, key, there)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && there.GetDeletionTimestamp() == nil {
			return &claim{Key: key, What: "path of the ExternalModel"}, nil
		}
	}
	return nil, nil
}

// taken is the problem of a model whose name, or path, is another's: which of them a request meant could not be told.
func taken(obj client.Object, by *claim) *engine.Problem {
	if by == nil {
		return nil
	}
	return engine.MustChange("ModelNameConflict", "Clients that ask for %q, or for the path /%s/%s, mean the %s %s already. Give one of them another name.",
		modelName(obj), obj.GetNamespace(), obj.GetName(), by.What, by.Key)
}

// keeps tells whether what leads to a model may stay as it is while nothing can be decided: it hangs on no other gateways than it should.
func keeps(live map[string]*unstructured.Unstructured, open []gateways.Seen) bool {
	if len(open) == 0 {
		return false
	}
	for _, route := range live {
		parents, _, _ := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
		for _, item := range parents {
			ref, _ := item.(map[string]any)
			name, _ := ref["name"].(string)
			namespace, _ := ref["namespace"].(string)
			key := client.ObjectKey{Namespace: cmp.Or(namespace, route.GetNamespace()), Name: name}
			if !slices.Contains(namesOfGateways(open), key) {
				return false
			}
		}
	}
	return true
}
