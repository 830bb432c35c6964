// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// widgetCRD defines a kind for tests, in two versions, with a status.
func widgetCRD() *apiextensionsv1.CustomResourceDefinition {
	keep := true
	open := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
		Type: "object", XPreserveUnknownFields: &keep,
	}}
	version := func(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: storage, Schema: open,
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.testkit.modelplane.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group:    "testkit.modelplane.io",
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Scope:    apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true), version("v1alpha1", false)},
		},
	}
}

var widgetKind = schema.GroupVersionKind{Group: "testkit.modelplane.io", Version: "v1", Kind: "Widget"}

func widget(namespace, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(widgetKind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}

func TestInstallAndRemoveCRDs(t *testing.T) {
	cluster := Start(t)
	namespace := cluster.Namespace(t)
	crd := widgetCRD()
	for round := range 3 {
		cluster.InstallCRDs(t, crd)
		var live apiextensionsv1.CustomResourceDefinition
		if err := cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(crd), &live); err != nil {
			t.Fatal(err)
		}
		for _, condition := range live.Status.Conditions {
			if age := time.Since(condition.LastTransitionTime.Time); condition.Type == apiextensionsv1.Established && age < time.Minute {
				t.Errorf("round %d: established for %s as the server sees it; the first create will have to wait", round, age)
			}
		}
		for _, version := range crd.Spec.Versions {
			obj := widget(namespace, version.Name)
			obj.SetGroupVersionKind(widgetKind.GroupKind().WithVersion(version.Name))
			if err := cluster.Client().Create(t.Context(), obj); err != nil {
				t.Fatalf("round %d: right after the installation: %v", round, err)
			}
		}
		// Installing what is there already changes nothing but updates the definition.
		changed := crd.DeepCopy()
		changed.Spec.Names.ShortNames = []string{"wdg"}
		cluster.InstallCRDs(t, changed)
		cluster.RemoveCRDs(t, crd.Name, "absent.testkit.modelplane.io")
		err := cluster.Client().Create(t.Context(), widget(namespace, "late"))
		if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			t.Fatalf("round %d: right after the removal: error = %v, want not found", round, err)
		}
	}
	if crd.ResourceVersion != "" {
		t.Error("the caller's definition was written to")
	}
}

func TestRefusedNamesAreExplained(t *testing.T) {
	cluster := Start(t)
	crd := widgetCRD()
	cluster.InstallCRDs(t, crd)
	t.Cleanup(func() { cluster.RemoveCRDs(t, crd.Name, "gadgets.testkit.modelplane.io") })
	twin := widgetCRD()
	twin.Name, twin.Spec.Names.Plural = "gadgets.testkit.modelplane.io", "gadgets"
	if err := cluster.putCRD(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	Eventually(t, crdTimeout, "the refusal of the twin's names", func() error {
		err := cluster.served(t.Context(), twin)
		if err == nil || err.Error() == "not established yet" {
			return apierrors.NewBadRequest("no refusal yet")
		}
		return nil
	})
}
