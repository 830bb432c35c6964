// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/testkit"
)

// bad are objects that a schema refuses, one for each way in which it can.
var bad = map[string]string{
	"unknown field": `
apiVersion: serving.kserve.io/v1alpha1
kind: LocalModelCache
metadata: {name: x}
spec: {sourceModelURI: s3://a, b: 1}
`,
	"unknown field in metadata": `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: x, lables: {}}
spec: {predictor: {}}
`,
	"wrong type": `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: x}
spec: {predictor: {minReplicas: one, containers: {}}}
`,
	"wrong type of metadata": `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: x, labels: {a: 1}}
spec: {predictor: {}}
`,
	"bad enum": `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: x}
spec: {predictor: {scaleMetric: nonsense}}
`,
	"missing required": `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: x}
spec: {}
`,
	"missing required inside a light list": `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: x}
spec: {predictor: {containers: [{image: a}]}}
`,
	"below the minimum": `
apiVersion: mlflow.opendatahub.io/v1
kind: MLflow
metadata: {name: mlflow}
spec: {replicas: 0, backendStoreUri: "sqlite:////a"}
`,
	"too long": `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: x}
spec: {predictor: {storageUris: [{uri: "s3://a", mountPath: not/absolute}]}}
`,
	"bad quantity": `
apiVersion: serving.kserve.io/v1alpha1
kind: LocalModelCache
metadata: {name: x}
spec: {sourceModelUri: a, modelSize: large, nodeGroups: [a]}
`,
	"duplicate key of a list": `
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {name: x}
spec: {model: {uri: "hf://a/b"}, template: {containers: [{name: a}, {name: a}]}}
`,
	"a CEL rule": `
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {name: x}
spec: {model: {uri: "hf://a/b"}, replicas: 1, scaling: {maxReplicas: 2, keda: {}}}
`,
	"a bad name": `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: Not_A_Name}
spec: {predictor: {}}
`,
}

// TestSameWordsAsTheServer sends every bad object to a real API server and to
// the code that works without one, and compares the messages letter by letter.
func TestSameWordsAsTheServer(t *testing.T) {
	cluster := testkit.Start(t)
	defs, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	cluster.InstallCRDs(t, defs...)
	strict := client.WithFieldValidation(cluster.Client(), "Strict")
	namespace := cluster.Namespace(t)
	for name, text := range bad {
		t.Run(name, func(t *testing.T) {
			u := object(t, text)
			kind, err := embedded(t).of(u)
			if err != nil {
				t.Fatal(err)
			}
			if kind.namespaced {
				u.SetNamespace(namespace)
			}
			theirs := strict.Create(t.Context(), &unstructured.Unstructured{Object: u.DeepCopy().Object})
			ours := embedded(t).Admit(t.Context(), u, nil)
			if theirs == nil || ours == nil {
				t.Fatalf("server says %v, we say %v", theirs, ours)
			}
			if diff := cmp.Diff(inParts(theirs), inParts(ours)); diff != "" {
				t.Errorf("server: %v\n   ours: %v\n%s", theirs, ours, diff)
			}
		})
	}
}

// inParts splits a refusal into what the server orders at random: it lists the
// fields of an object as its maps yield them.
func inParts(err error) any {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		return err.Error()
	}
	out := status.Status()
	if out.Details == nil || len(out.Details.Causes) < 2 {
		return []any{out.Code, out.Reason, out.Message, out.Details}
	}
	slices.SortFunc(out.Details.Causes, func(a, b metav1.StatusCause) int {
		return strings.Compare(a.Field+a.Message, b.Field+b.Message)
	})
	return []any{out.Code, out.Reason, len(out.Message), out.Details}
}
