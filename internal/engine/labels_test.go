// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

const outsideID = "test.modelplane.dev/id"

// labelled is a sample that is known elsewhere by its message, and goes alone where that says so.
type labelled struct{ sample.Kind }

func (k labelled) Plan(s *sample.Sample, seen sample.Seen) engine.Plan {
	p := k.Kind.Plan(s, seen)
	p.NoFinalizer = s.Spec.Message == "alone"
	if !p.NoFinalizer {
		p.SetLabels = map[string]string{outsideID: s.Spec.Message}
	}
	return p
}

func (labelled) Teardown(*sample.Sample, sample.Seen) engine.Ending {
	return engine.Ending{Finished: true}
}

// TestOwnLabelsAndFinalizers: labels of the object itself are written before the status and cost nothing when they are
// there; only those objects have a finalizer that need one.
func TestOwnLabelsAndFinalizers(t *testing.T) {
	b := enginetest.NewParallel(t)
	spec := sample.Controller().Spec()
	spec.SetsLabels, spec.FarReaching = true, false
	controller := engine.For[*sample.Sample, sample.Seen](labelled{}, spec)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager), controller)
	w := watchSamples(t, b)
	alone, known := b.Sample("alone", sample.SampleSpec{Message: "alone"}), b.Sample("known", sample.SampleSpec{Message: "seven"})
	known.Labels = map[string]string{"somebody/else": "stays"}
	b.Create(t, alone, known)
	b.WaitReady(t, "alone", "known")
	testkit.NoWrites(t, counter, quietFor, "when the labels are there")
	if got := counter.Snapshot().Of("patch", "test.modelplane.dev/samples"); got != 2 {
		t.Errorf("a finalizer and a label took %d patches:\n%s", got, counter)
	}
	w.Stop()
	for e := range w.ResultChan() {
		s, ok := e.Object.(*sample.Sample)
		if ok && s.Name == "known" && meta.IsStatusConditionTrue(s.Status.Conditions, "Ready") && s.Labels[outsideID] == "" {
			t.Error("a version is ready and has no label")
		}
	}
	has := func(s *sample.Sample, id string, finalizer bool) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, s.Name+" to have its labels and finalizers", func() error {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
				return err
			}
			if s.Labels[outsideID] != id || (len(s.Finalizers) > 0) != finalizer {
				return fmt.Errorf("it has the labels %v and the finalizers %v", s.Labels, s.Finalizers)
			}
			return nil
		})
	}
	has(alone, "", false)
	has(known, "seven", true)
	if known.Labels["somebody/else"] != "stays" {
		t.Errorf("labels are %v", known.Labels)
	}
	b.Change(t, known, func() {
		known.Spec.Message = "alone"
		known.Finalizers = append(known.Finalizers, "test.modelplane.dev/another")
	})
	testkit.Eventually(t, 30*time.Second, "our finalizer to go, and only that", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(known), known); err != nil {
			return err
		}
		if !slices.Equal(known.Finalizers, []string{"test.modelplane.dev/another"}) {
			return errors.New("they are " + fmt.Sprint(known.Finalizers))
		}
		return nil
	})
	b.Change(t, known, func() { known.Finalizers = nil })
}
