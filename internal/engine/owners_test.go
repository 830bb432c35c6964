// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// TestOwners: a child wakes its owner under the one name that it has, also where that is of the cluster and the child is not.
func TestOwners(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Widget"}
	yes := true
	child := func(kind, annotation string) *corev1.ConfigMap {
		out := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "child"}}
		if annotation != "" {
			out.Annotations = map[string]string{AnnotationOwner: annotation}
		} else {
			out.OwnerReferences = []metav1.OwnerReference{{APIVersion: "g/v2", Kind: kind, Name: "one", Controller: &yes}}
		}
		return out
	}
	for _, c := range []struct {
		name       string
		namespaced bool
		child      *corev1.ConfigMap
		want       types.NamespacedName
		ok         bool
	}{
		{"in a namespace", true, child("Widget", ""), types.NamespacedName{Namespace: "ns", Name: "one"}, true},
		{"of the cluster", false, child("Widget", ""), types.NamespacedName{Name: "one"}, true},
		{"another kind", false, child("Gadget", ""), types.NamespacedName{}, false},
		{"elsewhere", true, child("", "Widget.g/other/two"), types.NamespacedName{Namespace: "other", Name: "two"}, true},
	} {
		got, ok := ownerKind{gvk, func() bool { return c.namespaced }}.of(c.child)
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %v, %v", c.name, got, ok)
		}
	}
}
