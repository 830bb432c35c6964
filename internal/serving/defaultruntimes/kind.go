// SPDX-License-Identifier: Apache-2.0

package defaultruntimes

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
)

// oldManager wrote the objects before the engine did, with updates.
const oldManager = "modelplane-shipped"

// Kind is the seam to the engine: the ConfigMap and what it lists.
type Kind struct{}

var _ engine.Kind[*corev1.ConfigMap, Seen] = Kind{}

// Controller of the ConfigMap.
func Controller() engine.Controller {
	spec := engine.Spec{
		Name: "default-runtimes", HomeName: Name, NoStatus: true, OldManagers: []string{oldManager},
		// Serving keeps these in memory anyway.
		Inputs: []engine.Input{{Object: &v1alpha1.ClusterServingRuntime{}}, {Object: &v1alpha1.ClusterStorageContainer{}}},
	}
	for _, kind := range kinds {
		o := &unstructured.Unstructured{} // as they are stored: what we do not know of them stays
		o.SetGroupVersionKind(kind)
		spec.Children = append(spec.Children, engine.ChildKind{Object: o})
	}
	return engine.For[*corev1.ConfigMap, Seen](Kind{}, spec)
}
