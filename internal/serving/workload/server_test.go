// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/workload"
	"github.com/modelplane/modelplane/internal/testkit"
)

const fieldOwner = "modelplane-test"

// apply sends an object as the engine does and returns what the server has then.
func apply(t *testing.T, c client.Client, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	body := obj.DeepCopy()
	err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(body), client.FieldOwner(fieldOwner), client.ForceOwnership)
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

// What was taken over can be changed like anything else once the fields of the earlier controller are ours: without
// that its readiness probe, its strategy and its variables would stay beside the new ones.
func TestTakenOverMayChange(t *testing.T) {
	cluster := testkit.Start(t)
	in := readFile(t, "testdata/takeover/model/in.yaml")
	in.Part.Namespace = cluster.Namespace(t)
	theirs := createForeign(t, cluster.Client(), "testdata/takeover/model/kserve.yaml", in.Part.Namespace)["Deployment/iris-predictor"]
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(theirs, sets.New("manager"), fieldOwner)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client().Patch(t.Context(), theirs.DeepCopy(), client.RawPatch(types.JSONPatchType, patch)); err != nil {
		t.Fatal(err)
	}
	body := sent(t, workload.Deployment(in.Part, &in.Config))
	unstructured.RemoveNestedField(body.Object, "spec", "replicas")
	after := apply(t, cluster.Client(), body)
	if diff := cmp.Diff(theirs.Object["spec"], after.Object["spec"]); diff != "" || after.GetGeneration() != theirs.GetGeneration() {
		t.Errorf("the take-over changes the spec (-before +after):\n%s", diff)
	}

	c := &in.Part.Pod.Containers[0]
	c.Env = c.Env[1:]
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}}
	in.Part.Scale.DeploymentStrategy = &appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	body = sent(t, workload.Deployment(in.Part, &in.Config))
	apply(t, cluster.Client(), body)
	got := &appsv1.Deployment{}
	if err := cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(body), got); err != nil {
		t.Fatal(err)
	}
	if n := len(got.Spec.Template.Spec.Containers[0].Env); n != len(c.Env) {
		t.Errorf("%d variables are left of %d", n, len(c.Env))
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

// A strategy may be changed at any time. The API server refuses leftovers of another one.
func TestStrategyMayChange(t *testing.T) {
	cluster := testkit.Start(t)
	p := workload.Part{Name: "iris-predictor", Namespace: cluster.Namespace(t)}
	p.Pod.Containers = []corev1.Container{{Name: "kserve-container", Image: "example.com/server:1"}}
	recreate := &appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	for _, strategy := range []*appsv1.DeploymentStrategy{
		nil, recreate,
		{Type: appsv1.RollingUpdateDeploymentStrategyType}, recreate,
		{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(2))}}, recreate,
		{}, recreate,
	} {
		p.Scale.DeploymentStrategy = strategy
		apply(t, cluster.Client(), sent(t, workload.Deployment(p, config.Default())))
	}
}
