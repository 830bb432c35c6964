// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func embedded(t testing.TB) *Schemas {
	t.Helper()
	schemas, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return schemas
}

// TestEveryKindPrepares compiles every embedded schema and rule.
func TestEveryKindPrepares(t *testing.T) {
	schemas := embedded(t)
	if len(schemas.kinds) != 32 {
		t.Errorf("have %d kinds, want 32", len(schemas.kinds))
	}
	for gvk, prepare := range schemas.kinds {
		if _, err := prepare(); err != nil {
			t.Errorf("%s: %v", gvk, err)
		}
		if !schemas.Has(gvk) {
			t.Errorf("Has(%s) is false", gvk)
		}
	}
	if schemas.Has(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}) {
		t.Error("Deployment is none of ours")
	}
}

func TestDefault(t *testing.T) {
	have := object(t, `
apiVersion: mlflow.opendatahub.io/v1
kind: MLflow
metadata: {name: mlflow}
spec: {replicas: null, image: null}
`)
	if err := embedded(t).Default(have); err != nil {
		t.Fatal(err)
	}
	want := object(t, `
apiVersion: mlflow.opendatahub.io/v1
kind: MLflow
metadata: {name: mlflow}
spec:
  replicas: 1
  workers: 1
  serveArtifacts: false
  serviceAccountName: mlflow-sa
  migration: {mode: Automatic}
`)
	var plain any = have.Object
	if diff := cmp.Diff(numbers(t, want.Object), numbers(t, plain)); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

// numbers makes objects from different readers comparable.
func numbers(t *testing.T, v any) any {
	t.Helper()
	raw, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := yaml.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestUnknown(t *testing.T) {
	u := object(t, `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: x, nonsense: 1}
spec:
  predictr: {}
  predictor:
    containers: [{name: a, imagee: kept-for-strict-decoding}]
    model: {modelFormat: {name: a, vers: b}}
    autoScaling: {metrics: [{type: Resource, resource: {name: cpu, targt: {}}}]}
status: {future: 1}
`)
	before := u.DeepCopy()
	have, err := embedded(t).Unknown(u)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"metadata.nonsense", "spec.predictor.autoScaling.metrics[0].resource.targt"} // others are left to admission
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	if diff := cmp.Diff(before, u); diff != "" {
		t.Errorf("the object changed:\n%s", diff)
	}
}

func TestUnknownKind(t *testing.T) {
	u := object(t, "apiVersion: serving.kserve.io/v9\nkind: InferenceService\nmetadata: {name: x}")
	for what, err := range map[string]error{
		"Default":  embedded(t).Default(u),
		"Validate": embedded(t).Validate(t.Context(), u, nil),
		"Admit":    embedded(t).Admit(t.Context(), u, nil),
	} {
		if err == nil || !strings.Contains(err.Error(), `no kind "InferenceService" is registered for version "serving.kserve.io/v9"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

const goodModel = `
apiVersion: serving.kserve.io/v1alpha1
kind: LocalModelCache
metadata: {name: x}
spec: {sourceModelUri: "s3://a/b", modelSize: 1Gi, nodeGroups: [a]}
`

func TestValidateUpdate(t *testing.T) {
	schemas := embedded(t)
	old := object(t, goodModel)
	old.SetResourceVersion("7")
	old.SetUID("u")
	same := object(t, goodModel)
	if err := schemas.Admit(t.Context(), same, old); err != nil {
		t.Errorf("no change: %v", err)
	}
	changed := object(t, strings.Replace(goodModel, "s3://a/b", "s3://a/c", 1))
	err := schemas.Admit(t.Context(), changed, old)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.sourceModelUri: Invalid value") {
		t.Errorf("want the transition rule's message, have %v", err)
	}
	if err := schemas.Admit(t.Context(), changed, nil); err != nil {
		t.Errorf("a new object has no history: %v", err)
	}
}

// TestValidateUpdateRatchets: what the stored object already violates does not
// block a change elsewhere.
func TestValidateUpdateRatchets(t *testing.T) {
	schemas := embedded(t)
	text := "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: x, resourceVersion: '1'}\nspec: {predictor: {scaleMetric: nonsense}}"
	old, now := object(t, text), object(t, text)
	now.SetLabels(map[string]string{"a": "b"})
	if err := schemas.Validate(t.Context(), now, old); err != nil {
		t.Errorf("an old violation blocks: %v", err)
	}
	if err := schemas.Validate(t.Context(), now, nil); !apierrors.IsInvalid(err) {
		t.Errorf("a new violation passes: %v", err)
	}
}

func TestAdmitTakesManifestsAsTheyAre(t *testing.T) {
	u := object(t, `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {generateName: x-}
spec: {predictor: {model: {modelFormat: {name: a}}}}
status: {url: 7}
`)
	if err := embedded(t).Admit(t.Context(), u, nil); err != nil {
		t.Errorf("no namespace, a generated name and a status of one's own are no reason to refuse: %v", err)
	}
	if u.GetNamespace() != "" || u.GetName() != "" {
		t.Errorf("the manifest was changed: %v", u.Object["metadata"])
	}
}

func TestNamespaced(t *testing.T) {
	for kind, want := range map[string]bool{"InferenceGraph": true, "ClusterServingRuntime": false} {
		have, err := embedded(t).Namespaced(schema.GroupVersionKind{Group: "serving.kserve.io", Version: "v1alpha1", Kind: kind})
		if err != nil || have != want {
			t.Errorf("Namespaced(%s) = %v, %v", kind, have, err)
		}
	}
	if _, err := embedded(t).Namespaced(schema.GroupVersionKind{Kind: "Nothing"}); err == nil {
		t.Error("want an error for a kind that is none of ours")
	}
}
