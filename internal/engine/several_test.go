// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

const noted = "Noted"

// noter is a second controller of Samples: it makes a ConfigMap of its own (in
// another namespace where one is named, none for the message "quiet") and has one
// condition.
type noter struct{}

func (noter) Observe(ctx context.Context, r engine.Reader, s *sample.Sample) (int, error) {
	if !s.Spec.Route {
		return 0, nil
	}
	routes := &unstructured.UnstructuredList{}
	routes.SetGroupVersionKind(sample.RouteKind)
	err := r.List(ctx, routes, client.InNamespace(s.Namespace))
	return len(routes.Items), err
}

func (noter) Plan(s *sample.Sample, routes int) engine.Plan {
	status := sample.SampleStatus{Children: 99} // not its own to say
	plan := engine.Plan{Status: &status}
	if s.Spec.Message == "quiet" {
		return plan
	}
	note := enginetest.ConfigMap(s.Namespace, s.Name+"-note")
	if s.Spec.Far != "" {
		note.Namespace = s.Spec.Far
	}
	note.Data = map[string]string{"routes": fmt.Sprint(routes)}
	status.Conditions = []metav1.Condition{{Type: noted, Status: metav1.ConditionTrue, Reason: "Noted", Message: "The note says " + s.Spec.Message + "."}}
	plan.Children = []engine.Child{{Object: note}}
	return plan
}

func noterSpec() engine.Spec {
	return engine.Spec{
		Name: "noter", Ready: noted, FarReaching: true,
		Status:   &engine.StatusOwnership{Conditions: []string{noted}},
		Children: []engine.ChildKind{{Object: &corev1.ConfigMap{}}},
	}
}

func noterController(spec engine.Spec) engine.Controller {
	return engine.For[*sample.Sample, int](noter{}, spec)
}

// TestTwoControllersOfOneKind: neither removes the other's children or says
// anything of the other's status, and both are quiet when nothing changes.
func TestTwoControllersOfOneKind(t *testing.T) {
	b := enginetest.NewParallel(t)
	far := b.Namespace(t)
	counter := testkit.NewCounter()
	stop := b.Manage(t, counter.Wrap(b.Config()), sample.Controller(), noterController(noterSpec()))
	s := b.Sample("one", sample.SampleSpec{Message: "hi", Extra: "ConfigMap"})
	b.Create(t, s)
	b.WaitReady(t, "one")
	b.WaitReason(t, "one", noted, "Noted")
	testkit.NoWrites(t, counter, quietFor, "when both are done")
	both := func(name string, want ...string) {
		t.Helper()
		for _, child := range want {
			b.Exists(t, &corev1.ConfigMap{}, child)
		}
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			t.Fatal(err)
		}
		if c := meta.FindStatusCondition(s.Status.Conditions, "Ready"); s.Status.Children == 99 || c == nil || len(s.Status.Conditions) > 2 {
			t.Errorf("%s: the second controller wrote what is the first's: %+v", name, s.Status)
		}
	}
	both("both", "one", "one-extra", "one-note")

	b.Change(t, s, func() { s.Spec.Extra = "" }) // the first prunes its own
	b.Gone(t, &corev1.ConfigMap{}, "one-extra")
	b.WaitReady(t, "one")
	both("pruned", "one", "one-note")

	b.Change(t, s, func() { s.Spec.Message = "quiet" }) // and so does the second
	b.Gone(t, &corev1.ConfigMap{}, "one-note")
	testkit.Eventually(t, 30*time.Second, "the second's condition to go", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(s.Status.Conditions, noted); c != nil {
			return fmt.Errorf("it stays: %+v", c)
		}
		return nil
	})
	b.WaitReady(t, "one")
	testkit.NoWrites(t, counter, quietFor, "when the second has nothing to say")
	both("quiet", "one")

	b.Change(t, s, func() { s.Spec.Message, s.Spec.Far = "again", far })
	b.WaitReason(t, "one", noted, "Noted")
	b.WaitReady(t, "one")
	stop()
	restarted := testkit.NewCounter()
	b.Manage(t, restarted.Wrap(b.Config()), sample.Controller(), noterController(noterSpec()))
	watching(t, restarted)
	testkit.NoWrites(t, restarted, quietFor, "after a restart")
	if err := b.C.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.WaitGone(t, s)
	b.WaitGone(t, enginetest.ConfigMap(far, "one-note"))
	b.WaitGone(t, enginetest.ConfigMap(far, b.NS+"-one"))
}

// watching waits until a manager that was started again has its caches.
func watching(t *testing.T, counter *testkit.Counter) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, "the restarted manager to watch", func() error {
		if counter.Snapshot().Of("watch", "configmaps") == 0 {
			return errors.New("no watch yet")
		}
		return nil
	})
}

