// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestKustomizeBase proves that the two ways of installing give the same objects.
func TestKustomizeBase(t *testing.T) {
	got := kustomize(t, "../../config/base")
	want := map[string]any{}
	for _, o := range render(t, nil) {
		chart.WithoutHelm(o.Unstructured)
		want[key(o.Unstructured)] = o.Object
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kustomize and the chart differ (-chart +kustomize):\n%s", diff)
	}
}

func TestKustomizeDefaultBringsItsNamespace(t *testing.T) {
	got := kustomize(t, "../../config/default")
	namespace, ok := got["Namespace /"+chart.DefaultNamespace].(map[string]any)
	if !ok {
		t.Fatal("there is no namespace")
	}
	o := unstructured.Unstructured{Object: namespace}
	if o.GetLabels()["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Errorf("the namespace does not enforce the restricted level: %v", o.GetLabels())
	}
	if base := kustomize(t, "../../config/base"); len(got) != len(base)+1 {
		t.Errorf("%d objects, want one more than the %d of the base", len(got), len(base))
	}
}

// TestKustomizeOverlayMoves proves that an overlay can choose the namespace: everything that names the webhook Service
// follows.
func TestKustomizeOverlayMoves(t *testing.T) {
	overlay := t.TempDir()
	base, err := filepath.Abs("../../config/base")
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(overlay, base)
	if err != nil {
		t.Fatal(err)
	}
	content := "namespace: elsewhere\nresources: [" + relative + "]\n"
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, object := range kustomize(t, overlay) {
		raw, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), chart.DefaultNamespace) {
			t.Errorf("%s still speaks of %s", name, chart.DefaultNamespace)
		}
	}
}

// kustomized are the folders that were rendered before, which takes seconds each.
var kustomized = map[string]map[string]any{}

func kustomize(t *testing.T, dir string) map[string]any {
	t.Helper()
	if objects, found := kustomized[dir]; found {
		return objects
	}
	stdout, stderr, err := testkit.Start(t).Kubectl(t, "", "kustomize", dir)
	if err != nil || stderr != "" {
		t.Fatalf("kubectl kustomize %s: %v\n%s", dir, err, stderr)
	}
	objects := map[string]any{}
	for _, document := range strings.Split(stdout, "\n---\n") {
		o := &unstructured.Unstructured{}
		raw, err := yaml.YAMLToJSON([]byte(document))
		if err == nil {
			err = o.UnmarshalJSON(raw)
		}
		if err != nil {
			t.Fatal(err)
		}
		objects[key(o)] = o.Object
	}
	kustomized[dir] = objects
	return objects
}

func key(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}
