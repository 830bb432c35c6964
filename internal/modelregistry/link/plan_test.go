// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/testkit"
)

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1beta1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

// heard is a world with what came of calls: the front matter says "told: ID" for one that succeeded, and "failed: N" for
// one that did not N times.
type heard struct {
	*engine.World
	front map[string][]string
}

func (h heard) Answer(name, key string) engine.Answer {
	failures, _ := strconv.Atoi(first(h.front["failed"]))
	switch {
	case !strings.HasPrefix(key, "0000-uid http"):
		return engine.Answer{}
	case failures > 0:
		return engine.Answer{Failures: failures, Err: refused(503)}
	case name == callTell && h.front["told"] != nil, name == callEnd && h.front["ended"] != nil:
		return engine.Answer{Done: true, Value: Told{first(h.front["told"])}}
	}
	return engine.Answer{}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// decided is what a golden file shows of a decision.
type decided struct {
	Finished     bool                `json:"finished,omitempty"`
	KeepChildren bool                `json:"keepChildren,omitempty"`
	NoFinalizer  bool                `json:"noFinalizer,omitempty"`
	Calls        []engine.Call       `json:"calls,omitempty"`
	Labels       map[string]string   `json:"labels,omitempty"`
	Conditions   []v1beta1.Condition `json:"conditions"`
	NoStatus     bool                `json:"noStatus,omitempty"`
	Events       []engine.Event      `json:"events,omitempty"`
}

func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte {
		front := testkit.FrontMatter(in)
		link := New().WithSettings(Settings{Off: front["off"] != nil, Namespace: first(front["registries"]), URLs: front["url"]})
		end := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if link.now = func() time.Time { return end.Add(time.Minute) }; front["patient"] != nil {
			link.now = func() time.Time { return end.Add(time.Second) }
		}
		isvc, world := read(t, in)
		kind := services{link}
		seen, err := kind.Observe(t.Context(), heard{world, front}, isvc)
		if err != nil {
			t.Fatal(err)
		}
		var ending engine.Ending
		if isvc.DeletionTimestamp != nil {
			ending = kind.Teardown(isvc, seen)
		} else {
			ending.Plan = kind.Plan(isvc, seen)
		}
		p := ending.Plan
		out := decided{Finished: ending.Finished, KeepChildren: p.KeepChildren, NoFinalizer: p.NoFinalizer, Calls: p.Calls, Labels: p.SetLabels,
			Events: p.Events, NoStatus: p.Status == nil}
		if status, ok := p.Status.(*v1beta1.InferenceServiceStatus); ok {
			out.Conditions = status.Conditions
		}
		text, err := yaml.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		return text
	})
}

// read takes the service and what is around it from manifests.
func read(t *testing.T, in []byte) (*v1beta1.InferenceService, *engine.World) {
	t.Helper()
	isvc, world := &v1beta1.InferenceService{}, &engine.World{Scheme: scheme}
	for _, doc := range strings.Split(string(in), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		if u.GetKind() != "InferenceService" {
			world.Objects = append(world.Objects, u)
		} else if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, isvc); err != nil {
			t.Fatal(err)
		}
	}
	return isvc, world
}
