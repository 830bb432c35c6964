// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/cli/explain"
)

const named = `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: iris, namespace: models, uid: u1}
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: iris-v2, namespace: models, uid: u2}
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: wine, namespace: models, uid: u3}
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: rose, namespace: team-b, uid: u4}
`

func TestKindsAndNames(t *testing.T) {
	for _, tc := range []struct {
		kind, namespace, name string
		without, refuse       []string
		want                  string // in the error; none if empty
	}{
		{kind: "inferenceservice", namespace: "models", name: "iris"},
		{kind: "inferenceservices", namespace: "models", name: "iris"},
		{kind: "InferenceService", namespace: "models", name: "iris"},
		{kind: "isvc", namespace: "models", name: "iris"},
		{kind: "isvc.serving.kserve.io", namespace: "models", name: "iris"},
		{kind: "inferenceservices.v1beta1.serving.kserve.io", namespace: "models", name: "iris"},

		{kind: "isvc.example.com", namespace: "models", name: "iris", want: `"isvc.example.com" cannot be explained: choose from inferenceservice, inferencegraph, trainedmodel`},
		{kind: "pod", namespace: "models", name: "iris", want: `"pod" cannot be explained`},
		{kind: "inferenceservice", namespace: "models", name: "iris", without: []string{"serving.kserve.io"}, want: "the cluster does not serve InferenceService of serving.kserve.io/v1beta1: check that Modelplane is installed"},
		{kind: "isvc", namespace: "models", name: "iris", without: []string{"serving.kserve.io"}, want: "the cluster serves no kind of Modelplane (inferenceservice, "},
		{kind: "isvc", namespace: "models", name: "irsi", want: "there is no inferenceservice irsi in namespace models: did you mean iris?"},
		{kind: "isvc", namespace: "models", name: "iris-v1", want: "did you mean iris-v2 or iris?"},
		{kind: "isvc", namespace: "models", name: "something-else", want: "there is no inferenceservice something-else in namespace models"},
		{kind: "isvc", namespace: "models", name: "rose", want: "there is no inferenceservice rose in namespace models, but in team-b: add -n"},
		{kind: "isvc", namespace: "empty", name: "lily", want: "in namespace empty, nor any other: check the namespace (-n)"},
		{kind: "isvc", namespace: "models", name: "iris", refuse: []string{"inferenceservices"}, want: "you may not read InferenceService models/iris"},
	} {
		t.Run(tc.kind+" "+tc.name, func(t *testing.T) {
			s := readScene(t, []byte(named))
			s.Without, s.Refuse = tc.without, tc.refuse
			r, err := s.explainer().Explain(t.Context(), tc.kind, tc.namespace, tc.name)
			switch {
			case tc.want == "" && (err != nil || r.Name != tc.name):
				t.Errorf("report %+v, error %v", r, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestJSON: programs get what people get.
func TestJSON(t *testing.T) {
	in, err := os.ReadFile("testdata/explain/image-pull/in.yaml")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(readScene(t, in).explain(t))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "hush-hush") {
		t.Errorf("a secret was printed: %s", raw)
	}
	got := &explain.Report{}
	if err := json.Unmarshal(raw, got); err != nil {
		t.Fatal(err)
	}
	want := &explain.Cause{
		Source: explain.FromCondition, Condition: "PredictorReady", Status: "False", Reason: "ImagePullBackOff",
		Message: `The image "registry.example/sklearn:9" of container kserve-container cannot be pulled: the registry does not have it. Correct its name or tag, or push it.`,
		Pod:     "iris-predictor-7d9f4-x2x4v", Container: "kserve-container",
	}
	if diff := cmp.Diff(want, got.Cause); diff != "" {
		t.Errorf("cause (-want +got):\n%s", diff)
	}
	pods := got.Children[0].Nodes
	if got.Ready || len(got.Children) != 4 || len(pods) != 1 || pods[0].Health != explain.Failing || len(got.Warnings) != 1 || got.Warnings[0].Count != 6 {
		t.Errorf("got %s", raw)
	}
}

// TestDocs: what the documentation shows is what the command prints.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"image-pull", "runtime-missing", "route-refused", "graph"} {
		out, err := os.ReadFile("testdata/explain/" + name + "/out.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), "\n"+string(out)+"```") {
			t.Errorf("docs/explain.md does not show what %s prints", name)
		}
	}
}
