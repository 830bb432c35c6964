// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/serving/workload"
	"github.com/modelplane/modelplane/internal/testkit"
)

// apply sends an object as the engine does and returns what the server has then.
func apply(t *testing.T, c client.Client, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	body := obj.DeepCopy()
	err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(body), client.FieldOwner("modelplane-test"), client.ForceOwnership)
	if err != nil {
		t.Fatalf("apply %s %s: %v", obj.GetKind(), obj.GetName(), err)
	}
	return body
}

// What is applied must not fight with what the API server fills in: a second time changes nothing.
func TestSecondApplyChangesNothing(t *testing.T) {
	cluster := testkit.Start(t)
	cluster.Install(t, testkit.KEDA, testkit.OpenTelemetry)
	for _, path := range inputs(t, "testdata/rules") {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			in := readFile(t, path)
			in.Part.Namespace = cluster.Namespace(t)
			all, _ := objects(in)
			for _, obj := range all {
				body := sent(t, obj)
				first := apply(t, cluster.Client(), body)
				second := apply(t, cluster.Client(), body)
				if first.GetResourceVersion() != second.GetResourceVersion() || second.GetGeneration() > 1 {
					t.Errorf("%s %s changed (-first +second):\n%s", obj.GetObjectKind().GroupVersionKind().Kind, obj.GetName(),
						cmp.Diff(first.Object, second.Object))
				}
			}
		})
	}
}

// Objects that KServe's controller made are taken over as they are: no spec changes, so no pod is restarted.
func TestTakeOver(t *testing.T) {
	cluster := testkit.Start(t)
	for _, path := range inputs(t, "testdata/takeover") {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			in := readFile(t, path)
			in.Part.Namespace = cluster.Namespace(t)
			theirs := createForeign(t, cluster.Client(), filepath.Join(filepath.Dir(path), "kserve.yaml"), in.Part.Namespace)
			ours, _ := objects(in)
			if len(ours) != len(theirs) {
				t.Errorf("%d objects of ours for %d of theirs", len(ours), len(theirs))
			}
			for _, obj := range ours {
				body := sent(t, obj)
				if body.GetKind() == "Deployment" && workload.InitialReplicas(in.Part) {
					unstructured.RemoveNestedField(body.Object, "spec", "replicas")
				}
				before := theirs[body.GetKind()+"/"+body.GetName()]
				if before == nil {
					t.Errorf("they have no %s %s", body.GetKind(), body.GetName())
					continue
				}
				after := apply(t, cluster.Client(), body)
				if diff := cmp.Diff(before.Object["spec"], after.Object["spec"]); diff != "" || before.GetGeneration() != after.GetGeneration() {
					t.Errorf("%s %s changed (-before +after):\n%s", body.GetKind(), body.GetName(), diff)
				}
				if diff := cmp.Diff([]any{before.GetLabels(), before.GetAnnotations()}, []any{after.GetLabels(), after.GetAnnotations()}); diff != "" {
					t.Errorf("metadata of %s %s changed (-before +after):\n%s", body.GetKind(), body.GetName(), diff)
				}
			}
		})
	}
}

// createForeign creates the objects of a file through their Go types, as a controller does, and returns them as the
// server has them.
func createForeign(t *testing.T, c client.Client, path, namespace string) map[string]*unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	live := map[string]*unstructured.Unstructured{}
	for _, doc := range bytes.Split(bytes.ReplaceAll(raw, []byte("NAMESPACE"), []byte(namespace)), []byte("\n---\n")) {
		decoded, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(doc, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		obj := decoded.(client.Object)
		obj.SetNamespace(namespace)
		if err := c.Create(t.Context(), obj, client.FieldOwner("manager")); err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(*gvk)
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), u); err != nil {
			t.Fatal(err)
		}
		live[gvk.Kind+"/"+obj.GetName()] = u
	}
	return live
}

func inputs(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*", "in.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s has no case: %v", dir, err)
	}
	return paths
}

func readFile(t *testing.T, path string) input {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, raw)
}
