// SPDX-License-Identifier: Apache-2.0

package mlflow_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/chart/charttest"
)

// TestEditorsMayPatchFinalizers, as with the other operator.
func TestEditorsMayPatchFinalizers(t *testing.T) {
	for _, o := range charttest.Render(t, chart.Release{Name: "modelplane", Namespace: "modelplane-system"}) {
		if o.GetKind() != "ClusterRole" || o.GetName() != "mlflow-operator-mlflow-edit" {
			continue
		}
		rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
		for _, r := range rules {
			resources, _, _ := unstructured.NestedStringSlice(r.(map[string]any), "resources")
			verbs, _, _ := unstructured.NestedStringSlice(r.(map[string]any), "verbs")
			if slices.Contains(resources, "mlflows/finalizers") && slices.Contains(verbs, "patch") && slices.Contains(verbs, "update") {
				return
			}
		}
	}
	t.Error("the role for editors does not let them patch finalizers")
}
