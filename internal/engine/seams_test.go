// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// planned is a sample whose children and calls a test chooses.
type planned struct {
	sample.Kind
	plan func(*sample.Sample, engine.Answer) engine.Plan
}

func (p planned) Observe(_ context.Context, r engine.Reader, _ *sample.Sample) (engine.Answer, error) {
	return r.Answer("greet", ""), nil
}

func (p planned) Plan(s *sample.Sample, a engine.Answer) engine.Plan {
	plan := p.plan(s, a)
	if plan.Status == nil {
		plan.Status = sample.SampleStatus{Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", Message: "All is there."}}}
	}
	return plan
}

func plannedController(change func(*engine.Spec), plan func(*sample.Sample, engine.Answer) engine.Plan) engine.Controller {
	spec := sample.Controller().Spec()
	if change != nil {
		change(&spec)
	}
	return engine.For[*sample.Sample, engine.Answer](planned{plan: plan}, spec)
}

func mapOf(s *sample.Sample, name string) *corev1.ConfigMap {
	cm := enginetest.ConfigMap(s.Namespace, name)
	cm.Data = map[string]string{"message": s.Spec.Message}
	return cm
}

func (p planned) message(t *testing.T, b *enginetest.Bench, name, want string) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, name+" to say "+want, func() error {
		cm := enginetest.ConfigMap(b.NS, name)
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err != nil {
			return err
		}
		if cm.Data["message"] != want {
			return fmt.Errorf("it says %v", cm.Data)
		}
		return nil
	})
}

func TestChildrenThatAreOnlyCreated(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager), plannedController(nil, func(s *sample.Sample, _ engine.Answer) engine.Plan {
		if s.Spec.Headless {
			return engine.Plan{}
		}
		return engine.Plan{Children: []engine.Child{
			{Object: mapOf(s, "made"), CreateOnly: true}, {Object: mapOf(s, "theirs"), CreateOnly: true}, {Object: mapOf(s, "ours")},
		}}
	}))
	theirs := enginetest.ConfigMap(b.NS, "theirs")
	theirs.Data = map[string]string{"message": "of a user"}
	s := b.Sample("one", sample.SampleSpec{Message: "first"})
	b.Create(t, theirs, s)
	b.WaitReady(t, "one")
	made := enginetest.ConfigMap(b.NS, "made")
	b.Change(t, made, func() { made.Data["message"] = "edited" })
	b.Change(t, s, func() { s.Spec.Message = "second" })
	p := planned{}
	p.message(t, b, "ours", "second")
	b.WaitReady(t, "one")
	testkit.NoWrites(t, counter, quietFor, "to what was made once")
	p.message(t, b, "made", "edited")
	p.message(t, b, "theirs", "of a user")
	b.Delete(t, made, theirs) // ours, and what stood in for ours
	p.message(t, b, "made", "second")
	p.message(t, b, "theirs", "second")
	b.WaitEvents(t, "ChildRecreated", 1) // counted twice
	testkit.NoWrites(t, counter, quietFor, "when both are made again")
	b.Change(t, s, func() { s.Spec.Headless = true })
	b.Gone(t, &corev1.ConfigMap{}, "made")
	b.Gone(t, &corev1.ConfigMap{}, "theirs") // ours by now
}

func TestChildrenThatAUserKeeps(t *testing.T) {
	const key = "opendatahub.io/managed"
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager), plannedController(func(s *engine.Spec) { s.OptOut = key },
		func(s *sample.Sample, _ engine.Answer) engine.Plan {
			return engine.Plan{Children: []engine.Child{{Object: mapOf(s, "kept")}}}
		}))
	s := b.Sample("one", sample.SampleSpec{Message: "first"})
	b.Create(t, s)
	b.WaitReady(t, "one")
	cm := enginetest.ConfigMap(b.NS, "kept")
	b.Change(t, cm, func() { cm.Annotations, cm.Data["message"] = map[string]string{key: "false"}, "mine" })
	b.Change(t, s, func() { s.Spec.Message = "second" })
	b.WaitReady(t, "one")
	testkit.NoWrites(t, counter, quietFor, "to what a user keeps")
	planned{}.message(t, b, "kept", "mine")
	b.Change(t, cm, func() { delete(cm.Annotations, key) })
	planned{}.message(t, b, "kept", "second")
}

