// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	testkit.Main(m, testkit.Parallel(8))
}

const (
	// quietFor is how long nothing may happen.
	quietFor = 3 * time.Second
	// settleFor is after which time without a sign nothing more is taken to be on its way.
	settleFor = 2 * time.Second
)

func TestConvergeThenSilence(t *testing.T) {
	b := enginetest.New(t)
	counter := testkit.NewCounter()
	stop := b.Manage(t, counter.Wrap(b.Manager))
	b.Create(t, b.Sample("one", sample.SampleSpec{Message: "hi", Replicas: 2}))
	b.WaitReady(t, "one")
	if got := counter.Writes(); got > 5 { // three children, status, event
		t.Errorf("converging took %d writes:\n%s", got, counter)
	}
	testkit.NoWrites(t, counter, quietFor, "when nothing changes")

	stop()
	restarted := testkit.NewCounter()
	b.Manage(t, restarted.Wrap(b.Manager))
	testkit.Eventually(t, 30*time.Second, "the restarted manager to watch", func() error {
		if restarted.Snapshot().Of("watch", "apps/deployments") == 0 {
			return errors.New("no watch yet")
		}
		return nil
	})
	testkit.NoWrites(t, restarted, quietFor, "after a restart")

	before := restarted.Snapshot()
	s := b.Sample("one", sample.SampleSpec{})
	b.Change(t, s, func() { s.Spec.Message = "changed" })
	b.WaitReady(t, "one")
	if since := restarted.Since(before); since.Of("apply", "configmaps") != 1 || since.Writes() > 2 {
		t.Errorf("one changed child must cost one apply and one status patch:\n%s", since)
	}
}

// TestStatusSpeaksOfWhatWasWritten: a child that was just changed still looks
// ready in the cache, and must not be reported so.
func TestStatusSpeaksOfWhatWasWritten(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	s := b.Sample("one", sample.SampleSpec{Message: "hi", Replicas: 2, WaitForPods: true})
	b.Create(t, s)
	b.WaitReason(t, "one", "Ready", "Progressing")
	d := enginetest.Deployment(b.NS, "one")
	ready := func(generation int64) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, "the Deployment to be of its next generation", func() error {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				return err
			}
			if d.Generation != generation {
				return fmt.Errorf("generation is %d", d.Generation)
			}
			return nil
		})
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: generation, Replicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
		if err := b.C.Status().Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		b.WaitReady(t, "one")
		testkit.NoWrites(t, counter, time.Second, "when all is ready")
	}
	ready(1)
	before := counter.Snapshot()
	b.Change(t, s, func() { s.Spec.Replicas = 1 })
	b.WaitReason(t, "one", "Ready", "Progressing")
	testkit.NoWrites(t, counter, time.Second, "while it waits")
	if since := counter.Since(before); since.Of("patch", "test.modelplane.dev/samples/status") != 1 {
		t.Errorf("the status was to be written once, when the change was seen:\n%s", since)
	}
	ready(2)
}

func TestRepair(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	b.Create(t, b.Sample("one", sample.SampleSpec{Message: "hi", Replicas: 2}))
	b.WaitReady(t, "one")

	t.Run("edited", func(t *testing.T) {
		before := counter.Snapshot()
		d := enginetest.Deployment(b.NS, "one")
		b.Change(t, d, func() { d.Spec.Template.Spec.Containers[0].Image = "evil:1" })
		testkit.Eventually(t, 30*time.Second, "the image to be set back", func() error {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				return err
			}
			if image := d.Spec.Template.Spec.Containers[0].Image; image != "sample:1" {
				return fmt.Errorf("image is %s", image)
			}
			return nil
		})
		if since := counter.Since(before); since.Of("apply", "apps/deployments") != 1 {
			t.Errorf("a repair must cost one apply:\n%s", since)
		}
		testkit.Eventually(t, 30*time.Second, "an event about it", func() error {
			if e := b.Events(t, "ChildRepaired"); len(e) != 1 || !strings.Contains(e[0].Message, "kubectl-edit") {
				return fmt.Errorf("events: %v", e)
			}
			return nil
		})
	})
	t.Run("additions of others stay", func(t *testing.T) {
		d := enginetest.Deployment(b.NS, "one")
		b.Change(t, d, func() { metav1.SetMetaDataAnnotation(&d.ObjectMeta, "team", "red") })
		testkit.NoWrites(t, counter, quietFor, "because of a foreign annotation")
	})
	t.Run("label removed", func(t *testing.T) {
		cm := enginetest.ConfigMap(b.NS, "one")
		b.Change(t, cm, func() { delete(cm.Labels, engine.LabelOwner) })
		testkit.Eventually(t, 30*time.Second, "the label to be back", func() error {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err != nil {
				return err
			}
			if cm.Labels[engine.LabelOwner] == "" {
				return errors.New("not yet")
			}
			return nil
		})
	})
	t.Run("deleted", func(t *testing.T) {
		cm := enginetest.ConfigMap(b.NS, "one")
		if err := b.C.Delete(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 30*time.Second, "the ConfigMap to be back", func() error {
			return b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), enginetest.ConfigMap(b.NS, "one"))
		})
		testkit.Eventually(t, 30*time.Second, "an event about it", func() error {
			if e := b.Events(t, "ChildRecreated"); len(e) == 0 {
				return errors.New("none")
			}
			return nil
		})
	})
}

