// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelplane/modelplane/api/components/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/mlflow/mlflowtest"
	"github.com/modelplane/modelplane/internal/mlflow/module"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	testkit.Main(m)
}

type bench struct {
	*mlflowtest.Bench
}

func newBench(t *testing.T) *bench {
	return &bench{mlflowtest.With(t, map[string]any{"module": map[string]any{"enabled": true}})}
}

func controller(ns string) engine.Controller {
	return module.Controller(func() module.Settings { return module.Settings{Namespace: ns, Version: "3.14.0"} })
}

func (b *bench) run(ctx context.Context, cfg *rest.Config) error {
	return mlflowtest.RunWith(ctx, cfg, controller(b.NS))
}

func (b *bench) manage(t *testing.T, cfg *rest.Config) {
	t.Helper()
	testkit.Manage(t, func(ctx context.Context) error { return b.run(ctx, cfg) })
}

func operator(spec v1alpha1.MLflowOperatorSpec) *v1alpha1.MLflowOperator {
	return &v1alpha1.MLflowOperator{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MLflowOperatorName}, Spec: spec}
}

var whole = v1alpha1.MLflowOperatorSpec{GatewayName: "gateway", SectionTitle: "Models"}

func (b *bench) create(t testing.TB, m *v1alpha1.MLflowOperator) {
	t.Helper()
	if err := b.C.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.discard(t) })
}

// discard removes the module also when nobody takes its finalizer off.
func (b *bench) discard(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, mlflowtest.Patience, "the module to go", func() error {
		m := operator(whole)
		if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(m), m); err != nil {
			return client.IgnoreNotFound(err)
		}
		m.Finalizers = nil
		if err := b.C.Update(context.Background(), m); err != nil {
			return err
		}
		_ = b.C.Delete(context.Background(), m)
		return errors.New("not yet")
	})
}

func (b *bench) ready(status metav1.ConditionStatus, reason string) (*v1alpha1.MLflowOperator, error) {
	m := operator(whole)
	if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(m), m); err != nil {
		return m, err
	}
	for _, c := range m.Status.Conditions {
		if c.Type == "Ready" && c.Status == status && c.Reason == reason && c.ObservedGeneration == m.Generation {
			return m, nil
		}
	}
	return m, fmt.Errorf("conditions: %+v", m.Status.Conditions)
}

func (b *bench) wait(t testing.TB, status metav1.ConditionStatus, reason string) *v1alpha1.MLflowOperator {
	t.Helper()
	var m *v1alpha1.MLflowOperator
	testkit.Eventually(t, mlflowtest.Patience, "Ready "+string(status)+" "+reason, func() (err error) {
		m, err = b.ready(status, reason)
		return err
	})
	return m
}

func TestModule(t *testing.T) {
	b := newBench(t)
	counter := testkit.NewCounter()
	b.manage(t, counter.Wrap(b.Manager))
	m := operator(v1alpha1.MLflowOperatorSpec{GatewayName: "gateway"})
	b.create(t, m)
	got := b.wait(t, metav1.ConditionFalse, "ConfigPending")
	if got.Status.Phase != "Progressing" || !strings.Contains(got.Status.Conditions[0].Message, "spec.sectionTitle") || got.Finalizers[0] != module.Finalizer {
		t.Errorf("%v, %+v", got.Finalizers, got.Status)
	}
	b.Change(t, m, func() { m.Spec.SectionTitle = "Models" })
	got = b.wait(t, metav1.ConditionTrue, "Ready")
	if diff := cmp.Diff([]v1alpha1.Release{{Name: "MLflow", Version: "3.14.0", RepoURL: "https://github.com/mlflow/mlflow"}}, got.Status.Releases); diff != "" || got.Status.Phase != "Ready" {
		t.Errorf("phase %s, %s", got.Status.Phase, diff)
	}
	testkit.NoWrites(t, counter, 2*time.Second, "when nothing changes")

	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: module.ConfigName}, Data: map[string]string{"platformVersion": "two"}}
	b.Create(t, config)
	b.wait(t, metav1.ConditionFalse, "PlatformVersionInvalid")
	for _, version := range []string{"2.20", "v3.0", "3", "", " 2.25.0-rc.1+build "} {
		b.Change(t, config, func() { config.Data["platformVersion"] = version })
		testkit.Eventually(t, mlflowtest.Patience, "the version "+version+" to be taken", func() error {
			got, err := b.ready(metav1.ConditionTrue, "Ready")
			if want := strings.TrimSpace(version); err == nil && (len(got.Status.Releases) == 2) != (want != "") || want != "" && got.Status.Releases[0].Version != want {
				return fmt.Errorf("releases: %+v", got.Status.Releases)
			}
			return err
		})
	}
	b.Change(t, config, func() { config.Data["platformVersion"] = "v2.25.0" })
	testkit.Eventually(t, mlflowtest.Patience, "the version to be told", func() error {
		got, err := b.ready(metav1.ConditionTrue, "Ready")
		if len(got.Status.Releases) != 2 || got.Status.Releases[0] != (v1alpha1.Release{Name: "platform", Version: "v2.25.0"}) {
			return fmt.Errorf("releases: %+v", got.Status.Releases)
		}
		return err
	})

	server := mlflowtest.Server()
	b.Create(t, server)
	if err := b.C.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if got = b.wait(t, metav1.ConditionFalse, "MLflowInstancesPresent"); got.Status.Phase != "Progressing" || got.Status.ObservedGeneration != got.Generation {
		t.Errorf("a deletion that is blocked: phase %s of generation %d, which is %d", got.Status.Phase, got.Status.ObservedGeneration, got.Generation)
	}
	if err := b.C.Delete(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, mlflowtest.Patience, "the module to go", func() error {
		err := b.C.Get(t.Context(), client.ObjectKeyFromObject(m), m)
		if err == nil {
			return errors.New("it is still there")
		}
		return client.IgnoreNotFound(err)
	})
}