func TestChildrenOfAnotherOwner(t *testing.T) {
	b := enginetest.NewParallel(t)
	other := enginetest.ConfigMap(b.NS, "other")
	b.Create(t, other)
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: other.Name, UID: other.UID}
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager), plannedController(nil, func(s *sample.Sample, _ engine.Answer) engine.Plan {
		if s.Spec.Headless {
			return engine.Plan{}
		}
		return engine.Plan{Children: []engine.Child{{Object: mapOf(s, "theirs"), Owner: &ref}}}
	}))
	s := b.Sample("one", sample.SampleSpec{Message: "first"})
	b.Create(t, s)
	b.WaitReady(t, "one")
	cm := enginetest.ConfigMap(b.NS, "theirs")
	b.Change(t, cm, func() { cm.Data["message"] = "edited" })
	planned{}.message(t, b, "theirs", "first") // we are woken and repair it
	b.Exists(t, cm, "theirs")
	if owner := metav1.GetControllerOf(cm); owner == nil || owner.UID != other.UID {
		t.Errorf("owners: %v", cm.OwnerReferences)
	}
	testkit.NoWrites(t, counter, quietFor, "when all is there")
	b.Change(t, s, func() { s.Spec.Headless = true })
	b.Gone(t, &corev1.ConfigMap{}, "theirs")
}

func TestLastOneRemovesWhatIsShared(t *testing.T) {
	b := enginetest.New(t)
	stop := b.Manage(t, b.Manager, bundledController())
	one, two := b.Sample("one", sample.SampleSpec{Message: "x"}), b.Sample("two", sample.SampleSpec{Message: "x"})
	b.Create(t, one, two)
	b.WaitReady(t, "one", "two")
	b.Delete(t, one)
	b.WaitGone(t, one)
	waitBundle(t, b, "x")
	stop()
	b.Delete(t, two) // while nobody looks
	three := b.Sample("three", sample.SampleSpec{Message: "x"})
	b.Create(t, three)
	stop = b.Manage(t, b.Manager, bundledController())
	b.WaitReady(t, "three")
	waitBundle(t, b, "x")
	stop()
	b.Delete(t, three)
	four := b.Sample("four", sample.SampleSpec{Message: "x"})
	four.Namespace = b.Namespace(t)
	b.Create(t, four) // the first look after the restart is at an object elsewhere
	b.Manage(t, b.Manager, bundledController())
	b.Gone(t, &corev1.ConfigMap{}, "bundle")
}

// TestLastOneOfTheWatchedNamespaces: a manager that sees some namespaces only knows
// as well who shares a child.
func TestLastOneOfTheWatchedNamespaces(t *testing.T) {
	b := enginetest.NewParallel(t)
	b.Namespace(t)
	b.Manage(t, b.Manager, bundledController())
	one := b.Sample("one", sample.SampleSpec{Message: "x"})
	b.Create(t, one)
	b.WaitReady(t, "one")
	waitBundle(t, b, "x")
	b.Delete(t, one)
	b.Gone(t, &corev1.ConfigMap{}, "bundle")
}

