// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"maps"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestEveryThirdPartyKind installs each product, writes an object of every kind
// in every version, checks that the status is apart where it should be, and
// takes the product away again.
func TestEveryThirdPartyKind(t *testing.T) {
	cluster := Start(t)
	namespace := cluster.Namespace(t)
	for _, api := range slices.Sorted(maps.Keys(thirdParty)) {
		t.Run(string(api), func(t *testing.T) {
			cluster.Install(t, api)
			for _, crd := range ThirdParty(api) {
				for _, version := range crd.Spec.Versions {
					writeAnything(t, cluster, namespace, crd, version)
				}
			}
		})
		for _, crd := range ThirdParty(api) {
			err := cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(crd), crd)
			if !apierrors.IsNotFound(err) {
				t.Errorf("%s after the test that installed it: error = %v, want not found", crd.Name, err)
			}
		}
	}
}

func writeAnything(t *testing.T, cluster *Cluster, namespace string, crd *apiextensionsv1.CustomResourceDefinition, version apiextensionsv1.CustomResourceDefinitionVersion) {
	t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{
		"spec":   map[string]any{"anything": map[string]any{"goes": []any{"here"}}},
		"status": map[string]any{"at": "creation"},
	}}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind})
	obj.SetName("x-" + version.Name)
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		obj.SetNamespace(namespace)
	}
	if err := cluster.Client().Create(t.Context(), obj); err != nil {
		t.Errorf("creating a %s: %v", obj.GroupVersionKind(), err)
		return
	}
	if got, _, _ := unstructured.NestedStringSlice(obj.Object, "spec", "anything", "goes"); len(got) != 1 {
		t.Errorf("%s: the server dropped what it does not know", obj.GroupVersionKind())
	}
	_, kept := obj.Object["status"]
	if separate := version.Subresources.Status != nil; kept == separate {
		t.Errorf("%s: status kept at creation = %v, although separate = %v", obj.GroupVersionKind(), kept, separate)
	}
}

func TestThirdPartyComesAndGoesDuringATest(t *testing.T) {
	cluster := Start(t)
	absent := func() {
		t.Helper()
		for _, crd := range ThirdParty(LWS) {
			if err := cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(crd), crd); !apierrors.IsNotFound(err) {
				t.Errorf("%s: error = %v, want not found", crd.Name, err)
			}
		}
	}
	present := func() {
		t.Helper()
		for _, crd := range ThirdParty(LWS) {
			if err := cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
				t.Error(err)
			}
		}
	}
	cluster.Install(t, LWS)
	t.Run("another holder ends first", func(t *testing.T) { cluster.Install(t, LWS) })
	present()
	cluster.Remove(t, LWS)
	absent()
	t.Run("installed again by another", func(t *testing.T) {
		cluster.Install(t, LWS)
		present()
	})
	absent()
}

func TestUnknownThirdParty(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a name that is not known was accepted")
		}
	}()
	ThirdParty("Gatway API")
}
