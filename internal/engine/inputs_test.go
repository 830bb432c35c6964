// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// podCounter writes the number of an object's pods into a ConfigMap. It sees
// only pods with the label "counted", and only those of its own app wake it.
type podCounter struct {
	looks   atomic.Int32
	indexed bool
}

func byApp(o client.Object) []string { return []string{o.GetLabels()["app"]} }

func (c *podCounter) controller(t *testing.T) engine.Controller {
	t.Helper()
	selector, err := labels.Parse("counted")
	if err != nil {
		t.Fatal(err)
	}
	pods := engine.Input{Object: &corev1.Pod{}, Select: selector}
	if c.indexed {
		pods.Index = byApp
	}
	return engine.For[*sample.Sample, int](c, engine.Spec{
		Name:     "podcounter",
		Children: []engine.ChildKind{{Object: &corev1.ConfigMap{}}},
		Inputs:   []engine.Input{pods},
	})
}

func (c *podCounter) Observe(ctx context.Context, r engine.Reader, s *sample.Sample) (int, error) {
	c.looks.Add(1)
	pods := &corev1.PodList{}
	if c.indexed {
		err := r.List(ctx, pods, client.InNamespace(s.Namespace), engine.Indexed(s.Name))
		return len(pods.Items), err
	}
	mine := engine.MatchingFunc(func(o client.Object) bool { return o.GetLabels()["app"] == s.Name })
	err := r.List(ctx, pods, client.InNamespace(s.Namespace), client.MatchingLabels{"app": s.Name}, mine)
	return len(pods.Items), err
}

func (c *podCounter) Plan(s *sample.Sample, pods int) engine.Plan {
	cm := enginetest.ConfigMap(s.Namespace, s.Name)
	cm.Data = map[string]string{"pods": strconv.Itoa(pods)}
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Counted", Message: "The pods are counted."}
	return engine.Plan{Children: []engine.Child{{Object: cm}}, Status: sample.SampleStatus{Conditions: []metav1.Condition{ready}}}
}

func TestSelectedInputsWakeOnlyThoseConcerned(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]*podCounter{"matching": {}, "indexed": {indexed: true}} {
		t.Run(name, func(t *testing.T) { countPods(t, kind) })
	}
}

func countPods(t *testing.T, kind *podCounter) {
	b := enginetest.NewParallel(t)
	b.Manage(t, b.Config(), kind.controller(t))
	b.Create(t, b.Sample("one", sample.SampleSpec{}))
	b.WaitReady(t, "one")
	pod := func(name string, l map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name, Labels: l},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}}}
	}
	mine := pod("mine", map[string]string{"counted": "", "app": "one"})
	b.Create(t, pod("hidden", map[string]string{"app": "one"}), mine)
	counted(t, b, "1")

	looks := func() int { return int(kind.looks.Load()) }
	settled := testkit.Rest(t, settleFor, "the last look", looks)
	b.Create(t, pod("other", map[string]string{"counted": "", "app": "two"}))
	testkit.Quiet(t, quietFor, "nobody to look because of another's pod", func() error {
		if now := looks(); now != settled {
			return fmt.Errorf("%d looks more", now-settled)
		}
		return nil
	})
	if err := b.C.Delete(t.Context(), mine, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	counted(t, b, "0")
}

func counted(t *testing.T, b *enginetest.Bench, want string) {
	t.Helper()
	testkit.Eventually(t, domaintest.Patience, want+" pods to be counted", func() error {
		cm := enginetest.ConfigMap(b.NS, "one")
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err != nil {
			return err
		}
		if cm.Data["pods"] != want {
			return fmt.Errorf("counted %s", cm.Data["pods"])
		}
		return nil
	})
}

// twice sees pods of two selections, and asks for two sorts of them.
type twice struct{ podCounter }

func (*twice) Observe(ctx context.Context, r engine.Reader, s *sample.Sample) (int, error) {
	seen := map[string]bool{}
	for _, label := range []string{"app", "tier"} {
		pods := &corev1.PodList{}
		mine := engine.MatchingFunc(func(o client.Object) bool { return o.GetLabels()[label] == s.Name })
		if err := r.List(ctx, pods, client.InNamespace(s.Namespace), client.MatchingLabels{label: s.Name}, mine); err != nil {
			return 0, err
		}
		for _, p := range pods.Items {
			if err := r.Get(ctx, client.ObjectKeyFromObject(&p), &corev1.Pod{}); err != nil {
				return 0, err
			}
			seen[p.Name] = true
		}
	}
	return len(seen), nil
}

func (c *twice) controller() engine.Controller {
	has := func(label string) labels.Selector {
		exists, err := labels.NewRequirement(label, selection.Exists, nil)
		if err != nil {
			panic(err)
		}
		return labels.NewSelector().Add(*exists)
	}
	return engine.For[*sample.Sample, int](c, engine.Spec{
		Name: "twice", Children: []engine.ChildKind{{Object: &corev1.ConfigMap{}}},
		Inputs: []engine.Input{{Object: &corev1.Pod{}, Select: has("counted")}, {Object: &corev1.Pod{}, Select: has("weighed")}},
	})
}

// TestAKindThatIsReadTwice: an object is woken by whatever it listed, and sees what
// any of its inputs selects.
func TestAKindThatIsReadTwice(t *testing.T) {
	b := enginetest.NewParallel(t)
	b.Manage(t, b.Config(), (&twice{}).controller())
	b.Create(t, b.Sample("one", sample.SampleSpec{}))
	b.WaitReady(t, "one")
	add := func(name string, have ...string) {
		l := map[string]string{}
		for _, label := range have {
			l[label] = "one"
		}
		b.Create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name, Labels: l},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}}})
	}
	remove := func(name string) {
		b.Delete(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}})
	}
	add("a", "counted", "app")
	counted(t, b, "1")
	add("b", "weighed", "tier")
	counted(t, b, "2")
	add("both", "counted", "weighed", "app", "tier")
	counted(t, b, "3")
	for i, name := range []string{"a", "b", "both"} {
		remove(name)
		counted(t, b, strconv.Itoa(2-i))
	}
}

// TestIndexWithoutCluster: a decision is the same where nothing is indexed.
func TestIndexWithoutCluster(t *testing.T) {
	world := &engine.World{Scheme: enginetest.Scheme}
	for name, app := range map[string]string{"a": "one", "b": "one", "c": "two"} {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("v1")
		u.SetKind("Pod")
		u.SetNamespace("ns")
		u.SetName(name)
		u.SetLabels(map[string]string{"app": app})
		world.Objects = append(world.Objects, u)
	}
	s := &sample.Sample{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}}
	d, err := (&podCounter{indexed: true}).controller(t).Decide(t.Context(), s, world)
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := unstructured.NestedString(d.Children[0].Object, "data", "pods"); n != "2" {
		t.Errorf("counted %s", n)
	}
	if err := world.List(t.Context(), &corev1.PodList{}, engine.Indexed("one")); err == nil {
		t.Error("an index that nobody gave was used")
	}
}
