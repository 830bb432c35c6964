// SPDX-License-Identifier: Apache-2.0

package sample

import (
	_ "embed"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/engine"
)

//go:embed test.modelplane.dev_samples.yaml
var crd []byte

// CRD is the kind's definition.
func CRD() *apiextensionsv1.CustomResourceDefinition {
	out := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(crd, out); err != nil {
		panic(err) // embedded and generated
	}
	return out
}

// RouteKind is the optional API that Route asks for.
var RouteKind = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}

// Kind is the seam to the engine.
type Kind struct{}

// Controller of Samples.
func Controller() engine.Controller {
	route := &unstructured.Unstructured{}
	route.SetGroupVersionKind(RouteKind)
	return engine.For[*Sample, Seen](Kind{}, engine.Spec{
		Name: "sample",
		Children: []engine.ChildKind{
			{Object: &corev1.ConfigMap{}},
			{Object: &corev1.Service{}},
			{Object: &corev1.Secret{}},
			{Object: &appsv1.Deployment{}},
			{Object: &batchv1.Job{}},
			{Object: route, Optional: true},
		},
		Inputs: []engine.Input{
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &corev1.Secret{}, MetadataOnly: true},
		},
		OldFinalizers: []string{"sample.example.com/old"},
		OldManagers:   []string{"sample-old"},
		FarReaching:   true,
	})
}
