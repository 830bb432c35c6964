// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

func controlledBy(s *sample.Sample) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(s, sample.GroupVersion.WithKind("Sample"))}
}

// TestApplyCanMakeOnly: what the engine relies on to touch nothing that is there.
func TestApplyCanMakeOnly(t *testing.T) {
	b := enginetest.NewParallel(t)
	for _, gvk := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Service"), sample.GroupVersion.WithKind("Sample"),
	} {
		apply := func(mark string, set func(*unstructured.Unstructured)) error {
			u := &unstructured.Unstructured{Object: map[string]any{}}
			u.SetGroupVersionKind(gvk)
			u.SetNamespace(b.NS)
			u.SetName("only")
			u.SetAnnotations(map[string]string{"mark": mark})
			switch gvk.Kind {
			case "Service":
				u.Object["spec"] = map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}
			case "Sample":
				u.Object["spec"] = map[string]any{}
			}
			set(u)
			return b.C.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.ForceOwnership, client.FieldOwner("modelplane-x"))
		}
		mark := func() string {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(gvk)
			if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "only"}, u); err != nil {
				t.Fatal(err)
			}
			return u.GetAnnotations()["mark"]
		}
		unheardOf := func(u *unstructured.Unstructured) { u.SetResourceVersion("1") }
		if err := apply("first", func(u *unstructured.Unstructured) { u.SetUID("another") }); !apierrors.IsConflict(err) {
			t.Errorf("%s: made although another object was meant: %v", gvk.Kind, err)
		}
		if err := apply("first", unheardOf); err != nil {
			t.Errorf("%s: not made: %v", gvk.Kind, err)
		}
		if err := apply("second", unheardOf); !apierrors.IsConflict(err) || mark() != "first" {
			t.Errorf("%s: what was there was changed: %v", gvk.Kind, err)
		}
		if err := apply("third", func(u *unstructured.Unstructured) { u.SetUID("another") }); err == nil || mark() != "first" {
			t.Errorf("%s: another object than the one that was meant was changed: %v", gvk.Kind, err)
		}
	}
}

// TestWhatIsNotOursIsLeftAlone: a name that somebody else holds is told of, and
// the child is made when the name is free, without anybody touching the object.
func TestWhatIsNotOursIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec    sample.SampleSpec
		set     func(theirs, boss *corev1.ConfigMap)
		reason  string
		message string
	}{
		"nobodys": {reason: "NameTaken", message: "was not made for Sample nobodys"},
		"taken": {reason: "OwnedByAnother", message: "ConfigMap boss", set: func(cm, boss *corev1.ConfigMap) {
			cm.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(boss, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
		}},
		"far": {reason: "OwnedByAnother", message: "Other.example.com/elsewhere/other", set: func(cm, _ *corev1.ConfigMap) {
			cm.Labels = map[string]string{engine.LabelOwner: "5f4e"}
			cm.Annotations = map[string]string{engine.AnnotationOwner: "Other.example.com/elsewhere/other"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := enginetest.NewParallel(t)
			counter := testkit.NewCounter()
			b.Manage(t, counter.Wrap(b.Manager))
			boss := enginetest.ConfigMap(b.NS, "boss")
			b.Create(t, boss)
			theirs := enginetest.ConfigMap(b.NS, name)
			theirs.Data = map[string]string{"message": "theirs"}
			if tc.set != nil {
				tc.set(theirs, boss)
			}
			b.Create(t, theirs, b.Sample(name, tc.spec))
			c := b.WaitReason(t, name, "Ready", tc.reason)
			if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, tc.message) {
				t.Errorf("the condition is %+v", c)
			}
			lookedAgain(t, counter)
			testkit.NoWrites(t, counter, quietFor, "while the name is taken")
			seen := enginetest.ConfigMap(b.NS, name)
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(seen), seen); err != nil {
				t.Fatal(err)
			}
			if seen.ResourceVersion != theirs.ResourceVersion {
				t.Errorf("it was touched: %+v", seen)
			}
			// Later stages are not begun, and freeing the name is enough.
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(seen), enginetest.Deployment(b.NS, name)); !apierrors.IsNotFound(err) {
				t.Errorf("the Deployment of a later stage must not exist: %v", err)
			}
			before := counter.Snapshot()
			b.Change(t, seen, func() { seen.Data["more"] = "words" }) // tells us nothing
			testkit.NoWrites(t, counter, quietFor, "because of what does not concern us")
			if since := counter.Since(before); since.Total() != 0 {
				t.Errorf("a change that does not free the name costs requests:\n%s", since)
			}
			if err := b.C.Delete(t.Context(), seen); err != nil {
				t.Fatal(err)
			}
			b.WaitReady(t, name)
		})
	}
}

// lookedAgain waits for the one more try that may have been on its way when the
// condition was written, say because the end of a child was seen after that of its
// namespace, and for the watch on what is in the way.
func lookedAgain(t *testing.T, counter *testkit.Counter) {
	t.Helper()
	testkit.Rest(t, settleFor, "the last request", func() int { return counter.Snapshot().Total() })
}