func TestModuleKilledAnywhereAndFaults(t *testing.T) {
	b := newBench(t)
	converged := func() error { _, err := b.ready(metav1.ConditionTrue, "Ready"); return err }
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager, Run: b.run, Converged: converged,
		Reset:  func(t testing.TB) { b.create(t, operator(whole)) },
		Verify: func(t testing.TB) { b.wait(t, metav1.ConditionTrue, "Ready") },
		Delete: func(t testing.TB) { b.Delete(t, operator(whole)) },
		Gone:   func() error { return b.Bench.Bench.Ended([]client.Object{operator(whole)}, nil) },
	})
	faults := testkit.NewFaults(1).AddEach(0.1)
	faults.Off()
	b.manage(t, faults.Wrap(b.Manager))
	m := operator(whole)
	b.create(t, m)
	testkit.Eventually(t, mlflowtest.Patience, "the module to be ready", converged)
	faults.On()
	for _, title := range []string{"", "Models", "", "Others"} {
		b.Change(t, m, func() { m.Spec.SectionTitle = title })
		if title == "" {
			b.wait(t, metav1.ConditionFalse, "ConfigPending")
		} else {
			b.wait(t, metav1.ConditionTrue, "Ready")
		}
	}
	b.Delete(t, m)
	testkit.Eventually(t, mlflowtest.Patience, "the module to go in spite of faults", func() error { return b.Bench.Bench.Ended([]client.Object{m}, nil) })
	faults.Off()
	if faults.Injected() == 0 {
		t.Error("nothing went wrong")
	}
}

func TestGate(t *testing.T) {
	said := func(status metav1.ConditionStatus, reason string, generation int64) *v1alpha1.MLflowOperator {
		m := operator(whole)
		m.Generation, m.Status.ObservedGeneration = 2, generation
		m.Status.Conditions = []v1alpha1.Condition{{Type: "Ready", Status: status, Reason: reason, ObservedGeneration: generation, Message: "m"}}
		return m
	}
	for _, test := range []struct {
		m             *v1alpha1.MLflowOperator
		status        metav1.ConditionStatus
		reason        string
		open, serving bool
	}{
		{nil, metav1.ConditionFalse, "MLflowOperatorMissing", false, false},
		{operator(whole), metav1.ConditionFalse, "MLflowOperatorNotReady", false, false},
		{said(metav1.ConditionTrue, "Ready", 1), metav1.ConditionFalse, "MLflowOperatorStatusStale", false, false},
		{said(metav1.ConditionFalse, "ConfigPending", 2), metav1.ConditionFalse, "ConfigPending", false, false},
		{said(metav1.ConditionFalse, "MLflowInstancesPresent", 2), metav1.ConditionFalse, "MLflowInstancesPresent", false, true},
		{said(metav1.ConditionTrue, "Ready", 2), metav1.ConditionTrue, "Ready", true, true},
	} {
		c, open, serving := module.Gate(test.m)
		if c.Type != module.Condition || c.Status != test.status || c.Reason != test.reason || open != test.open || serving != test.serving || c.Message == "" {
			t.Errorf("want %+v, got %+v %v %v", test, c, open, serving)
		}
	}
}

func TestDomain(t *testing.T) {
	for domain, want := range map[string]string{"": "", "apps.example.com/": "https://apps.example.com", "http://plain.example.com": "http://plain.example.com"} {
		m := operator(v1alpha1.MLflowOperatorSpec{Gateway: &v1alpha1.MLflowOperatorGateway{Domain: domain}})
		if got := module.Domain(m); got != want {
			t.Errorf("%q becomes %q", domain, got)
		}
	}
	if module.Domain(nil) != "" {
		t.Error("no module says nothing")
	}
}