func TestPrune(t *testing.T) {
	b := enginetest.New(t)
	stop := b.Manage(t, b.Manager)
	b.Create(t, b.Sample("one", sample.SampleSpec{Extra: "ConfigMap"}))
	b.WaitReady(t, "one")
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "one"}}
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil {
		t.Fatal(err)
	}

	s := b.Sample("one", sample.SampleSpec{})
	b.Change(t, s, func() { s.Spec.Headless = true })
	b.WaitGone(t, service)

	// The kind of a child changes while nobody runs.
	stop()
	b.Change(t, s, func() { s.Spec.Extra = "Secret" })
	b.Manage(t, b.Manager)
	b.WaitGone(t, enginetest.ConfigMap(b.NS, "one-extra"))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "one-extra"}}
	testkit.Eventually(t, 30*time.Second, "the Secret", func() error {
		return b.C.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)
	})
}

func TestWaitingIsWoken(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	b.Create(t, b.Sample("one", sample.SampleSpec{From: "later", SecretFrom: "hidden"}))
	c := b.WaitReason(t, "one", "Ready", "ConfigMapMissing")
	if !strings.HasSuffix(c.Message, "Create it.") {
		t.Errorf("no next step: %q", c.Message)
	}
	testkit.NoWrites(t, counter, quietFor, "while waiting")

	source := enginetest.ConfigMap(b.NS, "later")
	source.Data = map[string]string{"value": "1"}
	b.Create(t, source)
	b.WaitReason(t, "one", "Ready", "SecretMissing")
	b.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "hidden"}, Data: map[string][]byte{"value": []byte("abc")}})
	b.WaitReady(t, "one")

	before := counter.Snapshot()
	b.Create(t, enginetest.ConfigMap(b.NS, "unrelated"))
	b.Change(t, source, func() { source.Data["value"] = "2" })
	testkit.Eventually(t, 30*time.Second, "the new value to be copied", func() error {
		cm := enginetest.ConfigMap(b.NS, "one")
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err != nil {
			return err
		}
		if cm.Data["from"] != "2" || cm.Data["length"] != "3" {
			return fmt.Errorf("data is %v", cm.Data)
		}
		return nil
	})
	if since := counter.Since(before); since.Of("get", "configmaps") != 1 || since.Of("get", "secrets") != 0 {
		t.Errorf("one changed input costs one read, an unchanged one none:\n%s", since)
	}
}

func TestMustChangeIsNotRetried(t *testing.T) {
	b := enginetest.NewParallel(t)
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	b.Create(t, b.Sample("one", sample.SampleSpec{Message: "forbidden"}))
	b.WaitReason(t, "one", "Ready", "MessageRefused")
	b.WaitEvents(t, "MessageRefused", 1)
	testkit.NoWrites(t, counter, quietFor, "until somebody acts")
	b.WaitEvents(t, "MessageRefused", 1)
	s := b.Sample("one", sample.SampleSpec{})
	b.Change(t, s, func() { s.Spec.Message = "fine" })
	b.WaitReady(t, "one")
}

func TestOptionalAPI(t *testing.T) {
	b := enginetest.New(t)
	b.Remove(t, testkit.GatewayAPI)
	b.Manage(t, b.Manager)
	b.Create(t, b.Sample("one", sample.SampleSpec{Route: true}))
	c := b.WaitReason(t, "one", "Ready", "APIMissing")
	if !strings.Contains(c.Message, "gateway.networking.k8s.io/v1") {
		t.Errorf("the condition must name the API: %q", c.Message)
	}
	for round := range 2 { // come, go, and come again
		b.Install(t, testkit.GatewayAPI)
		b.WaitReady(t, "one")
		route := &unstructured.Unstructured{}
		route.SetGroupVersionKind(sample.RouteKind)
		if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "one"}, route); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		b.Remove(t, testkit.GatewayAPI)
		b.WaitReason(t, "one", "Ready", "APIMissing")
	}
}

