// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// catalogSuffix is that of the catalog which releases of the known operator ran beside each registry, before there was one for all.
const catalogSuffix = "-catalog"

// readCatalog finds what is left of it: what the registry still controls, and nothing else.
func (o *observer) readCatalog(ctx context.Context) error {
	name := o.registry.Name + catalogSuffix
	d := &appsv1.Deployment{}
	found, err := platform.Exists(o.Get(ctx, o.key(name), d))
	if err != nil {
		return err
	}
	if found && o.leftFor(d) {
		o.seen.Catalog = append(o.seen.Catalog, headOf(appsv1.SchemeGroupVersion.WithKind("Deployment"), &d.ObjectMeta))
	}
	for _, one := range []struct {
		gvk    schema.GroupVersionKind
		object string
	}{
		{corev1.SchemeGroupVersion.WithKind("Service"), name},
		{networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), name + policySuffix},
		{platform.Route, name + httpsSuffix},
	} {
		if one.gvk == platform.Route && !o.seen.OpenShift {
			continue
		}
		head, err := o.head(ctx, one.gvk, o.registry.Namespace, one.object)
		if err != nil {
			return err
		}
		if head != nil && o.leftFor(head) {
			o.seen.Catalog = append(o.seen.Catalog, headOf(one.gvk, &head.ObjectMeta))
		}
	}
	return nil
}

// leftFor tells whether another operator left an object for this registry.
func (o *observer) leftFor(obj metav1.Object) bool {
	return metav1.IsControlledBy(obj, o.registry) && obj.GetLabels()[engine.LabelOwner] == "" && obj.GetDeletionTimestamp() == nil
}

// headOf says which very object is meant.
func headOf(gvk schema.GroupVersionKind, of *metav1.ObjectMeta) *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name, UID: of.UID}}
	out.SetGroupVersionKind(gvk)
	return out
}

// formerCatalog goes: it holds no data, and the Catalog of the platform has taken its place.
func (p *planner) formerCatalog() []engine.Child {
	var out []engine.Child
	for _, head := range p.seen.Catalog {
		out = append(out, engine.Child{Object: head, Delete: true})
	}
	return out
}
