// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
