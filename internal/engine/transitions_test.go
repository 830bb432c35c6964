// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// partly says in a condition of its own whether the message is good, and sums
// that up.
type partly struct{ sample.Kind }

func (k partly) Plan(s *sample.Sample, seen sample.Seen) engine.Plan {
	p := k.Kind.Plan(s, seen)
	p.Problem = nil
	status := &sample.SampleStatus{}
	part := metav1.Condition{Type: "PartReady", Status: metav1.ConditionTrue, Reason: "Good", Message: "The message is good."}
	if strings.HasPrefix(s.Spec.Message, "bad") {
		part.Status, part.Reason, part.Message = metav1.ConditionFalse, "Bad", "The message is bad. Choose another."
		p.Events = []engine.Event{{Warning: true, Reason: part.Reason, Message: part.Message}}
	}
	ready := part
	ready.Type = "Ready"
	status.Conditions = []metav1.Condition{part, ready}
	p.Status = status
	return p
}

func TestReadinessEvents(t *testing.T) {
	b := enginetest.NewParallel(t)
	spec := sample.Controller().Spec()
	spec.ReadyEvent, spec.NotReadyEvent = "SampleReady", "SampleNotReady"
	stop := b.Manage(t, b.Manager, engine.For[*sample.Sample, sample.Seen](partly{}, spec))
	said := func(reason string, want int) []corev1.Event {
		t.Helper()
		var have []corev1.Event
		testkit.Eventually(t, 30*time.Second, fmt.Sprintf("%d events %s", want, reason), func() error {
			have = b.Events(t, reason)
			n := 0
			for _, e := range have {
				n += int(max(1, e.Count))
				if e.Series != nil {
					n += int(e.Series.Count) - 1
				}
			}
			if n != want {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
		return have
	}
	s := b.Sample("one", sample.SampleSpec{Message: "bad"})
	b.Create(t, s)
	b.WaitReason(t, "one", "Ready", "Bad")
	change := func(message, reason string) {
		t.Helper()
		b.Change(t, s, func() { s.Spec.Message = message })
		testkit.Eventually(t, 30*time.Second, message, func() error {
			if c := b.WaitReason(t, "one", "Ready", reason); c.ObservedGeneration != s.Generation {
				return fmt.Errorf("condition is of generation %d", c.ObservedGeneration)
			}
			return nil
		})
	}
	change("bad as before", "Bad")
	said("Bad", 1) // the status has changed, but not these words
	change("good", "Good")
	ready := said("SampleReady", 1)
	if ready[0].Type != corev1.EventTypeNormal || ready[0].Message != "The message is good." {
		t.Errorf("event: %s %s", ready[0].Type, ready[0].Message)
	}
	said("SampleNotReady", 0) // a fresh object says nothing

	change("bad", "Bad")
	const want = "one is no longer ready (PartReady): The message is bad. Choose another."
	if e := said("SampleNotReady", 1)[0]; e.Type != corev1.EventTypeWarning || e.Message != want {
		t.Errorf("event: %s %s", e.Type, e.Message)
	}
	said("Bad", 2)
	stop()
	b.Manage(t, b.Manager, engine.For[*sample.Sample, sample.Seen](partly{}, spec))
	change("good", "Good")
	said("SampleReady", 2) // and not once more because of the restart
	said("SampleNotReady", 1)
	said("Ready", 0)
}