// TestTwoControllersMustAgree: a dispute is found when the process starts, not
// when two controllers have overwritten each other for a night.
func TestTwoControllersMustAgree(t *testing.T) {
	b := enginetest.New(t)
	for want, status := range map[string]*engine.StatusOwnership{
		"both decide all": nil,
		"not among those": {Conditions: []string{"Other"}},
	} {
		spec := noterSpec()
		spec.Status = status
		err := enginetest.RunWith(sample.Controller(), noterController(spec))(t.Context(), b.Config())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %q", err, want)
		}
	}
}

// rival plans a child that the first controller makes.
type rival struct{ noter }

func (rival) Plan(s *sample.Sample, _ int) engine.Plan {
	taken := enginetest.ConfigMap(s.Namespace, s.Name)
	taken.Data = map[string]string{"message": "mine"}
	return engine.Plan{Children: []engine.Child{{Object: taken}},
		Status: &sample.SampleStatus{Conditions: []metav1.Condition{{Type: noted, Status: metav1.ConditionTrue, Reason: "Noted", Message: "Noted."}}}}
}

func TestTwoControllersOneChild(t *testing.T) {
	b := enginetest.NewParallel(t)
	stop := b.Manage(t, b.Manager)
	b.Create(t, b.Sample("one", sample.SampleSpec{Message: "hi"}))
	b.WaitReady(t, "one")
	stop()
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Config()), sample.Controller(), engine.For[*sample.Sample, int](rival{}, noterSpec()))
	c := b.WaitReason(t, "one", noted, "OwnedByAnother")
	if !strings.Contains(c.Message, "the controller sample") {
		t.Errorf("it must say who: %q", c.Message)
	}
	testkit.NoWrites(t, counter, quietFor, "for the same child")
	cm := enginetest.ConfigMap(b.NS, "one")
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err != nil || cm.Data["message"] != "hi" {
		t.Errorf("it was overwritten: %v, %v", cm.Data, err)
	}
}

// TestPrimaryRemovedAndInstalledAgain removes the definition of the kind itself
// while its controllers run, of which one counts it among its optional inputs.
func TestPrimaryRemovedAndInstalledAgain(t *testing.T) {
	b := enginetest.New(t)
	counter := testkit.NewCounter()
	second := noterSpec()
	second.Inputs = []engine.Input{{Object: &sample.Sample{}, Optional: true}}
	b.Manage(t, counter.Wrap(b.Config()), sample.Controller(), noterController(second))
	b.Create(t, b.Sample("one", sample.SampleSpec{}))
	b.WaitReady(t, "one")
	b.WaitReason(t, "one", noted, "Noted")
	for range 2 {
		b.RemoveCRDs(t, sample.CRD().Name)
		asked := func() int {
			seen := counter.Snapshot()
			return seen.Of("list", "test.modelplane.dev/samples") + seen.Of("watch", "test.modelplane.dev/samples")
		}
		testkit.Eventually(t, time.Minute, "nobody to ask for what is not there", func() error {
			before := asked()
			testkit.NoWrites(t, counter, quietFor, "without the kind")
			if n := asked() - before; n > 0 {
				return fmt.Errorf("asked %d times in %s", n, quietFor)
			}
			return nil
		})
		b.InstallCRDs(t, sample.CRD())
		b.Create(t, b.Sample("one", sample.SampleSpec{}))
		b.WaitReady(t, "one")
		b.WaitReason(t, "one", noted, "Noted")
	}
}

// TestInformersAreCounted: an API that is optional for one controller and read by
// another as a matter of course goes and comes for both.
func TestInformersAreCounted(t *testing.T) {
	b := enginetest.New(t)
	b.Install(t, testkit.GatewayAPI)
	route := &unstructured.Unstructured{}
	route.SetGroupVersionKind(sample.RouteKind)
	first := sample.Controller().Spec()
	first.Inputs = append(first.Inputs, engine.Input{Object: route, Optional: true})
	second := noterSpec()
	second.Inputs = []engine.Input{{Object: route}}
	b.Manage(t, b.Config(), engine.For[*sample.Sample, sample.Seen](sample.Kind{}, first), noterController(second))
	b.Create(t, b.Sample("one", sample.SampleSpec{Route: true}))
	b.WaitReady(t, "one")
	routes := func(want string) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, want+" routes to be noted", func() error {
			cm := enginetest.ConfigMap(b.NS, "one-note")
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err != nil {
				return err
			}
			if cm.Data["routes"] != want {
				return fmt.Errorf("it says %v", cm.Data)
			}
			return nil
		})
	}
	routes("1") // the first one's own
	b.Remove(t, testkit.GatewayAPI)
	b.WaitReason(t, "one", "Ready", "APIMissing")
	b.Install(t, testkit.GatewayAPI)
	b.WaitReady(t, "one")
	other := route.DeepCopy()
	other.SetNamespace(b.NS)
	other.SetName("other")
	b.Create(t, other)
	routes("2")
}
