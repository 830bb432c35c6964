// SPDX-License-Identifier: Apache-2.0

package predictors

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/modelmesh/client"
	"github.com/modelplane/modelplane/internal/modelmesh/model"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
	"github.com/modelplane/modelplane/internal/testkit"
)

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s), v1beta1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

// now is the present of plans.
var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const service = "modelmesh-serving"

// settingsOf is a platform whose home is a namespace.
func settingsOf(home string) Settings {
	return func(context.Context, engine.Reader) (Platform, error) {
		return Platform{
			Home: home, Service: service, Port: 8033, RESTPort: 8008, EtcdSecret: "model-serving-etcd",
			Enabled: func(ns metav1.Object) bool {
				return ns.GetLabels()["modelmesh-enabled"] == "true" && ns.GetDeletionTimestamp() == nil
			},
		}, nil
	}
}

// heard is the document of a case that says what the mesh has said.
type heard struct {
	// Other says that it was asked for another model.
	Other bool `json:"other"`
	Taken bool `json:"taken"`
	// Ago is how many seconds ago it was, and Pods which pods there were.
	Ago     int    `json:"ago"`
	Attempt int    `json:"attempt"`
	Pods    string `json:"pods"`
	After   int64  `json:"after"`
	// Status is what it said, with ACTIVE for the id of the model that is asked for.
	Status json.RawMessage `json:"status"`
	View   *client.View    `json:"view"`
	Told   bool            `json:"told"`
	// Fails are failures in a row of every call, and Deleted says that the mesh has forgotten the object.
	Fails   int  `json:"fails"`
	Deleted bool `json:"deleted"`
}

// decided is what a golden file shows of a decision.
type decided struct {
	Finished    bool            `json:"finished,omitempty"`
	NoFinalizer bool            `json:"noFinalizer,omitempty"`
	Calls       []string        `json:"calls,omitempty"`
	Again       string          `json:"again,omitempty"`
	Problem     string          `json:"problem,omitempty"`
	Events      []engine.Event  `json:"events,omitempty"`
	Status      json.RawMessage `json:"status,omitempty"`
}

func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte {
		d := New(settingsOf("models"))
		d.now = func() time.Time { return now }
		predictor, isvc, said, world := read(t, in)
		var ending engine.Ending
		if isvc != nil {
			ending = decide(t, services{d}, isvc, said, world, serviceTask(isvc, Seen{}).model)
		} else {
			ending = decide(t, predictors{d}, predictor, said, world, predictorTask(predictor, Seen{}).model)
		}
		return render(t, ending)
	})
}

// deciding is what both kinds can.
type deciding[T any] interface {
	Observe(ctx context.Context, r engine.Reader, obj T) (Seen, error)
	Plan(obj T, seen Seen) engine.Plan
	Teardown(obj T, seen Seen) engine.Ending
}

func decide[T metav1.Object](t *testing.T, kind deciding[T], obj T, said *heard, world *engine.World, m model.Model) engine.Ending {
	t.Helper()
	seen, err := kind.Observe(t.Context(), world, obj)
	if err != nil {
		t.Fatal(err)
	}
	if said != nil {
		said.apply(t, &seen, m)
	}
	if obj.GetDeletionTimestamp() != nil {
		return kind.Teardown(obj, seen)
	}
	return engine.Ending{Plan: kind.Plan(obj, seen)}
}

// apply puts what was heard into what is seen.
func (h *heard) apply(t *testing.T, seen *Seen, m model.Model) {
	t.Helper()
	if h.Fails > 0 {
		const told = "The mesh does not answer. Check it."
		failed := engine.Answer{Err: errors.New(told), Failures: h.Fails}
		seen.Set, seen.Status, seen.Deleted = failed, failed, failed
	}
	seen.Deleted.Done = h.Deleted
	if h.View != nil {
		seen.View = *h.View
	}
	seen.Told = h.Told
	if h.Status == nil && !h.Taken {
		return
	}
	seen.Asked = true
	seen.Last = client.Answer{ID: m.ID, Taken: h.Taken, After: h.After, Attempt: h.Attempt, At: now.Add(-time.Duration(h.Ago) * time.Second), Pods: seen.Mesh.Pods()}
	if h.Other {
		seen.Last.ID = "another"
	}
	if h.Pods != "" {
		seen.Last.Pods = h.Pods
	}
	if h.Status != nil {
		seen.Last.Status = &wire.VModelStatusInfo{}
		if err := protojson.Unmarshal([]byte(strings.ReplaceAll(string(h.Status), "ACTIVE", m.ID)), seen.Last.Status); err != nil {
			t.Fatal(err)
		}
	}
	if h.View != nil {
		seen.View.Active = strings.ReplaceAll(seen.View.Active, "ACTIVE", m.ID)
		seen.View.Target = strings.ReplaceAll(seen.View.Target, "ACTIVE", m.ID)
	}
}

