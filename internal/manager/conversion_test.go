// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestConversionIsServed: the API server reads an object in another version than it was written in, through a manager
// that was told to serve an altogether different domain.
func TestConversionIsServed(t *testing.T) {
	cluster := testkit.Start(t)
	namespace := cluster.Namespace(t)
	all, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	var crd *apiextensionsv1.CustomResourceDefinition
	for _, def := range all {
		if def.Name == "modelregistries.modelregistry.opendatahub.io" {
			crd = def.DeepCopy()
		}
	}
	if crd == nil || crd.Spec.Conversion == nil || crd.Spec.Conversion.Webhook == nil {
		t.Fatal("the definition of ModelRegistry asks for no conversion")
	}
	crd.Labels = map[string]string{certs.PartOfLabel: certs.PartOfValue}
	crd.Spec.Conversion.Webhook.ClientConfig.Service.Namespace = namespace
	cluster.InstallCRDs(t, crd)

	r := run(t, options(t, namespace), Domain{Name: "mlflow", AddToScheme: admission.AddToScheme})
	r.ready()
	kind := schema.GroupVersionKind{Group: "modelregistry.opendatahub.io", Version: "v1alpha1", Kind: "ModelRegistry"}
	old := &unstructured.Unstructured{}
	old.SetGroupVersionKind(kind)
	old.SetNamespace(namespace)
	old.SetName("models")
	spec := map[string]any{"grpc": map[string]any{}, "rest": map[string]any{}, "mysql": map[string]any{
		"host": "db", "database": "models", "username": "models"}}
	if err := unstructured.SetNestedMap(old.Object, spec, "spec"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, "a ModelRegistry in its first version", func() error {
		return client.IgnoreAlreadyExists(cluster.Client().Create(t.Context(), old.DeepCopy()))
	})
	current := &unstructured.Unstructured{}
	current.SetGroupVersionKind(kind.GroupKind().WithVersion("v1beta1"))
	testkit.Eventually(t, patience, "the same in the next version", func() error {
		return cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(old), current)
	})
	if got := fmt.Sprint(current.Object["spec"]); !strings.Contains(got, "host:db") {
		t.Errorf("the database is lost in conversion: %s", got)
	}
}