func TestUndeclaredKindIsRefused(t *testing.T) {
	b := enginetest.NewParallel(t)
	b.Manage(t, b.Manager, plannedController(nil, func(s *sample.Sample, _ engine.Answer) engine.Plan {
		return engine.Plan{Children: []engine.Child{{Object: &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}}}}
	}))
	b.Create(t, b.Sample("one", sample.SampleSpec{}))
	c := b.WaitReason(t, "one", "Ready", "BadPlan")
	if !strings.Contains(c.Message, "did not declare") {
		t.Errorf("message: %q", c.Message)
	}
	testkit.Eventually(t, 30*time.Second, "an event", func() error {
		if len(b.Events(t, "BadPlan")) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
}

// TestCallsToOtherSystems: a call is made between Apply and Report, again until it
// succeeds, and once for each request.
func TestCallsToOtherSystems(t *testing.T) {
	b := enginetest.NewParallel(t)
	var calls atomic.Int32
	b.Manage(t, b.Manager, plannedController(func(s *engine.Spec) {
		s.Executor = func(_ context.Context, who types.NamespacedName, c engine.Call) (any, error) {
			if calls.Add(1) < 3 {
				return nil, errors.New("nobody there")
			}
			return fmt.Sprintf("%s to %s", c.Request, who.Name), nil
		}
	}, func(s *sample.Sample, a engine.Answer) engine.Plan {
		plan := engine.Plan{Calls: []engine.Call{{Name: "greet", Request: s.Spec.Message}}}
		if !a.Done {
			plan.Problem = engine.WaitFor("NotGreeted", "Nobody answers. Start the other side.")
			return plan
		}
		cm := enginetest.ConfigMap(s.Namespace, s.Name)
		cm.Data = map[string]string{"message": a.Value.(string)}
		plan.Children = []engine.Child{{Object: cm}}
		return plan
	}))
	s := b.Sample("one", sample.SampleSpec{Message: "hello"})
	b.Create(t, s)
	planned{}.message(t, b, "one", "hello to one")
	b.WaitReady(t, "one")
	if n := calls.Load(); n != 3 {
		t.Errorf("%d calls, want two that fail and one that succeeds", n)
	}
	b.Change(t, s, func() { s.Spec.Message = "goodbye" })
	planned{}.message(t, b, "one", "goodbye to one")
}

// TestSourcesWakeByKey: what changes outside the API server is seen by the object
// that is woken, and by no other.
func TestSourcesWakeByKey(t *testing.T) {
	b := enginetest.NewParallel(t)
	var weather atomic.Value
	weather.Store("rain")
	outside := make(chan types.NamespacedName)
	b.Manage(t, b.Manager, plannedController(func(s *engine.Spec) {
		s.Sources = []engine.EventSource{func(ctx context.Context, wake func(types.NamespacedName)) error {
			for {
				select {
				case who := <-outside:
					wake(who)
				case <-ctx.Done():
					return nil
				}
			}
		}}
	}, func(s *sample.Sample, _ engine.Answer) engine.Plan {
		cm := enginetest.ConfigMap(s.Namespace, s.Name)
		cm.Data = map[string]string{"message": weather.Load().(string)}
		return engine.Plan{Children: []engine.Child{{Object: cm}}}
	}))
	b.Create(t, b.Sample("one", sample.SampleSpec{}), b.Sample("two", sample.SampleSpec{}))
	b.WaitReady(t, "one", "two")
	testkit.Quiet(t, quietFor, "both to be at rest", func() error { return errors.Join(b.Ready(t.Context(), "one"), b.Ready(t.Context(), "two")) })
	weather.Store("sun")
	outside <- types.NamespacedName{Namespace: b.NS, Name: "nobody"}
	outside <- types.NamespacedName{Namespace: b.NS, Name: "one"}
	planned{}.message(t, b, "one", "sun")
	planned{}.message(t, b, "two", "rain")
}

// TestTheVeryObject: a plan that names a UID removes and adopts the object that was
// seen, and not one that somebody made under its name meanwhile.
func TestTheVeryObject(t *testing.T) {
	b := enginetest.NewParallel(t)
	uids := map[string]types.UID{"gone-another": "seen-before", "adopted-another": "seen-before"}
	for _, name := range []string{"gone", "gone-another", "adopted", "adopted-another"} {
		cm := enginetest.ConfigMap(b.NS, name)
		b.Create(t, cm)
		if uids[name] == "" {
			uids[name] = cm.UID
		}
	}
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager), plannedController(nil, func(s *sample.Sample, _ engine.Answer) engine.Plan {
		child := func(name string) *corev1.ConfigMap {
			cm := mapOf(s, name)
			cm.UID = uids[name]
			return cm
		}
		deleting := []engine.Child{{Object: child("gone"), Delete: true}, {Object: child("adopted"), Adopt: true}}
		switch s.Name {
		case "deletes-another":
			return engine.Plan{Children: []engine.Child{{Object: child("gone-another"), Delete: true}}}
		case "adopts-another":
			return engine.Plan{Children: []engine.Child{{Object: child("adopted-another"), Adopt: true}}}
		case "nameless":
			return engine.Plan{Children: []engine.Child{{Object: mapOf(s, "gone-another"), Delete: true}}}
		}
		return engine.Plan{Children: deleting}
	}))
	b.Create(t, b.Sample("one", sample.SampleSpec{Message: "hi"}), b.Sample("adopts-another", sample.SampleSpec{}),
		b.Sample("deletes-another", sample.SampleSpec{}), b.Sample("nameless", sample.SampleSpec{}))
	b.Gone(t, &corev1.ConfigMap{}, "gone")
	planned{}.message(t, b, "adopted", "hi")
	b.WaitReason(t, "adopts-another", "Ready", "NameTaken")
	b.WaitReason(t, "nameless", "Ready", "BadPlan")
	testkit.Eventually(t, 30*time.Second, "both to be deleted, or not", func() error {
		if n := counter.Snapshot().Of("delete", "configmaps"); n < 2 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	for _, name := range []string{"gone-another", "adopted-another"} {
		cm := enginetest.ConfigMap(b.NS, name)
		b.Exists(t, cm, name)
		if cm.Labels[engine.LabelOwner] != "" {
			t.Errorf("%s was taken: %v", name, cm.Labels)
		}
	}
}

// marker puts a ConfigMap into every namespace that asks for it.
type marker struct{}

func (marker) Observe(context.Context, engine.Reader, *corev1.Namespace) (struct{}, error) {
	return struct{}{}, nil
}

func (marker) Plan(ns *corev1.Namespace, _ struct{}) engine.Plan {
	plan := engine.Plan{Children: []engine.Child{{Object: enginetest.ConfigMap(ns.Name, "marked")}}}
	if ns.Annotations["trouble"] != "" {
		plan.Problem = engine.MustChange("Trouble", "The namespace has trouble. Take the annotation off.")
	}
	return plan
}

// TestObjectsWithoutAStatus: Namespaces that are picked by a label.
func TestObjectsWithoutAStatus(t *testing.T) {
	b := enginetest.New(t)
	elsewhere := b.Namespace(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Config()), engine.For[*corev1.Namespace, struct{}](marker{}, engine.Spec{
		Name: "marker", NoStatus: true, Select: labels.SelectorFromSet(labels.Set{"marked": b.NS}),
		Children: []engine.ChildKind{{Object: &corev1.ConfigMap{}}},
	}))
	ns := &corev1.Namespace{}
	ns.Name = b.NS
	b.Change(t, ns, func() { metav1.SetMetaDataLabel(&ns.ObjectMeta, "marked", b.NS) })
	b.Exists(t, &corev1.ConfigMap{}, "marked")
	b.Change(t, ns, func() { metav1.SetMetaDataAnnotation(&ns.ObjectMeta, "trouble", "yes") })
	testkit.Eventually(t, 30*time.Second, "an event about it", func() error {
		list := &corev1.EventList{}
		if err := b.C.List(t.Context(), list, client.MatchingFields{"reason": "Trouble"}); err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("%d events", len(list.Items))
		}
		return nil
	})
	testkit.NoWrites(t, counter, quietFor, "when all is said")
	err := b.C.Get(t.Context(), client.ObjectKey{Namespace: elsewhere, Name: "marked"}, &corev1.ConfigMap{})
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a namespace that did not ask was marked: %v", err)
	}
	if n := counter.Snapshot().Of("patch", "namespaces/status"); n != 0 {
		t.Errorf("%d writes of a status", n)
	}
}
