// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// hasty is the engine's pace with minutes made seconds.
var hasty = engine.Pace{LookAgain: time.Hour, Contest: engine.Contest{
	Repairs: 3, Within: 8 * time.Second, Pause: time.Second, Longest: 4 * time.Second,
}}

// undo sets an object back on every event, until stop is called.
func undo(t *testing.T, b *enginetest.Bench, list client.ObjectList, back func(client.Object) error) (stop func()) {
	t.Helper()
	c, err := client.NewWithWatch(b.Config(), client.Options{Scheme: enginetest.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w, err := c.Watch(ctx, list, client.InNamespace(b.NS))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			obj, ok := e.Object.(client.Object)
			if !ok || ctx.Err() != nil {
				continue
			}
			if err := back(obj); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				t.Errorf("the rival: %v", err)
			}
		}
	}()
	return func() { cancel(); w.Stop(); <-done }
}

func contested(t *testing.T, b *enginetest.Bench, names []string, words ...string) {
	t.Helper()
	for _, name := range names {
		c := b.WaitReason(t, name, engine.Contested, "UndoneByAnother")
		for _, word := range words {
			if c.Status != "True" || !strings.Contains(c.Message, word) {
				t.Errorf("%s does not say %q: %+v", name, word, c)
			}
		}
	}
}

// over returns when no object speaks of a contest any more.
func over(t *testing.T, b *enginetest.Bench, names []string) {
	t.Helper()
	for _, name := range names {
		testkit.Eventually(t, time.Minute, "the contest to be over", func() error {
			s := b.Sample(name, sample.SampleSpec{})
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
				return err
			}
			if c := meta.FindStatusCondition(s.Status.Conditions, engine.Contested); c != nil {
				return fmt.Errorf("%s still says %+v", name, c)
			}
			return nil
		})
	}
}

// TestARivalIsToldOfAndNotFought: two controllers want different things of the
// same children. We write a bounded number of times, say so, and recover.
func TestARivalIsToldOfAndNotFought(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	b.ManageAt(t, counter.Wrap(b.Manager), hasty, sample.Controller())
	var names []string
	for i := range 4 {
		names = append(names, fmt.Sprintf("s%d", i))
		b.Create(t, b.Sample(names[i], sample.SampleSpec{}))
	}
	b.WaitReady(t, names...)
	before, since := counter.Snapshot(), time.Now()
	stop := undo(t, b, &appsv1.DeploymentList{}, func(obj client.Object) error {
		d := obj.(*appsv1.Deployment)
		if d.Spec.Template.Spec.Containers[0].Image == "rival:1" {
			return nil
		}
		d.Spec.Template.Spec.Containers[0].Image = "rival:1"
		return b.C.Update(t.Context(), d, client.FieldOwner("manager"))
	})
	contested(t, b, names, "Deployment", "manager", "image", "Stop the other one")
	testkit.Quiet(t, 6*time.Second, "the engine to back off", func() error {
		// Three until it is a contest, then after 1, 2, 4, 4 … seconds.
		most := len(names) * (5 + int(time.Since(since)/hasty.Contest.Longest))
		if got := counter.Since(before).Of("apply", "apps/deployments"); got > most {
			return fmt.Errorf("%d repairs in %s:\n%s", got, time.Since(since), counter.Since(before))
		}
		return nil
	})
	b.WaitReady(t, names...)                      // the pods run, whoever's they are
	b.WaitEvents(t, engine.Contested, len(names)) // one for each object
	// A change that the user asks for does not wait.
	s := b.Sample("s0", sample.SampleSpec{})
	b.Change(t, s, func() { s.Spec.Headless = true })
	b.WaitReady(t, "s0")

	stop()
	for _, name := range names {
		testkit.Eventually(t, 30*time.Second, "the image to be ours", func() error {
			d := enginetest.Deployment(b.NS, name)
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				return err
			}
			if image := d.Spec.Template.Spec.Containers[0].Image; image != "sample:1" {
				return fmt.Errorf("image is %s", image)
			}
			return nil
		})
	}
	over(t, b, names)
	testkit.NoWrites(t, counter, quietFor, "when the rival has stopped")
}