func render(t *testing.T, e engine.Ending) []byte {
	t.Helper()
	out := decided{Finished: e.Finished, NoFinalizer: e.NoFinalizer, Events: e.Events}
	for _, c := range e.Calls {
		q, ok := c.Request.(client.Question)
		if !ok {
			t.Fatalf("%s asks %T", c.Name, c.Request)
		}
		text := c.Name + ": " + q.String()
		if q.Load {
			text += ", now"
		}
		if q.Attempt > 0 {
			text += ", attempt " + strconv.Itoa(q.Attempt)
		}
		out.Calls = append(out.Calls, text)
	}
	if e.RequeueAfter > 0 {
		out.Again = e.RequeueAfter.String()
	}
	if e.Problem != nil {
		out.Problem = string(e.Problem.Family) + " " + e.Problem.Reason
	}
	if e.Status != nil {
		raw, err := json.Marshal(e.Status)
		if err != nil {
			t.Fatal(err)
		}
		out.Status = json.RawMessage(strings.ReplaceAll(strings.ReplaceAll(string(raw), `"lastTransitionTime":null,`, ""), `,"lastTransitionTime":null`, ""))
	}
	text, err := yaml.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// read takes the object, and what is around it, from manifests.
func read(t *testing.T, in []byte) (p *v1alpha1.Predictor, isvc *v1beta1.InferenceService, said *heard, world *engine.World) {
	t.Helper()
	world = &engine.World{Scheme: scheme}
	for _, doc := range strings.Split(string(in), "\n---\n") {
		u := &unstructured.Unstructured{}
		raw, err := yaml.YAMLToJSON([]byte(doc))
		if err == nil {
			err = json.Unmarshal(raw, &u.Object)
		}
		if err != nil {
			t.Fatal(err)
		}
		var into any
		switch u.GetKind() {
		case "Predictor":
			p = &v1alpha1.Predictor{}
			into = p
		case "InferenceService":
			isvc = &v1beta1.InferenceService{}
			into = isvc
		case "":
			said = &heard{}
			into = said
		default:
			world.Objects = append(world.Objects, u)
			continue
		}
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
	}
	return p, isvc, said, world
}

// TestKeepsNothing: what was seen of an object is gone with the look.
func TestKeepsNothing(t *testing.T) {
	controllers := New(settingsOf("models")).Controllers()
	world := &engine.World{Scheme: scheme}
	domaintest.KeepsNothing(t, controllers[0], world, func() *v1alpha1.Predictor {
		return &v1alpha1.Predictor{ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "iris"}}
	})
	domaintest.KeepsNothing(t, controllers[1], world, func() *v1beta1.InferenceService {
		return &v1beta1.InferenceService{ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "iris",
			Annotations: map[string]string{v1beta1.AnnotationDeploymentMode: model.Mode}}}
	})
}

// TestPauses: those between questions grow, and end at a minute.
func TestPauses(t *testing.T) {
	var all []time.Duration
	for i := range 9 {
		all = append(all, pause(i))
	}
	if !slices.IsSorted(all) || all[0] != time.Second || all[8] != time.Minute {
		t.Errorf("pauses are %v", all)
	}
}

// TestNoRoom: a model for which there is no room at the moment is no failed one, whatever the mesh says of the reason.
func TestNoRoom(t *testing.T) {
	got := decodeModel(&wire.ModelStatusInfo{Status: wire.ModelStatusInfo_NOT_LOADED, Errors: []string{"the model iris does not fit"}})
	if want := (decoded{state: v1beta1.Standby}); got != want {
		t.Errorf("%+v", got)
	}
	tried := &wire.ModelStatusInfo{Status: wire.ModelStatusInfo_LOADING, Errors: []string{"it failed elsewhere"}}
	if got := decodeModel(tried); got.reason != v1alpha1.ModelLoadFailed {
		t.Errorf("%+v", got)
	}
}

// TestOwnEtcd: the records of a namespace that brought its own etcd are those below its root, and nobody watches them.
func TestOwnEtcd(t *testing.T) {
	secret := func(namespace string, labels map[string]string) string {
		raw, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": namespace, "name": "model-serving-etcd", "labels": labels},
			"data": map[string][]byte{"etcd_connection": []byte(`{"endpoints":"http://etcd:2379"}`)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	const object = `{"apiVersion":"serving.kserve.io/v1alpha1","kind":"Predictor","metadata":{"namespace":"models","name":"iris"},"spec":{"modelType":{"name":"onnx"},"path":"a"}}`
	for name, c := range map[string]struct {
		labels map[string]string
		alone  bool
	}{
		"brought": {nil, true},
		"ours":    {map[string]string{engine.LabelOwner: "uid"}, false},
		"left":    {map[string]string{"app.kubernetes.io/managed-by": "modelmesh-controller"}, false},
	} {
		p, _, _, world := read(t, []byte(strings.Join([]string{object, secret("home", nil), secret("models", c.labels)}, "\n---\n")))
		d := New(settingsOf("home"))
		seen, err := predictors{d}.Observe(t.Context(), world, p)
		if err != nil {
			t.Fatal(err)
		}
		if seen.Mesh.Alone != c.alone || seen.Mesh.Etcd == nil {
			t.Errorf("%s: %+v", name, seen.Mesh)
		}
	}
}