// TestTheWayIsFreeAgain: whatever ends the claim of somebody else wakes the owner.
func TestTheWayIsFreeAgain(t *testing.T) {
	b := enginetest.NewParallel(t)
	boss := enginetest.ConfigMap(b.NS, "boss")
	b.Create(t, boss)
	b.Manage(t, b.Manager)
	cm := enginetest.ConfigMap(b.NS, "one")
	cm.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(boss, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	s := b.Sample("one", sample.SampleSpec{Message: "hi"})
	b.Create(t, cm, s)
	b.WaitReason(t, "one", "Ready", "OwnedByAnother")
	b.Change(t, cm, func() { cm.OwnerReferences = nil })
	b.WaitReason(t, "one", "Ready", "NameTaken")
	b.Change(t, cm, func() { cm.OwnerReferences = controlledBy(s) }) // handed over
	b.WaitReady(t, "one")
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err != nil || cm.Data["message"] != "hi" {
		t.Errorf("not taken over: %v %v", cm.Data, err)
	}
}

// TestANamespaceThatGoesAndComesBack: a child in another namespace is made as
// soon as there is one.
func TestANamespaceThatGoesAndComesBack(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	far := b.NS + "-far"
	b.See(far)
	b.Manage(t, counter.Wrap(b.Manager))
	b.Create(t, b.Sample("one", sample.SampleSpec{Far: far}))
	b.WaitReason(t, "one", "Ready", "NamespaceMissing")
	lookedAgain(t, counter)
	testkit.NoWrites(t, counter, quietFor, "while the namespace is missing")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: far, Finalizers: []string{"test.modelplane.dev/stays"}}}
	b.Create(t, ns)
	b.WaitReady(t, "one")
	if err := b.C.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	remote := enginetest.ConfigMap(far, b.NS+"-one")
	if err := b.C.Delete(t.Context(), remote); err != nil {
		t.Fatal(err)
	}
	b.WaitReason(t, "one", "Ready", "NamespaceTerminating")
	lookedAgain(t, counter)
	testkit.NoWrites(t, counter, quietFor, "while the namespace goes")
	testkit.Eventually(t, 30*time.Second, "the namespace to go", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); err != nil {
			return client.IgnoreNotFound(err)
		}
		ns.Finalizers = nil
		err := b.C.Update(t.Context(), ns)
		ns.Spec.Finalizers = nil
		return errors.Join(errors.New("still there"), err, b.C.SubResource("finalize").Update(t.Context(), ns))
	})
	b.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: far}})
	b.WaitReady(t, "one")
}

// adopting takes over whatever has the name of its ConfigMap.
type adopting struct{ sample.Kind }

func (k adopting) Plan(s *sample.Sample, seen sample.Seen) engine.Plan {
	p := k.Kind.Plan(s, seen)
	p.Children[0].Adopt = true
	return p
}

func TestAdoption(t *testing.T) {
	b := enginetest.NewParallel(t)
	free, orphan := enginetest.ConfigMap(b.NS, "free"), enginetest.ConfigMap(b.NS, "orphan")
	free.Data = map[string]string{"message": "old", "other": "stays"}
	orphan.Labels = map[string]string{engine.LabelOwner: "0a1b"} // its owner was deleted without it
	b.Create(t, free, orphan)
	b.Manage(t, b.Manager, engine.For[*sample.Sample, sample.Seen](adopting{}, sample.Controller().Spec()))
	for _, name := range []string{"free", "orphan"} {
		b.Create(t, b.Sample(name, sample.SampleSpec{Message: "new"}))
		b.WaitReady(t, name)
		cm := enginetest.ConfigMap(b.NS, name)
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err != nil {
			t.Fatal(err)
		}
		if cm.Data["message"] != "new" || metav1.GetControllerOf(cm) == nil || name == "free" && cm.Data["other"] != "stays" {
			t.Errorf("not taken over properly: %+v", cm)
		}
	}
}

// upgraded plans the same children as heir, with one label more.
type upgraded struct{ heir }

func (k upgraded) Plan(s *sample.Sample, seen sample.Seen) engine.Plan {
	p := k.heir.Plan(s, seen)
	for _, c := range p.Children {
		if svc, ok := c.Object.(*corev1.Service); ok {
			svc.Labels["release"] = "next"
		}
	}
	return p
}

// TestWhatAnotherOperatorSetsSurvives: most operators go by the name that the
// controller before us had.
func TestWhatAnotherOperatorSetsSurvives(t *testing.T) {
	b := enginetest.NewParallel(t)
	stop := b.Manage(t, b.Manager, heirController())
	s := b.Sample("one", sample.SampleSpec{Message: "hi"})
	b.Create(t, s)
	b.WaitReady(t, "one")
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "one"}}
	testkit.Eventually(t, 30*time.Second, "the other operator to write", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(svc), svc); err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&svc.ObjectMeta, "other.example.com/state", "theirs")
		return b.C.Update(t.Context(), svc, client.FieldOwner("manager"))
	})
	survives := func(after string) {
		t.Helper()
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(svc), svc); err != nil {
			t.Fatal(err)
		}
		if svc.Annotations["other.example.com/state"] != "theirs" {
			t.Fatalf("it did not survive %s", after)
		}
		for _, m := range svc.ManagedFields {
			if strings.HasPrefix(m.Manager, "modelplane-") && strings.Contains(string(m.FieldsV1.GetRawBytes()), "other.example.com") {
				t.Fatalf("%s made it ours", after)
			}
		}
	}
	b.Change(t, s, func() { s.Spec.Message = "again" })
	b.WaitReady(t, "one")
	survives("a change")
	stop()
	stop = b.Manage(t, b.Manager, heirController())
	b.Change(t, s, func() { s.Spec.Message = "restarted" })
	b.WaitReady(t, "one")
	survives("a restart")
	stop()
	b.Manage(t, b.Manager, engine.For[*sample.Sample, sample.Seen](upgraded{}, heirController().Spec()))
	testkit.Eventually(t, 30*time.Second, "the next release to write", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(svc), svc); err != nil {
			return err
		}
		if svc.Labels["release"] != "next" {
			return fmt.Errorf("labels are %v", svc.Labels)
		}
		return nil
	})
	survives("an upgrade")
}