// TestARivalThatTakesTheChildAway strips our labels, as a controller does that
// writes whole objects, or deletes the child each time.
func TestARivalThatTakesTheChildAway(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(*enginetest.Bench, *appsv1.Deployment) error{
		"labels": func(b *enginetest.Bench, d *appsv1.Deployment) error {
			if d.Labels[engine.LabelOwner] == "" {
				return nil
			}
			delete(d.Labels, engine.LabelOwner)
			delete(d.Labels, engine.LabelIntent)
			return b.C.Update(context.Background(), d, client.FieldOwner("manager"))
		},
		"deletes": func(b *enginetest.Bench, d *appsv1.Deployment) error {
			return b.C.Delete(context.Background(), d, client.Preconditions{UID: &d.UID})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := enginetest.NewParallel(t)
			counter := testkit.NewCounter()
			b.ManageAt(t, counter.Wrap(b.Manager), hasty, sample.Controller())
			b.Create(t, b.Sample("one", sample.SampleSpec{}))
			b.WaitReady(t, "one")
			before, since := counter.Snapshot(), time.Now()
			stop := undo(t, b, &appsv1.DeploymentList{}, func(obj client.Object) error { return take(b, obj.(*appsv1.Deployment)) })
			contested(t, b, []string{"one"}, "Deployment")
			testkit.Quiet(t, 4*time.Second, "the engine to back off", func() error {
				most := 2 * (5 + int(time.Since(since)/hasty.Contest.Longest)) // each time a try and a write
				if got := counter.Since(before).Of("apply", "apps/deployments"); got > most {
					return fmt.Errorf("%d repairs in %s:\n%s", got, time.Since(since), counter.Since(before))
				}
				return nil
			})
			stop()
			testkit.Eventually(t, 30*time.Second, "the Deployment to be ours", func() error {
				d := enginetest.Deployment(b.NS, "one")
				if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
					return err
				}
				if d.Labels[engine.LabelOwner] == "" {
					return errors.New("it is not")
				}
				return nil
			})
			over(t, b, []string{"one"})
		})
	}
}

// TestARivalThatBringsAChildBack makes what we have removed, with our labels, as a
// tool does that applies what it once exported.
func TestARivalThatBringsAChildBack(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	b.ManageAt(t, counter.Wrap(b.Manager), hasty, sample.Controller())
	s := b.Sample("one", sample.SampleSpec{Extra: "ConfigMap"})
	b.Create(t, s)
	b.WaitReady(t, "one")
	extra := enginetest.ConfigMap(b.NS, "one-extra")
	b.Exists(t, extra, "one-extra")
	copied := func() *corev1.ConfigMap {
		cm := enginetest.ConfigMap(b.NS, "one-extra")
		cm.Labels, cm.OwnerReferences = extra.Labels, extra.OwnerReferences
		return cm
	}
	stop := undo(t, b, &corev1.ConfigMapList{}, func(obj client.Object) error {
		if obj.GetName() != "one-extra" {
			return nil
		}
		return client.IgnoreAlreadyExists(b.C.Create(context.Background(), copied(), client.FieldOwner("manager")))
	})
	b.Change(t, s, func() { s.Spec.Extra = "" })
	contested(t, b, []string{"one"}, "ConfigMap", "manager", "keeps making it")
	stop()
	b.Gone(t, &corev1.ConfigMap{}, "one-extra")
	over(t, b, []string{"one"})
	testkit.NoWrites(t, counter, quietFor, "when the rival has stopped")
}

// TestARivalInTheStatus: nor does the engine fight for words.
func TestARivalInTheStatus(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	b.ManageAt(t, counter.Wrap(b.Manager), hasty, sample.Controller())
	// Who wrote something else in the same second is not the one, whatever the order of names.
	if err := b.C.Create(t.Context(), b.Sample("one", sample.SampleSpec{}), client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	b.WaitReady(t, "one")
	before, since := counter.Snapshot(), time.Now()
	stop := undo(t, b, &sample.SampleList{}, func(obj client.Object) error {
		s := obj.(*sample.Sample)
		if s.Status.Children == 99 {
			return nil
		}
		s.Status.Children = 99
		return b.C.Status().Update(t.Context(), s, client.FieldOwner("manager"))
	})
	contested(t, b, []string{"one"}, "manager keeps changing it")
	testkit.Quiet(t, 6*time.Second, "the engine to back off", func() error {
		most := 8 + int(time.Since(since)/hasty.Contest.Longest)
		if got := counter.Since(before).Of("patch", "test.modelplane.dev/samples/status"); got > most {
			return fmt.Errorf("%d writes in %s:\n%s", got, time.Since(since), counter.Since(before))
		}
		return nil
	})
	stop()
	over(t, b, []string{"one"})
	s := b.Sample("one", sample.SampleSpec{})
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil || s.Status.Children != 3 {
		t.Errorf("the status is %+v, %v", s.Status, err)
	}
}
