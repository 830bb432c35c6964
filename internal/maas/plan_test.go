// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/testkit"
)

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// policies are the controllers of published models, and of who may use how much of them.
func policies(d *Domain) []engine.Controller {
	names := []string{"maas-model", "maas-subscription", "maas-authpolicy", "maas-gateway"}
	return slices.DeleteFunc(d.Controllers(), func(c engine.Controller) bool { return !slices.Contains(names, c.Name()) })
}

// decided is what a golden file shows of a decision.
type decided struct {
	Children     []map[string]any `json:"children,omitempty"`
	KeepChildren bool             `json:"keepChildren,omitempty"`
	Problem      string           `json:"problem,omitempty"`
	Events       []engine.Event   `json:"events,omitempty"`
	Status       map[string]any   `json:"status,omitempty"`
}

// TestPlan: the first object of a case is decided about, and the others are the world. "# without: GROUP" says which API the
// cluster does not serve.
func TestPlan(t *testing.T) {
	for _, what := range []string{"models", "subscriptions", "authpolicies", "gateways"} {
		t.Run(what, func(t *testing.T) {
			testkit.Golden(t, "testdata/"+what, func(t *testing.T, in []byte) []byte {
				objects := read(t, in)
				world := &engine.World{Scheme: scheme, Objects: objects, Without: testkit.FrontMatter(in)["without"]}
				obj, controller := subject(t, objects[0])
				d, err := controller.Decide(t.Context(), obj, world)
				if err != nil {
					t.Fatal(err)
				}
				return render(t, d)
			})
		})
	}
}

func read(t *testing.T, in []byte) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, doc := range strings.Split(string(in), "\n---\n") {
		u := &unstructured.Unstructured{}
		raw, err := yaml.YAMLToJSON([]byte(doc))
		if err == nil {
			err = u.UnmarshalJSON(raw)
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

// subject is the object with its type, and the controller that looks after it.
func subject(t *testing.T, u *unstructured.Unstructured) (client.Object, engine.Controller) {
	t.Helper()
	for _, c := range policies(New()) {
		gvk, err := apiutil.GVKForObject(c.Object(), scheme)
		if err != nil {
			t.Fatal(err)
		}
		if gvk != u.GroupVersionKind() {
			continue
		}
		typed, err := scheme.New(gvk)
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed)
		}
		obj, ok := typed.(client.Object)
		if err != nil || !ok {
			t.Fatalf("%T: %v", typed, err)
		}
		return obj, c
	}
	t.Fatalf("nobody looks after %s", u.GetKind())
	return nil, nil
}

func render(t *testing.T, d engine.Decision) []byte {
	t.Helper()
	out := decided{KeepChildren: d.KeepChildren, Events: d.Events, Status: d.Status}
	for _, c := range d.Children {
		out.Children = append(out.Children, c.Object)
	}
	if d.Problem != nil {
		out.Problem = string(d.Problem.Family) + " " + d.Problem.Reason + ": " + d.Problem.Message
	}
	raw, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.JSONToYAML(raw)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestKeepsNothing: what was seen of an object is gone with the look.
func TestKeepsNothing(t *testing.T) {
	world := &engine.World{Scheme: scheme}
	controllers := policies(New())
	domaintest.KeepsNothing(t, controllers[0], world, func() *v1alpha1.MaaSModelRef {
		m := &v1alpha1.MaaSModelRef{}
		m.Namespace, m.Name, m.Spec.ModelRef = "llm", "llama", v1alpha1.BackendRef{Kind: v1alpha1.LLMInferenceServiceModel, Name: "llama"}
		return m
	})
	domaintest.KeepsNothing(t, controllers[1], world, func() *v1alpha1.MaaSSubscription {
		s := &v1alpha1.MaaSSubscription{}
		s.Namespace, s.Name = "models-as-a-service", "gold"
		return s
	})
}