// TestAnAPIThatGoesBeforeItsWatchIsFilled holds up nobody, and nobody asks for it
// afterwards.
func TestAnAPIThatGoesBeforeItsWatchIsFilled(t *testing.T) {
	b := enginetest.New(t)
	b.Remove(t, testkit.GatewayAPI)
	const routes = "gateway.networking.k8s.io/httproutes"
	counter, faults := testkit.NewCounter(), testkit.NewFaults(1)
	faults.Add(testkit.Rule{Fault: testkit.Slow, Delay: time.Hour, Verbs: []string{"list", "watch"}, Targets: []string{routes}})
	b.Manage(t, counter.Wrap(faults.Wrap(b.Config())), sample.Controller(), noterController(noterSpec()))
	s := b.Sample("one", sample.SampleSpec{Message: "first", Route: true})
	b.Create(t, s)
	b.WaitReason(t, "one", "Ready", "APIMissing")
	asked := func() int {
		seen := counter.Snapshot()
		return seen.Of("list", routes) + seen.Of("watch", routes)
	}
	b.Install(t, testkit.GatewayAPI)
	testkit.Eventually(t, time.Minute, "a watch that is not filled", func() error {
		if asked() == 0 {
			return errors.New("no request yet")
		}
		return nil
	})
	b.Change(t, s, func() { s.Spec.Message = "second" })
	planned{}.message(t, b, "one", "second") // within less than a wait for the watch lasts
	b.Remove(t, testkit.GatewayAPI)
	b.Change(t, s, func() { s.Spec.Message = "third" })
	planned{}.message(t, b, "one", "third")
	testkit.Rest(t, quietFor, "nobody to ask for what is not there", asked)
	faults.Clear()
	b.Install(t, testkit.GatewayAPI)
	b.WaitReady(t, "one")
}

func TestFarAndKeptChildren(t *testing.T) {
	b := enginetest.NewParallel(t)
	far := b.Namespace(t)
	b.Manage(t, b.Manager)
	s := b.Sample("one", sample.SampleSpec{Far: far, Keep: true})
	s.Finalizers = []string{"sample.example.com/old"}
	b.Create(t, s)
	b.WaitReady(t, "one")
	remote := enginetest.ConfigMap(far, b.NS+"-one")
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(remote), remote); err != nil {
		t.Fatal(err)
	}
	if err := b.C.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.WaitGone(t, remote)
	b.WaitGone(t, s)
	kept := enginetest.ConfigMap(b.NS, "one-kept")
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil {
		t.Fatalf("the retained child must stay: %v", err)
	}
	// The next object of that name takes it over again.
	b.Create(t, b.Sample("one", sample.SampleSpec{Keep: true}))
	b.WaitReady(t, "one")
}

func TestReplaceImmutable(t *testing.T) {
	b := enginetest.NewParallel(t)
	b.Manage(t, b.Manager)
	b.Create(t, b.Sample("one", sample.SampleSpec{Job: "first"}))
	b.WaitReady(t, "one")
	s := b.Sample("one", sample.SampleSpec{})
	b.Change(t, s, func() { s.Spec.Job = "second" })
	testkit.Eventually(t, 20*time.Second, "the Job to be replaced", func() error {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("batch/v1")
		u.SetKind("Job")
		if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "one-job"}, u); err != nil {
			return err
		}
		containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
		if args := containers[0].(map[string]any)["args"].([]any); args[0] != "second" {
			return fmt.Errorf("args are %v", args)
		}
		return nil
	})
	b.WaitReady(t, "one")
}

func TestRefusedChildIsShown(t *testing.T) {
	b := enginetest.NewParallel(t)
	b.Manage(t, b.Manager)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "none"}}
	b.Create(t, quota)
	b.Create(t, b.Sample("one", sample.SampleSpec{}))
	b.WaitReady(t, "one")
	// A name that is no valid Service name: the API server refuses the child.
	b.Create(t, b.Sample("a.b", sample.SampleSpec{}))
	c := b.WaitReason(t, "a.b", "Ready", "ChildRefused")
	if !strings.Contains(c.Message, "Service") || !strings.Contains(c.Message, "metadata.name") {
		t.Errorf("the condition must name the child and the field: %q", c.Message)
	}
}
