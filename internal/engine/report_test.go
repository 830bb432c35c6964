// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestStalled: failures of the world are retried in silence first, then the
// object says so, and stops saying so when they are over.
func TestStalled(t *testing.T) {
	b := enginetest.NewParallel(t)
	faults := testkit.NewFaults(1).Add(testkit.Rule{Fault: testkit.InternalError, Verbs: []string{"apply"}, Targets: []string{"apps/deployments"}, Probability: 1})
	b.Manage(t, faults.Wrap(b.Manager))
	b.Create(t, b.Sample("one", sample.SampleSpec{}))
	c := b.WaitReason(t, "one", engine.Stalled, "APIServerFailed")
	if c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "Deployment") {
		t.Errorf("the condition must name the child: %+v", c)
	}
	if ready := b.WaitReason(t, "one", "Ready", "APIServerFailed"); ready.Status != metav1.ConditionUnknown {
		t.Errorf("readiness cannot be told: %+v", ready)
	}
	faults.Off()
	b.WaitReady(t, "one")
	s := b.Sample("one", sample.SampleSpec{})
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	if meta.FindStatusCondition(s.Status.Conditions, engine.Stalled) != nil {
		t.Errorf("still stalled: %+v", s.Status.Conditions)
	}
}

// TestConditionsDoNotLie watches every status that is ever written while an
// object goes through all that can happen to it.
func TestConditionsDoNotLie(t *testing.T) {
	b := enginetest.NewParallel(t)
	b.Manage(t, b.Manager)
	w := b.WatchConditions(t, sample.GroupVersion.WithKind("Sample"), b.NS)
	b.Create(t, b.Sample("one", sample.SampleSpec{From: "later"}))
	b.WaitReason(t, "one", "Ready", "ConfigMapMissing")
	b.Create(t, enginetest.ConfigMap(b.NS, "later"))
	b.WaitReady(t, "one")
	s := b.Sample("one", sample.SampleSpec{})
	b.Change(t, s, func() { s.Spec.Message = "forbidden" })
	b.WaitReason(t, "one", "Ready", "MessageRefused")
	b.Change(t, s, func() { s.Spec.Message = "fine" })
	b.WaitReady(t, "one")
	w.Stop(t)
	if w.Seen() < 4 {
		t.Errorf("only %d states were seen", w.Seen())
	}
}

// TestForeignStatusIsPutRight: what somebody else writes into the status does
// not stay.
func TestForeignStatusIsPutRight(t *testing.T) {
	b := enginetest.NewParallel(t)
	b.Manage(t, b.Manager)
	s := b.Sample("one", sample.SampleSpec{})
	b.Create(t, s)
	b.WaitReady(t, "one")
	testkit.Eventually(t, 30*time.Second, "the foreign write", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		s.Status.Children = 99
		return b.C.Status().Update(t.Context(), s)
	})
	testkit.Eventually(t, 30*time.Second, "the status to be put right", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		if s.Status.Children != 3 {
			return fmt.Errorf("children: %d", s.Status.Children)
		}
		return nil
	})
}

// TestQuota: a quota that is too small is named, with what to do.
func TestQuota(t *testing.T) {
	b := enginetest.New(t)
	b.ControllerManager(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "tiny"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/services": resource.MustParse("0")}}}
	b.Create(t, quota)
	testkit.Eventually(t, 30*time.Second, "the quota to be enforced", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if len(quota.Status.Hard) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	b.Manage(t, b.Manager)
	b.Create(t, b.Sample("one", sample.SampleSpec{}))
	c := b.WaitReason(t, "one", "Ready", "QuotaExceeded")
	if !strings.Contains(c.Message, "tiny") || !strings.Contains(c.Message, "Raise the quota") {
		t.Errorf("message: %q", c.Message)
	}
	if err := b.C.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	b.WaitReady(t, "one")
}

// TestNoFinalizerWithoutNeed: an object that leaves nothing behind is not held up.
func TestNoFinalizerWithoutNeed(t *testing.T) {
	b := enginetest.NewParallel(t)
	b.Manage(t, b.Manager)
	s := b.Sample("one", sample.SampleSpec{})
	b.Create(t, s)
	b.WaitReady(t, "one")
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	if len(s.Finalizers) != 0 {
		t.Errorf("finalizers: %v", s.Finalizers)
	}
}
