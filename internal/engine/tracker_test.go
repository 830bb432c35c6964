// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestTrackerWakesExactlyThoseConcerned(t *testing.T) {
	gk := schema.GroupKind{Group: "g", Kind: "Runtime"}
	who := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "n", Name: name} }
	object := func(ns, name string, labels map[string]string) client.Object {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}}
	}
	tr := newTracker()
	tr.add(who("byName"), need{gk: gk, namespace: "n", name: "a"}, nil)
	tr.add(who("byNamespace"), need{gk: gk, namespace: "n"}, nil)
	tr.add(who("everything"), need{gk: gk}, nil)
	tr.add(who("matching"), need{gk: gk, namespace: "n"}, func(o client.Object) bool { return o.GetLabels()["format"] == "onnx" })
	tr.add(who("api"), need{gk: gk, api: true}, nil)

	tr.add(who("indexed"), need{gk: gk, namespace: "n", name: "tf", indexed: true}, nil)
	tr.add(who("indexedAnywhere"), need{gk: gk, name: "tf", indexed: true}, nil)
	byFormat := func(o client.Object) []string { return []string{o.GetLabels()["format"]} }

	woken := func(states ...client.Object) []string {
		var out []string
		for w := range tr.concerned(gk, byFormat, states...) {
			out = append(out, w.Name)
		}
		slices.Sort(out)
		return out
	}
	onnx, tf := map[string]string{"format": "onnx"}, map[string]string{"format": "tf"}
	for _, tc := range []struct {
		name   string
		states []client.Object
		want   []string
	}{
		{"by name", []client.Object{object("n", "a", nil)}, []string{"byName", "byNamespace", "everything"}},
		{"another name", []client.Object{object("n", "b", nil)}, []string{"byNamespace", "everything"}},
		{"another namespace", []client.Object{object("m", "a", nil)}, []string{"everything"}},
		{"matching now", []client.Object{object("n", "b", nil), object("n", "b", onnx)}, []string{"byNamespace", "everything", "matching"}},
		{"matched before", []client.Object{object("n", "b", onnx), object("n", "b", nil)}, []string{"byNamespace", "everything", "matching"}},
		{"in the index", []client.Object{object("n", "b", tf)}, []string{"byNamespace", "everything", "indexed", "indexedAnywhere"}},
		{"was in the index", []client.Object{object("m", "b", tf), object("m", "b", nil)}, []string{"everything", "indexedAnywhere"}},
		{"a name like a value", []client.Object{object("n", "tf", nil)}, []string{"byNamespace", "everything"}},
	} {
		if diff := cmp.Diff(tc.want, woken(tc.states...)); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
	tr.add(who("ofAnother"), need{gk: schema.GroupKind{Group: "g", Kind: "Other"}, api: true}, nil)
	if got := tr.concernedByAPI(gk); len(got) != 7 || slices.Contains(got, who("ofAnother")) {
		t.Errorf("concerned by the API: %v", got)
	}
	tr.replace(who("ofAnother"), nil)

	tr.replace(who("byName"), map[need]func(client.Object) bool{{gk: gk, namespace: "n", name: "z"}: nil})
	if diff := cmp.Diff([]string{"byNamespace", "everything"}, woken(object("n", "a", nil))); diff != "" {
		t.Errorf("an old need still wakes: %s", diff)
	}
	for _, name := range []string{"byName", "byNamespace", "everything", "matching", "api", "indexed", "indexedAnywhere"} {
		tr.replace(who(name), nil)
	}
	if len(tr.byNeed) != 0 || tr.size() != 0 {
		t.Errorf("something is left: %v", tr.byNeed)
	}
}
