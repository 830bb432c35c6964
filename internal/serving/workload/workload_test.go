// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/workload"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// input is the in.yaml of a golden case: what differs from the part of every case, and which objects the case is about.
type input struct {
	Part   workload.Part
	Config config.Config
	Show   []string
}

// read fills in what every case has in common: a predictor named iris.
func read(t *testing.T, raw []byte) input {
	t.Helper()
	in := input{
		Part: workload.Part{
			Component: v1beta1.PredictorComponent, IsvcName: "iris", Name: "iris-predictor", Namespace: "shop", Generation: 3,
			Labels: map[string]string{v1beta1.LabelInferenceService: "iris", v1beta1.LabelComponent: "predictor"},
		},
		Config: *config.Default(),
	}
	if err := yaml.UnmarshalStrict(raw, &in); err != nil {
		t.Fatal(err)
	}
	return in
}

// objects are all that a part leads to, by the name under which a case asks for them.
func objects(in input) (all []client.Object, shown []client.Object) {
	add := func(name string, obj client.Object) {
		all = append(all, obj)
		for _, s := range in.Show {
			if s == name {
				shown = append(shown, obj)
			}
		}
	}
	add("deployment", workload.Deployment(in.Part, &in.Config))
	if d := workload.WorkerDeployment(in.Part, &in.Config); d != nil {
		add("worker", d)
	}
	add("service", workload.Service(in.Part, &in.Config))
	for _, s := range workload.MultiNodeServices(in.Part) {
		add("group", s)
	}
	for _, a := range workload.Autoscaler(in.Part, &in.Config) {
		add("autoscaler", a)
	}
	return all, shown
}

// sent is the form in which the engine sends an object: the fields that somebody set.
func sent(t testing.TB, obj client.Object) *unstructured.Unstructured {
	t.Helper()
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj.DeepCopyObject())
	if err != nil {
		t.Fatal(err)
	}
	delete(body, "status")
	return &unstructured.Unstructured{Object: prune(body)}
}

func prune(m map[string]any) map[string]any {
	for k, v := range m {
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			if prune(v); len(v) == 0 && (k == "resources" || k == "strategy") {
				delete(m, k)
			}
		case []any:
			for _, e := range v {
				if e, ok := e.(map[string]any); ok {
					prune(e)
				}
			}
		}
	}
	return m
}

func TestGolden(t *testing.T) {
	testkit.Golden(t, "testdata/rules", func(t *testing.T, raw []byte) []byte {
		_, shown := objects(read(t, raw))
		if len(shown) == 0 {
			return []byte("# nothing\n")
		}
		var docs [][]byte
		for _, obj := range shown {
			doc, err := yaml.Marshal(sent(t, obj).Object)
			if err != nil {
				t.Fatal(err)
			}
			docs = append(docs, doc)
		}
		return bytes.Join(docs, []byte("---\n"))
	})
}

// A part is shared between rooms: what is made of it must neither change it nor share its maps, and must be the same
// each time.
func TestPartIsLeftAlone(t *testing.T) {
	for _, path := range inputs(t, "testdata/rules") {
		in, before := readFile(t, path), readFile(t, path)
		first, _ := objects(in)
		saved := encode(t, first)
		for _, obj := range first {
			scribble(obj)
		}
		if !reflect.DeepEqual(in, before) {
			t.Errorf("%s: the part was changed", path)
		}
		again, _ := objects(in)
		if encode(t, again) != saved {
			t.Errorf("%s: a second look gives another result", path)
		}
	}
}

func scribble(obj client.Object) {
	for _, m := range []map[string]string{obj.GetLabels(), obj.GetAnnotations()} {
		for k := range m {
			m[k] = "scribble"
		}
	}
}

func encode(t *testing.T, objs []client.Object) string {
	t.Helper()
	var b strings.Builder
	for _, obj := range objs {
		raw, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(raw)
	}
	return b.String()
}

func TestReplicas(t *testing.T) {
	for _, tc := range []struct {
		name    string
		class   string
		fixed   *int32
		min     *int32
		worker  bool
		want    *int32
		initial bool
		scaler  bool
	}{
		{name: "the default starts with one pod", want: ptr.To[int32](1), initial: true, scaler: true},
		{name: "an autoscaler's lower bound is where it starts", min: ptr.To[int32](3), want: ptr.To[int32](3), initial: true, scaler: true},
		{name: "an HPA never starts with nothing", min: ptr.To[int32](0), want: ptr.To[int32](1), initial: true, scaler: true},
		{name: "KEDA measures before it scales down", class: "keda", min: ptr.To[int32](0), want: ptr.To[int32](1), initial: true, scaler: true},
		{name: "somebody else scales", class: "external", min: ptr.To[int32](3)},
		{name: "nobody scales", class: "none", min: ptr.To[int32](3), want: ptr.To[int32](3)},
		{name: "nobody scales and nothing is said", class: "none"},
		{name: "nobody scales from zero", class: "none", min: ptr.To[int32](0), want: ptr.To[int32](0)},
		{name: "an unknown class scales nothing", class: "kpa", min: ptr.To[int32](2), want: ptr.To[int32](2)},
		{name: "a fixed number wins", fixed: ptr.To[int32](2), min: ptr.To[int32](5), want: ptr.To[int32](2), scaler: true},
		{name: "a fixed number of nothing", fixed: ptr.To[int32](0), want: ptr.To[int32](0)},
		{name: "a fixed number that nobody scales", class: "none", fixed: ptr.To[int32](2), want: ptr.To[int32](2)},
		{name: "a group keeps its size", worker: true, min: ptr.To[int32](2)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := workload.Part{Name: "iris-predictor", Replicas: tc.fixed, Annotations: map[string]string{}}
			p.Scale.MinReplicas = tc.min
			if tc.class != "" {
				p.Annotations[v1beta1.AnnotationAutoscalerClass] = tc.class
			}
			if tc.worker {
				p.Worker = &workload.Worker{Name: "iris-predictor-worker", Replicas: 1}
			}
			got := workload.Deployment(p, config.Default()).Spec.Replicas
			if !ptr.Equal(got, tc.want) {
				t.Errorf("replicas = %v, want %v", ptr.Deref(got, -1), ptr.Deref(tc.want, -1))
			}
			if got := workload.InitialReplicas(p); got != tc.initial {
				t.Errorf("initial = %v, want %v", got, tc.initial)
			}
			if got := len(workload.Autoscaler(p, config.Default())) > 0; got != tc.scaler {
				t.Errorf("autoscaler = %v, want %v", got, tc.scaler)
			}
		})
	}
}
