// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestCovers(t *testing.T) {
	const owned = `{
	  "f:metadata": {"f:labels": {"f:app": {}}, "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}},
	  "f:spec": {
	    "f:replicas": {},
	    "f:template": {"f:spec": {
	      "f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:name": {}, "f:image": {}, "f:args": {},
	        "f:ports": {"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:name": {}}}}},
	      "f:volumes": {"k:{\"name\":\"v\"}": {".": {}, "f:name": {}, "f:emptyDir": {}}}
	    }},
	    "f:finalizers": {"v:\"a\"": {}}
	  }}`
	for _, tc := range []struct {
		name, intent string
		want         bool
	}{
		{"scalars and labels", `{"metadata":{"name":"x","namespace":"n","labels":{"app":"x"}},"spec":{"replicas":2}}`, true},
		{"owner reference", `{"metadata":{"ownerReferences":[{"uid":"u","name":"o"}]}}`, true},
		{"another owner reference", `{"metadata":{"ownerReferences":[{"uid":"w","name":"o"}]}}`, false},
		{"lost label", `{"metadata":{"labels":{"app":"x","tier":"y"}}}`, false},
		{"lost scalar", `{"spec":{"paused":true}}`, false},
		{"atomic list is a leaf", `{"spec":{"template":{"spec":{"containers":[{"name":"main","args":["a","b"]}]}}}}`, true},
		{"key with a defaulted part", `{"spec":{"template":{"spec":{"containers":[{"name":"main","ports":[{"containerPort":8080,"name":"http"}]}]}}}}`, true},
		{"another port", `{"spec":{"template":{"spec":{"containers":[{"name":"main","ports":[{"containerPort":9090}]}]}}}}`, false},
		{"another protocol", `{"spec":{"template":{"spec":{"containers":[{"name":"main","ports":[{"containerPort":8080,"protocol":"UDP"}]}]}}}}`, false},
		{"lost field of an item", `{"spec":{"template":{"spec":{"containers":[{"name":"main","workingDir":"/"}]}}}}`, false},
		{"lost item", `{"spec":{"template":{"spec":{"containers":[{"name":"side"}]}}}}`, false},
		{"empty object", `{"spec":{"template":{"spec":{"volumes":[{"name":"v","emptyDir":{}}]}}}}`, true},
		{"set item", `{"spec":{"finalizers":["a"]}}`, true},
		{"lost set item", `{"spec":{"finalizers":["b"]}}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var intent map[string]any
			if err := json.Unmarshal([]byte(tc.intent), &intent); err != nil {
				t.Fatal(err)
			}
			if got := covers([]byte(owned), intent); got != tc.want {
				t.Errorf("covers = %v, want %v", got, tc.want)
			}
		})
	}
	if covers(nil, map[string]any{}) || covers([]byte("nonsense"), map[string]any{}) {
		t.Error("no or unreadable managed fields own nothing")
	}
}

func TestOwnedFieldsIsOurApplyOnly(t *testing.T) {
	entry := func(manager string, op metav1.ManagedFieldsOperationType, sub, raw string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, Subresource: sub, FieldsV1: metav1.NewFieldsV1(raw)}
	}
	managed := []metav1.ManagedFieldsEntry{
		entry("other", metav1.ManagedFieldsOperationApply, "", "1"),
		entry("modelplane-x", metav1.ManagedFieldsOperationUpdate, "", "2"),
		entry("modelplane-x", metav1.ManagedFieldsOperationApply, "status", "3"),
		entry("modelplane-x", metav1.ManagedFieldsOperationApply, "", "4"),
	}
	if got := string(ownedFields(managed, "modelplane-x")); got != "4" {
		t.Errorf("got entry %q", got)
	}
	if ownedFields(managed, "modelplane-y") != nil {
		t.Error("found fields of an owner that has none")
	}
}

func TestOnlyOwner(t *testing.T) {
	entry := func(manager string, op metav1.ManagedFieldsOperationType, sub, raw string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, Subresource: sub, FieldsV1: metav1.NewFieldsV1(raw)}
	}
	const has, hasNot = `{"f:spec":{"f:replicas":{}}}`, `{"f:spec":{"f:paused":{}}}`
	apply, update := metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	for _, tc := range []struct {
		name    string
		managed []metav1.ManagedFieldsEntry
		want    bool
	}{
		{"ours alone", []metav1.ManagedFieldsEntry{entry("us", apply, "", has), entry("them", update, "", hasNot)}, true},
		{"shared", []metav1.ManagedFieldsEntry{entry("us", apply, "", has), entry("them", apply, "", has)}, false},
		{"shared as a whole", []metav1.ManagedFieldsEntry{entry("us", apply, "", has), entry("them", apply, "", `{"f:spec":{}}`)}, false},
		{"theirs by a subresource", []metav1.ManagedFieldsEntry{entry("us", apply, "", has), entry("them", update, "scale", has)}, false},
		{"theirs", []metav1.ManagedFieldsEntry{entry("us", apply, "", hasNot), entry("them", update, "", has)}, false},
		{"nobody's", []metav1.ManagedFieldsEntry{entry("us", apply, "", hasNot)}, false},
	} {
		if got := onlyOwner(tc.managed, "us", []string{"spec", "replicas"}); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestInitialFieldsAreSetAside(t *testing.T) {
	o := owner{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "o", UID: "u"}}}
	plan := func(replicas int64, initial ...string) *intent {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"scale": map[string]any{"replicas": replicas}, "paused": true}}}
		u.SetAPIVersion("v1")
		u.SetKind("Thing")
		u.SetNamespace("n")
		u.SetName("a")
		in, err := newIntent(runtime.NewScheme(), o, Child{Object: u, Initial: initial})
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	two, three := plan(2, "spec.scale.replicas", "spec.absent"), plan(3, "spec.scale.replicas")
	if two.digest != three.digest {
		t.Error("the digest covers an initial field")
	}
	if plan(2).digest == plan(3).digest {
		t.Error("the digest does not cover a field")
	}
	if _, left := two.body.Object["spec"].(map[string]any)["scale"]; left {
		t.Error("an empty object is left where the field was")
	}
	if len(two.initial) != 1 || two.initial[0].value != int64(2) {
		t.Errorf("set aside: %+v", two.initial)
	}
}
