// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestDefinitionsAreValid asks the API server's own validation: schemas are structural, rules compile and stay
// within the cost that the server grants them.
func TestDefinitionsAreValid(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	for name, def := range readDefinitions(t) {
		t.Run(name, func(t *testing.T) {
			stored := def.DeepCopy()
			scheme.Default(stored)
			for _, version := range stored.Spec.Versions {
				if version.Storage {
					stored.Status.StoredVersions = []string{version.Name}
				}
			}
			internal := &apiextensions.CustomResourceDefinition{}
			if err := scheme.Convert(stored, internal, nil); err != nil {
				t.Fatal(err)
			}
			for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
				t.Error(err)
			}
		})
	}
}
