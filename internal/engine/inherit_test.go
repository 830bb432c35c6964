// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// heir puts the message into an environment variable, unless it is "none".
type heir struct{ sample.Kind }

func (k heir) Plan(s *sample.Sample, seen sample.Seen) engine.Plan {
	p := k.Kind.Plan(s, seen)
	for i := range p.Children {
		if d, ok := p.Children[i].Object.(*appsv1.Deployment); ok && s.Spec.Message != "none" {
			c := &d.Spec.Template.Spec.Containers[0]
			c.Env = append(c.Env, corev1.EnvVar{Name: "MESSAGE", Value: s.Spec.Message})
		}
	}
	return p
}

func heirController() engine.Controller {
	spec := sample.Controller().Spec()
	spec.OldManagers = []string{"manager"}
	return engine.For[*sample.Sample, sample.Seen](heir{}, spec)
}

func deploymentOf(s *sample.Sample) *appsv1.Deployment {
	for _, c := range (heir{}).Plan(s, sample.Seen{}).Children {
		if d, ok := c.Object.(*appsv1.Deployment); ok {
			return d
		}
	}
	return nil
}

func TestFieldsOfAnEarlierControllerAreInherited(t *testing.T) {
	b := enginetest.NewParallel(t)
	// As the earlier controller left it: made, later updated, and with a status.
	s := b.Sample("one", sample.SampleSpec{Message: "hi", Replicas: 2})
	b.Create(t, s)
	old := deploymentOf(s)
	old.OwnerReferences = controlledBy(s)
	if err := b.C.Create(t.Context(), old, client.FieldOwner("manager")); err != nil {
		t.Fatal(err)
	}
	old.Annotations = map[string]string{"earlier": "yes"}
	if err := b.C.Update(t.Context(), old, client.FieldOwner("manager")); err != nil {
		t.Fatal(err)
	}
	old.Status.Replicas = 1
	if err := b.C.Status().Update(t.Context(), old, client.FieldOwner("manager")); err != nil {
		t.Fatal(err)
	}

	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager), heirController())
	b.WaitReady(t, "one")
	d := enginetest.Deployment(b.NS, "one")
	managers := func() []string {
		t.Helper()
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, m := range d.ManagedFields {
			out = append(out, m.Manager+" "+string(m.Operation)+" "+m.Subresource)
		}
		slices.Sort(out)
		return out
	}
	if got := managers(); !slices.Equal(got, []string{"manager Update status", "modelplane-sample Apply "}) {
		t.Errorf("the fields belong to %v", got)
	}
	if diff := cmp.Diff(old.Spec, d.Spec); diff != "" || d.Generation != old.Generation || d.UID != old.UID || d.Status.Replicas != 1 {
		t.Errorf("taking it over changed it: generation %d, was %d: %s", d.Generation, old.Generation, diff)
	}
	testkit.NoWrites(t, counter, quietFor, "after the take-over")
	if got := counter.Snapshot(); got.Of("apply", "apps/deployments") != 2 || got.Of("get", "apps/deployments") != 1 || got.Of("patch", "apps/deployments") != 1 {
		t.Errorf("a take-over costs a try, a look, an apply and the change of who owns the fields:\n%s", got)
	}
	if _, marked := d.Labels[engine.LabelTakingOver]; marked {
		t.Error("the take-over is not finished")
	}
	if n := counter.Snapshot().Of("patch", "services"); n != 0 {
		t.Errorf("%d writes too many for a child of our own", n)
	}

	b.Change(t, s, func() { s.Spec.Message = "none" })
	waitWithout(t, b, "MESSAGE")
	if _, still := d.Annotations["earlier"]; !still {
		t.Error("the annotation went before the plan changed")
	}
	managers()
	if _, still := d.Annotations["earlier"]; still {
		t.Error("what only the earlier controller wanted is still there")
	}
}

func TestFieldsThatAnEarlierControllerAppliedAreInherited(t *testing.T) {
	b := enginetest.NewParallel(t)
	s := b.Sample("one", sample.SampleSpec{Message: "hi", Replicas: 2})
	b.Create(t, s)
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(deploymentOf(s))
	if err != nil {
		t.Fatal(err)
	}
	old := &unstructured.Unstructured{Object: raw}
	delete(old.Object, "status")
	old.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	old.SetAnnotations(map[string]string{"earlier": "yes"})
	old.SetOwnerReferences(controlledBy(s))
	if err := b.C.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(old), client.FieldOwner("manager")); err != nil {
		t.Fatal(err)
	}

	b.Manage(t, b.Manager, heirController())
	b.WaitReady(t, "one")
	d := enginetest.Deployment(b.NS, "one")
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
		t.Fatal(err)
	}
	for _, m := range d.ManagedFields {
		if m.Subresource == "" && m.Manager != "modelplane-sample" {
			t.Errorf("fields belong to %s still", m.Manager)
		}
	}
	if d.Generation != old.GetGeneration() || d.Annotations["earlier"] != "yes" {
		t.Errorf("taking it over changed it: generation %d, was %d: %v", d.Generation, old.GetGeneration(), d.Annotations)
	}
	b.Change(t, s, func() { s.Spec.Message = "none" })
	waitWithout(t, b, "MESSAGE")
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
		t.Fatal(err)
	}
	if _, still := d.Annotations["earlier"]; still {
		t.Error("what only the earlier controller wanted is still there")
	}
}

// TestRetainedChildHasNoOwner: what an earlier controller tied to the object, and what somebody ties to it later, is
// untied, also while the plan leaves the children as they are; for nothing that is retained may be garbage-collected.
func TestRetainedChildHasNoOwner(t *testing.T) {
	b := enginetest.NewParallel(t)
	s := b.Sample("one", sample.SampleSpec{Message: "hi", Keep: true})
	b.Create(t, s)
	kept := enginetest.ConfigMap(b.NS, "one-kept")
	kept.OwnerReferences = controlledBy(s)
	if err := b.C.Create(t.Context(), kept, client.FieldOwner("manager")); err != nil {
		t.Fatal(err)
	}
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager), heirController())
	b.WaitReady(t, "one")
	untied := func() {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, "the child to be untied", func() error {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil {
				return err
			}
			if len(kept.OwnerReferences) > 0 || kept.Labels[engine.LabelTakingOver] != "" || kept.Labels[engine.LabelOwner] != string(s.UID) {
				return fmt.Errorf("owners %v, labels %v", kept.OwnerReferences, kept.Labels)
			}
			return nil
		})
	}
	untied()
	if leftBy := kept.ManagedFields; len(leftBy) != 1 || leftBy[0].Manager != "modelplane-sample" {
		t.Errorf("the fields belong to %+v", leftBy)
	}
	b.Change(t, kept, func() { kept.OwnerReferences = controlledBy(s) })
	untied()
	b.Change(t, s, func() { s.Spec.Message = "forbidden" })
	b.WaitReason(t, "one", "Ready", "MessageRefused")
	b.Change(t, kept, func() { kept.OwnerReferences = controlledBy(s) })
	untied()
	b.Change(t, s, func() { s.Spec.Message, s.Spec.Keep = "hi", false })
	b.WaitReady(t, "one")
	testkit.NoWrites(t, counter, quietFor, "when all is done")
}

func waitWithout(t *testing.T, b *enginetest.Bench, env string) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, env+" to be gone", func() error {
		d := enginetest.Deployment(b.NS, "one")
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		for _, e := range d.Spec.Template.Spec.Containers[0].Env {
			if e.Name == env {
				return fmt.Errorf("%s=%s is there", e.Name, e.Value)
			}
		}
		return nil
	})
}
