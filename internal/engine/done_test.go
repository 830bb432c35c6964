// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

const request = "test.modelplane.dev/request"

// obedient answers a request in an annotation in two steps, both of which show
// in the status: Asked, then Answered.
type obedient struct{ sample.Kind }

func (k obedient) Plan(s *sample.Sample, seen sample.Seen) engine.Plan {
	p := k.Kind.Plan(s, seen)
	_, asked := s.Annotations[request]
	before := "Idle"
	if c := meta.FindStatusCondition(s.Status.Conditions, "Ready"); c != nil {
		before = c.Reason
	}
	now := before
	switch {
	case before == "Asked":
		now, p.RemoveAnnotations = "Answered", []string{request, "test.modelplane.dev/absent"}
	case asked:
		now, p.RequeueAfter = "Asked", time.Millisecond
	}
	status := p.Status.(*sample.SampleStatus)
	status.Conditions[0].Reason = now
	status.Conditions = append(status.Conditions, metav1.Condition{Type: "First", Status: metav1.ConditionTrue, Reason: "Old",
		Message: "It speaks of the first generation.", ObservedGeneration: 1})
	return p
}

func obedientController() engine.Controller {
	spec := sample.Controller().Spec()
	spec.RemovesAnnotations = true
	return engine.For[*sample.Sample, sample.Seen](obedient{}, spec)
}

func reasonOf(s *sample.Sample) string {
	if c := meta.FindStatusCondition(s.Status.Conditions, "Ready"); c != nil {
		return c.Reason
	}
	return ""
}

// TestRequestsAreTakenOffBeforeTheAnswer: no version of the object says that a
// request was answered and still has it.
func TestRequestsAreTakenOffBeforeTheAnswer(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager), obedientController())
	s := b.Sample("one", sample.SampleSpec{})
	b.Create(t, s)
	b.WaitReady(t, "one")
	if got := counter.Snapshot().Of("patch", "test.modelplane.dev/samples"); got != 0 {
		t.Errorf("%d patches without a request", got)
	}
	w := watchSamples(t, b)
	b.Change(t, s, func() { s.Annotations = map[string]string{request: "", "somebody/else": "stays"} })
	b.WaitReason(t, "one", "Ready", "Answered")
	testkit.NoWrites(t, counter, time.Second, "when the request was answered")
	if got := counter.Snapshot().Of("patch", "test.modelplane.dev/samples"); got != 1 {
		t.Errorf("taking off an annotation took %d patches:\n%s", got, counter)
	}
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	if _, still := s.Annotations[request]; still || s.Annotations["somebody/else"] != "stays" {
		t.Errorf("annotations are %v", s.Annotations)
	}
	w.Stop()
	for e := range w.ResultChan() {
		seen, ok := e.Object.(*sample.Sample)
		if !ok {
			t.Fatalf("watched %v", e.Object)
		}
		if _, asked := seen.Annotations[request]; asked && reasonOf(seen) == "Answered" {
			t.Error("a version says Answered and still has the request")
		}
	}
}

func watchSamples(t *testing.T, b *enginetest.Bench) watch.Interface {
	t.Helper()
	c, err := client.NewWithWatch(b.Config(), client.Options{Scheme: enginetest.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), &sample.SampleList{}, client.InNamespace(b.NS))
	if err != nil {
		t.Fatal(err)
	}
	out := watch.NewRaceFreeFake()
	go func() {
		for e := range w.ResultChan() {
			out.Action(e.Type, e.Object)
		}
	}()
	t.Cleanup(w.Stop)
	return out
}

// TestConditionsKeepTheirOwnGeneration: a plan may say that a condition speaks of
// an earlier generation.
func TestConditionsKeepTheirOwnGeneration(t *testing.T) {
	b := enginetest.NewParallel(t)
	b.Manage(t, b.Manager, obedientController())
	s := b.Sample("one", sample.SampleSpec{})
	b.Create(t, s)
	b.WaitReady(t, "one")
	b.Change(t, s, func() { s.Spec.Message = "again" })
	b.WaitReady(t, "one")
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, "First"); c == nil || c.ObservedGeneration != 1 || s.Generation != 2 {
		t.Errorf("generation %d, condition %+v", s.Generation, c)
	}
}

// TestAnnotatingIsGrantedWhereSaid: the permission follows the Spec.
func TestAnnotatingIsGrantedWhereSaid(t *testing.T) {
	for _, annotates := range []bool{false, true} {
		spec := engine.Spec{Name: "bare", RemovesAnnotations: annotates}
		rules, err := engine.Rules(enginetest.Scheme, engine.For[*sample.Sample, sample.Seen](obedient{}, spec))
		if err != nil {
			t.Fatal(err)
		}
		granted := false
		for _, r := range rules {
			granted = granted || slices.Contains(r.Resources, "samples") && slices.Contains(r.Verbs, "patch")
		}
		if granted != annotates {
			t.Errorf("Annotates %v grants %v", annotates, granted)
		}
	}
}

// keeper leaves its ConfigMap alone while the message says so.
type keeper struct{ sample.Kind }

func (k keeper) Plan(s *sample.Sample, seen sample.Seen) engine.Plan {
	p := k.Kind.Plan(s, seen)
	p.Children[0].Unmanaged = s.Spec.Message == "keep"
	return p
}

func TestKeptChildrenAreLeftAsTheyAre(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager), engine.For[*sample.Sample, sample.Seen](keeper{}, sample.Controller().Spec()))
	s := b.Sample("one", sample.SampleSpec{Message: "first"})
	never := b.Sample("never", sample.SampleSpec{Message: "keep"})
	b.Create(t, s, never)
	b.WaitReady(t, "one", "never")
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(never), enginetest.ConfigMap(b.NS, "never")); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a kept child that is not there must not be made: %v", err)
	}

	b.Change(t, s, func() { s.Spec.Message = "keep" })
	b.WaitReady(t, "one")
	cm := enginetest.ConfigMap(b.NS, "one")
	b.Change(t, cm, func() {
		if cm.Data["message"] != "first" {
			t.Errorf("a kept child was changed: %v", cm.Data)
		}
		cm.Data["message"] = "somebody's"
	})
	testkit.NoWrites(t, counter, time.Second, "because of a kept child")

	b.Change(t, s, func() { s.Spec.Message = "last" })
	testkit.Eventually(t, 30*time.Second, "the child to be planned again", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err != nil {
			return err
		}
		if cm.Data["message"] != "last" {
			return fmt.Errorf("data is %v", cm.Data)
		}
		return nil
	})
	b.Change(t, s, func() { s.Spec.Message = "keep" })
	b.WaitReady(t, "one")
	if err := b.C.Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	testkit.NoWrites(t, counter, time.Second, "because a kept child was deleted")
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err == nil {
		t.Error("a kept child was made again")
	}
}
