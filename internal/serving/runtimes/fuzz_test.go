// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// FuzzMerge puts a service and a runtime together that anybody may have written.
func FuzzMerge(f *testing.F) {
	cases, err := filepath.Glob("testdata/merge/*/in.yaml")
	if err != nil || len(cases) == 0 {
		f.Fatalf("no cases to start from: %v", err)
	}
	for _, path := range cases {
		raw, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		isvc, rt, _ := bytes.Cut(raw, []byte("\n---\n"))
		f.Add(asJSON(f, isvc), asJSON(f, rt))
	}
	f.Fuzz(func(t *testing.T, service, runtime []byte) {
		var isvc v1beta1.InferenceService
		var rt v1alpha1.ClusterServingRuntime
		if json.Unmarshal(service, &isvc) != nil || json.Unmarshal(runtime, &rt) != nil {
			t.Skip()
		}
		c := Candidates{Cluster: []v1alpha1.ClusterServingRuntime{rt}}
		wasISVC, wasRT := isvc.DeepCopy(), rt.DeepCopy()
		merged, failure := together(&isvc, c)
		if !equality.Semantic.DeepEqual(wasISVC, &isvc) || !equality.Semantic.DeepEqual(wasRT, &c.Cluster[0]) {
			t.Fatal("an input was changed")
		}
		again, failedAgain := together(&isvc, c)
		if !equality.Semantic.DeepEqual(merged, again) || !equality.Semantic.DeepEqual(failure, failedAgain) {
			t.Fatal("the result is not always the same")
		}
		if failure != nil {
			if failure.Message == "" || failure.Reason == "" || merged != nil {
				t.Fatalf("half a failure: %+v", failure)
			}
			return
		}
		checkMerged(t, merged)
	})
}

// checkMerged looks for what holds whatever was merged.
func checkMerged(t *testing.T, m *Merged) {
	t.Helper()
	if m.Protocol == "" || m.Pod.Containers[0].Name != mainContainer {
		t.Fatalf("no predictor: %+v", m)
	}
	for _, c := range m.Pod.Containers {
		named := 0
		for _, e := range c.Env {
			if e.Name == envServiceName {
				named++
			}
		}
		if named == 0 {
			t.Fatalf("%s does not know its service", c.Name)
		}
	}
	if w := m.Worker; w != nil && (w.Replicas < 0 || w.Pod.Containers[0].Name != workerContainer) {
		t.Fatalf("no worker: %+v", w)
	}
}

func asJSON(t testing.TB, in []byte) []byte {
	t.Helper()
	if len(bytes.TrimSpace(in)) == 0 {
		return []byte("{}")
	}
	out, err := yaml.YAMLToJSON(in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// FuzzPlaceholders fills in texts that anybody may have written.
func FuzzPlaceholders(f *testing.F) {
	for _, text := range []string{
		"", "{{.Name}}", "{{.Labels.x}}", `{{index .Annotations "x"}}`, "{{if .Name}}a{{else if .UID}}b{{end}}", "{{{{", "{{(((", "{{$}}",
		`{{slice .Name 1 2}}`, "{{range 9}}{{end}}", `{{define "a"}}{{template "a"}}{{end}}`, "{{.Labels.x | len}}", "{{1e9}}", "{{/*",
		"{{- .Name -}}", `{{and .Name .Labels.x | or "" | not}}`, "{{break}}", "{{with .}}{{.}}{{end}}", "{{`{{`}}", "{{'a'}}", "{{nil}}",
	} {
		f.Add(text, `<"&'>`)
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		isvc := &v1beta1.InferenceService{}
		isvc.Name, isvc.Labels, isvc.Annotations = "n", map[string]string{"x": value}, map[string]string{"x": value}
		r := newRenderer(isvc, modelOf("f", "", ""), nil)
		got, err := r.text(text, strict)
		if err != nil && (len(err.Error()) > 1000 || got != "") {
			t.Fatalf("%q with %d bytes of error", got, len(err.Error()))
		}
		if used := maxRendered - r.left; err == nil && used != len(got) {
			t.Fatalf("%d bytes are counted as %d", len(got), used)
		}
		if err == nil && !strings.Contains(text, "{{") && got != text {
			t.Fatalf("%q became %q", text, got)
		}
		if left, err := r.text(text, lenient); err == nil && got != "" && left != got {
			t.Fatalf("%q in one container and %q in another", got, left)
		}
		if whole, err := r.text("<{{.Labels.x}}>", strict); err == nil && whole != "<"+value+">" {
			t.Fatalf("value %q became %q", value, whole)
		}
	})
}
