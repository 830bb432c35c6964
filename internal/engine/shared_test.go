// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// bundled plans nothing but a ConfigMap that all objects of the namespace share.
type bundled struct{ sample.Kind }

func (bundled) Plan(s *sample.Sample, _ sample.Seen) engine.Plan {
	cm := enginetest.ConfigMap(s.Namespace, "bundle")
	cm.Data = map[string]string{"content": s.Spec.Message}
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Bundled", Message: "The bundle is there."}
	return engine.Plan{Children: []engine.Child{{Object: cm, Shared: true}},
		Status: sample.SampleStatus{Conditions: []metav1.Condition{ready}}}
}

func bundledController() engine.Controller {
	return engine.For[*sample.Sample, sample.Seen](bundled{}, sample.Controller().Spec())
}

func waitBundle(t *testing.T, b *enginetest.Bench, want string) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, "the bundle to say "+want, func() error {
		cm := enginetest.ConfigMap(b.NS, "bundle")
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err != nil {
			return err
		}
		if cm.Data["content"] != want || cm.Labels[engine.LabelOwner] != engine.OwnerShared || len(cm.OwnerReferences) != 0 {
			return fmt.Errorf("it is %v of %v", cm.Data, cm.Labels)
		}
		return nil
	})
}

func TestSharedChild(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	stop := b.Manage(t, counter.Wrap(b.Manager), bundledController())
	const owners = 20
	for i := range owners {
		b.Create(t, b.Sample(fmt.Sprintf("o%d", i), sample.SampleSpec{Message: "x"}))
	}
	for i := range owners {
		b.WaitReady(t, fmt.Sprintf("o%d", i))
	}
	waitBundle(t, b, "x")
	writes := func(since testkit.Counts, want int, when string) {
		t.Helper()
		if n := since.Of("apply", "configmaps"); n != want {
			t.Errorf("%d writes %s, want %d:\n%s", n, when, want, since)
		}
	}
	testkit.NoWrites(t, counter, quietFor, "when all agree")
	writes(counter.Snapshot(), 1, "for all owners")

	before := counter.Snapshot()
	cm := enginetest.ConfigMap(b.NS, "bundle")
	b.Change(t, cm, func() { cm.Data["content"] = "evil" })
	waitBundle(t, b, "x")
	testkit.Eventually(t, 30*time.Second, "one event about it", func() error {
		if e := b.Events(t, "ChildRepaired"); len(e) != 1 {
			return fmt.Errorf("%d events", len(e))
		}
		return nil
	})
	testkit.NoWrites(t, counter, quietFor, "after the repair")
	writes(counter.Since(before), 1, "to repair")

	before = counter.Snapshot()
	if err := b.C.Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	waitBundle(t, b, "x")
	testkit.Eventually(t, 30*time.Second, "one event about it", func() error {
		if e := b.Events(t, "ChildRecreated"); len(e) != 1 {
			return fmt.Errorf("%d events", len(e))
		}
		return nil
	})
	testkit.NoWrites(t, counter, quietFor, "after it was made again")
	writes(counter.Since(before), 1, "to make it again")

	stop()
	restarted := testkit.NewCounter()
	b.Manage(t, restarted.Wrap(b.Manager), bundledController())
	testkit.Eventually(t, 30*time.Second, "the restarted manager to watch", func() error {
		if restarted.Snapshot().Of("watch", "configmaps") == 0 {
			return fmt.Errorf("no watch yet")
		}
		return nil
	})
	testkit.NoWrites(t, restarted, quietFor, "after a restart")
	for i := range owners {
		if err := b.C.Delete(t.Context(), b.Sample(fmt.Sprintf("o%d", i), sample.SampleSpec{})); err != nil {
			t.Fatal(err)
		}
	}
	b.Gone(t, &corev1.ConfigMap{}, "bundle")
	if n := restarted.Writes(); n != 1 {
		t.Errorf("%d writes when the owners go, want one:\n%s", n, restarted)
	}
}

// TestSharedChildInDispute: each owner has its say once, and nobody insists.
func TestSharedChildInDispute(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager), bundledController())
	b.Create(t, b.Sample("a", sample.SampleSpec{Message: "x"}))
	b.WaitReady(t, "a")
	b.Create(t, b.Sample("b", sample.SampleSpec{Message: "y"}))
	b.WaitReady(t, "b")
	waitBundle(t, b, "y")
	testkit.NoWrites(t, counter, quietFor, "when two disagree")

	before := counter.Snapshot()
	s := b.Sample("a", sample.SampleSpec{})
	b.Change(t, s, func() { s.Spec.Message = "z" })
	waitBundle(t, b, "z")
	b.WaitReady(t, "a")
	testkit.NoWrites(t, counter, quietFor, "when one has changed its mind")
	if n := counter.Since(before).Of("apply", "configmaps"); n != 1 {
		t.Errorf("%d writes for one change of mind", n)
	}
	cm := enginetest.ConfigMap(b.NS, "bundle")
	b.Change(t, cm, func() { cm.Data["content"] = "evil" })
	waitBundle(t, b, "z")
	b.Delete(t, s) // whose word stood: now it is the other's again
	waitBundle(t, b, "y")
	testkit.NoWrites(t, counter, quietFor, "when one is left")
}

// TestSharedChildOfOwnersThatComeAndGo: whoever comes while the last one goes has the
// child, and what we removed ourselves is not told of as somebody's doing.
func TestSharedChildOfOwnersThatComeAndGo(t *testing.T) {
	b := enginetest.NewParallel(t)
	b.Manage(t, b.Manager, bundledController())
	last := b.Sample("o0", sample.SampleSpec{Message: "x"})
	b.Create(t, last)
	for i := range 8 {
		b.WaitReady(t, last.Name)
		next := b.Sample(fmt.Sprintf("o%d", i+1), sample.SampleSpec{Message: "x"})
		var both sync.WaitGroup
		both.Go(func() { b.Delete(t, last) })
		both.Go(func() { b.Create(t, next) })
		both.Wait()
		last = next
	}
	b.WaitReady(t, last.Name)
	waitBundle(t, b, "x")
	testkit.Quiet(t, settleFor, "the bundle to be there", func() error {
		return b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "bundle"}, &corev1.ConfigMap{})
	})
	if e := b.Events(t, "ChildRecreated"); len(e) != 0 {
		t.Errorf("nobody deleted it: %v", e)
	}
	b.Delete(t, last)
	b.Gone(t, &corev1.ConfigMap{}, "bundle")
}

// TestSharedChildOfAnother: what another object owns is not made common property.
func TestSharedChildOfAnother(t *testing.T) {
	b := enginetest.NewParallel(t)
	cm := enginetest.ConfigMap(b.NS, "bundle")
	cm.Labels = map[string]string{engine.LabelOwner: "somebody"}
	cm.Annotations = map[string]string{engine.AnnotationOwner: "Other.example.com/ns/boss"}
	b.Create(t, cm)
	b.Manage(t, b.Manager, bundledController())
	b.Create(t, b.Sample("a", sample.SampleSpec{Message: "x"}))
	b.WaitReason(t, "a", "Ready", "OwnedByAnother")
	if err := b.C.Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	b.WaitReady(t, "a") // woken by it
	waitBundle(t, b, "x")
}
