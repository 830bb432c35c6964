// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/testkit"
)

// TestServerTakesEveryCase applies the objects of every golden case to a real API server, with the Gateway API's own
// definitions, as the engine does: the server must take them, and applying them again must change nothing although
// the server filled in defaults. What another controller created alike must not change either when it is taken over.
func TestServerTakesEveryCase(t *testing.T) {
	cluster := testkit.Start(t)
	cluster.InstallCRDs(t, gatewayDefinition(t, "httproutes"))
	cluster.Install(t, testkit.Istio)
	cases, err := filepath.Glob(filepath.Join("testdata", "*", "*", "in.yaml"))
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range cases {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			namespace := "default"
			in, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, obj := range objectsOf(t, filepath.Base(filepath.Dir(dir)), in) {
				if obj.GetNamespace() != namespace {
					t.Fatalf("%s is in namespace %s; cases of this test are in %s", Key(obj), obj.GetNamespace(), namespace)
				}
				applyTwice(t, cluster.Client(), obj)
				takeOver(t, cluster.Client(), obj)
			}
		})
	}
}

func objectsOf(t *testing.T, mode string, in []byte) []client.Object {
	t.Helper()
	var objects []client.Object
	switch mode {
	case "standard":
		c := readStandard(t, in)
		objects, _ = Objects(c.Service, c.config()) // cases of errors have no objects
	case "knative":
		c := readKnative(t, in)
		objects, _ = KnativeObjects(c.Service, c.config())
	default:
		t.Fatalf("unknown mode %s", mode)
	}
	return objects
}

func applyTwice(t *testing.T, c client.Client, obj client.Object) {
	t.Helper()
	first := apply(t, c, obj)
	defer remove(t, c, first)
	second := apply(t, c, obj)
	if first.GetResourceVersion() != second.GetResourceVersion() {
		t.Errorf("%s changed when it was applied again:\n%s", Key(obj), cmp.Diff(first.Object, second.Object))
	}
}

func takeOver(t *testing.T, c client.Client, obj client.Object) {
	t.Helper()
	theirs := body(t, obj)
	if err := c.Create(t.Context(), theirs, client.FieldOwner("another-controller")); err != nil {
		t.Fatal(err)
	}
	defer remove(t, c, theirs)
	ours := apply(t, c, obj)
	if theirs.GetGeneration() != ours.GetGeneration() {
		t.Errorf("%s changed when it was taken over:\n%s", Key(obj), cmp.Diff(theirs.Object["spec"], ours.Object["spec"]))
	}
}

func apply(t *testing.T, c client.Client, obj client.Object) *unstructured.Unstructured {
	t.Helper()
	u := body(t, obj)
	err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("modelplane-test"), client.ForceOwnership)
	if err != nil {
		t.Fatalf("applying %s: %v", Key(obj), err)
	}
	return u
}

func remove(t *testing.T, c client.Client, u *unstructured.Unstructured) {
	t.Helper()
	if err := c.Delete(t.Context(), u.DeepCopy()); err != nil {
		t.Error(err)
	}
}

func body(t *testing.T, obj client.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	delete(content, "status")
	return (&unstructured.Unstructured{Object: content}).DeepCopy()
}

// TestDefaultsOfTheServer proves that the definitions which the other tests use do fill in defaults.
func TestDefaultsOfTheServer(t *testing.T) {
	cluster := testkit.Start(t)
	cluster.InstallCRDs(t, gatewayDefinition(t, "httproutes"))
	in, err := os.ReadFile(filepath.Join("testdata", "standard", "gateway-predictor", "in.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c := readStandard(t, in)
	c.Service.Namespace = cluster.Namespace(t)
	objects, err := Objects(c.Service, c.config())
	if err != nil {
		t.Fatal(err)
	}
	live, err := asHTTPRoute(apply(t, cluster.Client(), objects[0]))
	if err != nil {
		t.Fatal(err)
	}
	if ref := live.Spec.Rules[0].BackendRefs[0]; ref.Weight == nil || *ref.Weight != 1 || ref.Group == nil {
		t.Errorf("the server filled in no weight or group: %+v", ref)
	}
	checkAnswer(t, Accepted(objects[:1], map[string]client.Object{Key(objects[0]): live}, Door{}), false, ReasonNotAnswered, "…has not answered yet")
	live.Status.Parents = []gatewayv1.RouteParentStatus{{
		ParentRef: live.Spec.ParentRefs[0], ControllerName: "example.com/gateway",
		Conditions: []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted",
			LastTransitionTime: metav1.Now(), ObservedGeneration: live.Generation}},
	}}
	status := body(t, live)
	if status.Object["status"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&live.Status); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client().Status().Update(t.Context(), status); err != nil {
		t.Fatal(err)
	}
	if got := Accepted(objects[:1], map[string]client.Object{Key(objects[0]): status}, Door{}); got != nil {
		t.Errorf("an accepted route is not accepted: %+v", got)
	}
}

// gatewayDefinition reads a definition from the module that its types come from.
func gatewayDefinition(t *testing.T, plural string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Fatalf("finding the Gateway API's definitions: %v", err)
	}
	raw, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "standard", "gateway.networking.k8s.io_"+plural+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(raw, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}
