// SPDX-License-Identifier: Apache-2.0

package domaintest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/modelplane/modelplane/internal/engine"
)

// Delete deletes objects as a person would.
func (b *Bench) Delete(t testing.TB, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		if err := b.C.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
			t.Fatalf("delete %T %s: %v", o, o.GetName(), err)
		}
	}
}

// Ended is nil when objects are gone and nothing of these controllers is left in
// the test's namespace, or in others that are named, which the garbage collector
// would not remove after them. It does not run here.
func (b *Bench) Ended(objs []client.Object, controllers []engine.Controller, namespaces ...string) error {
	for _, o := range objs {
		err := b.C.Get(context.Background(), client.ObjectKeyFromObject(o), o)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil {
			return fmt.Errorf("%T %s is still there, with the finalizers %v", o, o.GetName(), o.GetFinalizers())
		}
	}
	for _, c := range controllers {
		for _, k := range c.Spec().Children {
			if err := b.nothingLeft(k, append(namespaces, b.NS)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Bench) nothingLeft(k engine.ChildKind, namespaces []string) error {
	gvk, err := apiutil.GVKForObject(k.Object, b.C.Scheme())
	if err != nil {
		return err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := b.C.List(context.Background(), list, client.HasLabels{engine.LabelOwner}); err != nil {
		if meta.IsNoMatchError(err) {
			return nil
		}
		return client.IgnoreNotFound(err)
	}
	for _, o := range list.Items {
		ours := o.Namespace == "" || slices.Contains(namespaces, o.Namespace)
		collected := metav1.GetControllerOf(&o) != nil || o.Annotations[engine.AnnotationRetained] != ""
		if ours && !collected {
			return fmt.Errorf("%s %s/%s is left behind", gvk.Kind, o.Namespace, o.Name)
		}
	}
	return nil
}
