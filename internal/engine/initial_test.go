// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// scaled is a sample whose Deployment starts with some replicas and is then an
// autoscaler's. The message is in the Deployment, so that it can change.
type scaled struct{ sample.Kind }

func (k scaled) Plan(s *sample.Sample, seen sample.Seen) engine.Plan {
	p := k.Kind.Plan(s, seen)
	for i := range p.Children {
		if d, ok := p.Children[i].Object.(*appsv1.Deployment); ok {
			d.Annotations = map[string]string{"message": s.Spec.Message}
			p.Children[i].Initial = []string{"spec.replicas"}
		}
	}
	return p
}

func scaledController() engine.Controller {
	return engine.For[*sample.Sample, sample.Seen](scaled{}, sample.Controller().Spec())
}

// scale does what an autoscaler does.
func scale(t *testing.T, b *enginetest.Bench, name string, replicas int32) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, "the scaling", func() error {
		d, s := enginetest.Deployment(b.NS, name), &autoscalingv1.Scale{}
		if err := b.C.SubResource("scale").Get(t.Context(), d, s); err != nil {
			return err
		}
		s.Spec.Replicas = replicas
		return b.C.SubResource("scale").Update(t.Context(), d, client.WithSubResourceBody(s), client.FieldOwner("autoscaler"))
	})
}

// waitScaled returns when the message has arrived, and checks the replicas.
func waitScaled(t *testing.T, b *enginetest.Bench, name, message string, want int32) {
	t.Helper()
	d := enginetest.Deployment(b.NS, name)
	testkit.Eventually(t, 30*time.Second, "the message "+message, func() error {
		if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if got := d.Annotations["message"]; got != message {
			return fmt.Errorf("the message is %q", got)
		}
		return nil
	})
	if got := ptr.Deref(d.Spec.Replicas, -1); got != want {
		t.Errorf("%s has %d replicas, want %d", name, got, want)
	}
}

func TestInitialFields(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager), scaledController())
	s := b.Sample("one", sample.SampleSpec{Message: "first", Replicas: 3})
	b.Create(t, s)
	b.WaitReady(t, "one")
	waitScaled(t, b, "one", "first", 3)
	if n := counter.Snapshot().Of("get", "apps/deployments"); n != 0 {
		t.Errorf("making a child costs one call, but there were %d reads", n)
	}

	before := counter.Snapshot()
	b.Change(t, s, func() { s.Spec.Replicas = 4 })
	b.WaitReady(t, "one")
	if since := counter.Since(before); since.Of("apply", "apps/deployments") != 0 {
		t.Errorf("another initial value must not be written:\n%s", since)
	}
	// Ours alone: it must not fall to the default because we no longer plan it.
	b.Change(t, s, func() { s.Spec.Message = "second" })
	waitScaled(t, b, "one", "second", 3)
	b.WaitReady(t, "one")
	if n := counter.Snapshot().Of("get", "apps/deployments"); n != 0 {
		t.Errorf("what the cache has is not asked for, but there were %d reads", n)
	}

	scale(t, b, "one", 7)
	testkit.NoWrites(t, counter, quietFor, "because of the autoscaler")
	b.Change(t, s, func() { s.Spec.Message = "third" })
	waitScaled(t, b, "one", "third", 7)
	scale(t, b, "one", 2)
	b.Change(t, s, func() { s.Spec.Message = "fourth" })
	waitScaled(t, b, "one", "fourth", 2)
	if e := b.Events(t, "ChildRepaired"); len(e) != 0 {
		t.Errorf("scaling was taken for an edit: %v", e)
	}
}

// TestInitialFieldsOfAdopted: what somebody else made keeps its replicas.
func TestInitialFieldsOfAdopted(t *testing.T) {
	b := enginetest.NewParallel(t)
	s := b.Sample("one", sample.SampleSpec{Message: "first", Replicas: 1})
	b.Create(t, s)
	p := sample.Kind{}.Plan(b.Sample("one", sample.SampleSpec{Replicas: 5}), sample.Seen{})
	for _, c := range p.Children {
		if d, ok := c.Object.(*appsv1.Deployment); ok {
			d.OwnerReferences = controlledBy(s)
			b.Create(t, d)
		}
	}
	b.Manage(t, b.Manager, scaledController())
	waitScaled(t, b, "one", "first", 5)
	b.Change(t, s, func() { s.Spec.Message = "second" })
	waitScaled(t, b, "one", "second", 5)
}
