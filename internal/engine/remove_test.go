// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// dependent goes when the ConfigMap that it names goes.
type dependent struct{ sample.Kind }

func (k dependent) Plan(s *sample.Sample, seen sample.Seen) engine.Plan {
	if s.Spec.From != "" && seen.From == nil {
		return engine.Plan{DeleteSelf: &engine.Event{Reason: "ParentGone", Message: "ConfigMap " + s.Spec.From + " is gone."}}
	}
	return k.Kind.Plan(s, seen)
}

func TestPlanRemovesTheObject(t *testing.T) {
	b := enginetest.NewParallel(t)
	spec := sample.Controller().Spec()
	spec.DeletesSelf = true
	dependents := engine.For[*sample.Sample, sample.Seen](dependent{}, spec)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Config()), dependents)
	parent := enginetest.ConfigMap(b.NS, "parent")
	held := b.Sample("held", sample.SampleSpec{From: "parent"})
	held.Finalizers = []string{"example.com/somebody"}
	other := b.Sample("other", sample.SampleSpec{})
	b.Create(t, parent, held, other)
	b.WaitReady(t, "held", "other")

	before := counter.Snapshot()
	if err := b.C.Delete(t.Context(), parent); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, "one event", func() error {
		if e := b.Events(t, "ParentGone"); len(e) != 1 || e[0].InvolvedObject.Name != "held" || e[0].Type != corev1.EventTypeNormal {
			return fmt.Errorf("events: %v", e)
		}
		return nil
	})
	testkit.NoWrites(t, counter, quietFor, "while somebody's finalizer holds it")
	if since := counter.Since(before); since.Of("delete", "test.modelplane.dev/samples") != 1 || since.Of("patch", "test.modelplane.dev/samples/status") != 0 {
		t.Errorf("want one deletion and no status:\n%s", since)
	}
	b.Change(t, held, func() { held.Finalizers = nil })
	b.WaitGone(t, held)
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
		t.Errorf("another object must stay: %v", err)
	}

	d, err := dependents.Decide(context.Background(), b.Sample("x", sample.SampleSpec{From: "nothing"}), &engine.World{Scheme: enginetest.Scheme})
	if err != nil || d.DeleteSelf == nil || d.DeleteSelf.Reason != "ParentGone" {
		t.Errorf("decision without a cluster: %+v, %v", d, err)
	}
}

// TestRemoveIsGrantedWhereSaid: the permission follows the Spec.
func TestRemoveIsGrantedWhereSaid(t *testing.T) {
	for _, removes := range []bool{false, true} {
		spec := sample.Controller().Spec()
		spec.DeletesSelf = removes
		rules, err := engine.Rules(enginetest.Scheme, engine.For[*sample.Sample, sample.Seen](dependent{}, spec))
		if err != nil {
			t.Fatal(err)
		}
		granted := false
		for _, r := range rules {
			granted = granted || slices.Contains(r.Resources, "samples") && slices.Contains(r.Verbs, "delete")
		}
		if granted != removes {
			t.Errorf("Removes %v grants %v", removes, granted)
		}
	}
}

// TestRemoveWithoutPermission says so on the object.
func TestRemoveWithoutPermission(t *testing.T) {
	b := enginetest.NewParallel(t)
	b.Manage(t, b.Manager, engine.For[*sample.Sample, sample.Seen](dependent{}, sample.Controller().Spec()))
	s := b.Sample("one", sample.SampleSpec{From: "nothing"})
	b.Create(t, s)
	b.WaitReason(t, "one", "Ready", "Forbidden")
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s); apierrors.IsNotFound(err) {
		t.Error("it was deleted")
	}
}
