// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/modelplane/modelplane/internal/engine"
)

// objects answers from a fixed set, as the API server would somebody who may
// not read everything.
type objects struct {
	all    []*unstructured.Unstructured
	refuse []string // resources
}

func (o *objects) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	gvk := obj.GetObjectKind().GroupVersionKind()
	if err := o.refused(gvk); err != nil {
		return err
	}
	for _, u := range o.all {
		if u.GroupVersionKind() == gvk && client.ObjectKeyFromObject(u) == key {
			u.DeepCopyInto(obj.(*unstructured.Unstructured))
			return nil
		}
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return apierrors.NewNotFound(plural.GroupResource(), key.Name)
}

func (o *objects) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	gvk := list.GetObjectKind().GroupVersionKind()
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	if err := o.refused(gvk); err != nil {
		return err
	}
	wanted := client.ListOptions{}
	wanted.ApplyOptions(options)
	for _, u := range o.all {
		if u.GroupVersionKind() != gvk || !matches(u, wanted) {
			continue
		}
		switch list := list.(type) {
		case *unstructured.UnstructuredList:
			list.Items = append(list.Items, *u.DeepCopy())
		case *metav1.PartialObjectMetadataList:
			item := metav1.PartialObjectMetadata{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &item); err != nil {
				return err
			}
			list.Items = append(list.Items, item)
		}
	}
	return nil
}

func (o *objects) refused(gvk schema.GroupVersionKind) error {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	if slices.Contains(o.refuse, plural.Resource) {
		return apierrors.NewForbidden(plural.GroupResource(), "", nil)
	}
	return nil
}

func matches(u *unstructured.Unstructured, o client.ListOptions) bool {
	if o.Namespace != "" && o.Namespace != u.GetNamespace() {
		return false
	}
	if o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(u.GetLabels())) {
		return false
	}
	if o.FieldSelector == nil {
		return true
	}
	typ, _, _ := unstructured.NestedString(u.Object, "type")
	return o.FieldSelector.Matches(fields.Set{"type": typ, "metadata.name": u.GetName()})
}

// served is what a cluster with these controllers serves, except some groups.
func served(scheme *runtime.Scheme, controllers []engine.Controller, without []string) []*restmapper.APIGroupResources {
	short := map[string][]string{"InferenceService": {"isvc"}}
	groups := map[string]*restmapper.APIGroupResources{}
	add := func(obj client.Object) {
		gvk, err := apiutil.GVKForObject(obj, scheme)
		if err != nil {
			panic(err)
		}
		if slices.Contains(without, gvk.Group) {
			return
		}
		g := groups[gvk.Group]
		if g == nil {
			g = &restmapper.APIGroupResources{Group: metav1.APIGroup{Name: gvk.Group}, VersionedResources: map[string][]metav1.APIResource{}}
			groups[gvk.Group] = g
		}
		plural, singular := meta.UnsafeGuessKindToResource(gvk)
		g.VersionedResources[gvk.Version] = append(g.VersionedResources[gvk.Version], metav1.APIResource{
			Name: plural.Resource, SingularName: singular.Resource, Kind: gvk.Kind, Namespaced: true, ShortNames: short[gvk.Kind],
		})
	}
	for _, c := range controllers {
		add(c.Object())
		for _, k := range c.Spec().Children {
			add(k.Object)
		}
	}
	var out []*restmapper.APIGroupResources
	for _, g := range groups {
		out = append(out, g)
	}
	return out
}
