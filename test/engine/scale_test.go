// SPDX-License-Identifier: Apache-2.0

// Package engine proves the engine's promises at scale and under fault: many
// objects, silence afterwards, crashes at every call, failing calls.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	testkit.Main(m)
}

// TestThousandObjects: 1,000 objects with 3 children each converge; then 60 s of
// nothing cost no write; a restart costs no write; one changed child costs one
// apply.
func TestThousandObjects(t *testing.T) {
	objects, quiet := 1000, time.Minute
	if testing.Short() {
		objects, quiet = 100, 5*time.Second
	}
	b := enginetest.New(t)
	counter := testkit.NewCounter()
	stop := b.Manage(t, counter.Wrap(b.Manager))
	begin := time.Now()
	createMany(t, b, objects)
	testkit.Eventually(t, 5*time.Minute, "all objects to be ready", func() error { return allReady(b, objects) })
	per := float64(counter.Writes()) / float64(objects)
	t.Logf("%d objects with 3 children each ready in %s, %.2f writes per object", objects, time.Since(begin).Round(time.Millisecond), per)
	if applies := applies(counter.Snapshot()); applies != 3*objects {
		t.Errorf("want exactly one apply per child, %d, have %d", 3*objects, applies)
	}
	if per > 5 { // three children, status, event
		t.Errorf("%.2f writes per object:\n%s", per, counter)
	}

	testkit.NoWrites(t, counter, quiet, "when nothing changes")

	stop()
	restarted := testkit.NewCounter()
	b.Manage(t, restarted.Wrap(b.Manager))
	waitWatching(t, restarted)
	testkit.NoWrites(t, restarted, 10*time.Second, "after a restart")

	before := restarted.Snapshot()
	s := b.Sample("many-0", sample.SampleSpec{})
	b.Change(t, s, func() { s.Spec.Replicas = 7 })
	b.WaitReady(t, "many-0")
	if since := restarted.Since(before); applies(since) != 1 {
		t.Errorf("one changed child must cost one apply:\n%s", since)
	}
}

func createMany(t *testing.T, b *enginetest.Bench, n int) {
	t.Helper()
	work := make(chan int)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for i := range work {
				s := b.Sample(fmt.Sprintf("many-%d", i), sample.SampleSpec{Message: "hi", Replicas: 1})
				if err := b.C.Create(context.Background(), s); err != nil {
					t.Errorf("create: %v", err)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
}

func allReady(b *enginetest.Bench, want int) error {
	list := &sample.SampleList{}
	if err := b.C.List(context.Background(), list, client.InNamespace(b.NS)); err != nil {
		return err
	}
	ready := 0
	for _, s := range list.Items {
		if meta.IsStatusConditionTrue(s.Status.Conditions, "Ready") {
			ready++
		}
	}
	if ready != want {
		return fmt.Errorf("%d of %d are ready", ready, want)
	}
	return nil
}

func applies(c testkit.Counts) int {
	n := 0
	for call, times := range c {
		if call.Verb == "apply" {
			n += times
		}
	}
	return n
}

// waitWatching returns when a manager watches the last of its kinds, which is
// after it has listed all of them.
func waitWatching(t *testing.T, c *testkit.Counter) {
	t.Helper()
	testkit.Eventually(t, time.Minute, "the restarted manager to watch", func() error {
		for _, kind := range []string{"apps/deployments", "configmaps", "services", "test.modelplane.dev/samples"} {
			if c.Snapshot().Of("watch", kind) == 0 {
				return errors.New("no watch on " + kind)
			}
		}
		return nil
	})
}
