// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/modelplane/modelplane/internal/engine"
)

// findChildren reads what was made of the object, kind by kind in the order of
// the controller's list. The kinds are asked for at the same time.
func (x *exploration) findChildren(ctx context.Context) []unstructured.Unstructured {
	kinds := x.kind.controller.Spec().Children
	found := make([][]unstructured.Unstructured, len(kinds))
	var wg sync.WaitGroup
	for i, k := range kinds {
		gvk, err := apiutil.GVKForObject(k.Object, x.Scheme)
		if err != nil || x.served(gvk) == nil {
			continue // an optional API that this cluster does not have
		}
		wg.Go(func() { found[i] = x.childrenOf(ctx, gvk) })
	}
	wg.Wait()
	var out []unstructured.Unstructured
	for _, list := range found {
		slices.SortFunc(list, func(a, b unstructured.Unstructured) int {
			return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
		})
		out = append(out, list...)
	}
	return out
}

// childrenOf finds the children of one kind by label, and those that carry none
// because another controller made them, by their owner.
func (x *exploration) childrenOf(ctx context.Context, gvk schema.GroupVersionKind) []unstructured.Unstructured {
	q := query{namespace: x.childNamespace(), labels: labels.SelectorFromSet(labels.Set{engine.LabelOwner: string(x.obj.GetUID())}),
		metadata: private(gvk)}
	out := x.list(ctx, gvk, q)
	if !x.readAll(gvk) {
		return out
	}
	q.labels, q.metadata, q.keep = unlabelled, true, x.controls
	for _, bare := range x.list(ctx, gvk, q) {
		if private(gvk) {
			out = append(out, bare)
			continue
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		if x.get(ctx, client.ObjectKeyFromObject(&bare), u) == present {
			out = append(out, *u)
		}
	}
	return out
}

// childNamespace is where children are; everywhere if they may be in another one.
func (x *exploration) childNamespace() string {
	if x.kind.controller.Spec().FarReaching {
		return ""
	}
	return x.obj.GetNamespace()
}

// controls tells whether the object is the controlling owner.
func (x *exploration) controls(u *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(u)
	return owner != nil && owner.UID == x.obj.GetUID()
}

// private are kinds whose content is nobody's business here.
func private(gvk schema.GroupVersionKind) bool {
	return gvk.Group == "" && (gvk.Kind == "Secret" || gvk.Kind == "ConfigMap")
}

var unlabelled = func() labels.Selector {
	none, err := labels.NewRequirement(engine.LabelOwner, selection.DoesNotExist, nil)
	if err != nil {
		panic(err) // a constant
	}
	return labels.NewSelector().Add(*none)
}()
