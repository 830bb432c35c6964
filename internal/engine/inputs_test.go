// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// podCounter writes the number of an object's pods into a ConfigMap. It sees
// only pods with the label "counted", and only those of its own app wake it.
type podCounter struct{ looks atomic.Int32 }

func (c *podCounter) Observe(ctx context.Context, r engine.Reader, s *sample.Sample) (int, error) {
	c.looks.Add(1)
	pods := &corev1.PodList{}
	mine := engine.Matching(func(o client.Object) bool { return o.GetLabels()["app"] == s.Name })
	err := r.List(ctx, pods, client.InNamespace(s.Namespace), client.MatchingLabels{"app": s.Name}, mine)
	return len(pods.Items), err
}

func (c *podCounter) Plan(s *sample.Sample, pods int) engine.Plan {
	cm := enginetest.ConfigMap(s.Namespace, s.Name)
	cm.Data = map[string]string{"pods": strconv.Itoa(pods)}
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Counted", Message: "The pods are counted."}
	return engine.Plan{Children: []engine.Child{{Object: cm}}, Status: sample.SampleStatus{Conditions: []metav1.Condition{ready}}}
}

func TestSelectedInputsWakeOnlyThoseConcerned(t *testing.T) {
	b := enginetest.New(t)
	kind := &podCounter{}
	selector, err := labels.Parse("counted")
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Manage(t, b.Config(), engine.For[*sample.Sample, int](kind, engine.Spec{
		Name:     "podcounter",
		Children: []engine.ChildKind{{Object: &corev1.ConfigMap{}}},
		Inputs:   []engine.Input{{Object: &corev1.Pod{}, Select: selector}},
	}))
	b.Create(t, b.Sample("one", sample.SampleSpec{}))
	b.WaitReady(t, "one")
	counted := func(want string) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, want+" pods to be counted", func() error {
			cm := enginetest.ConfigMap(b.NS, "one")
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err != nil {
				return err
			}
			if cm.Data["pods"] != want {
				return fmt.Errorf("counted %s", cm.Data["pods"])
			}
			return nil
		})
	}
	pod := func(name string, l map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name, Labels: l},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}}}
	}
	mine := pod("mine", map[string]string{"counted": "", "app": "one"})
	b.Create(t, pod("hidden", map[string]string{"app": "one"}), mine)
	counted("1")

	settled, since := kind.looks.Load(), time.Now()
	testkit.Eventually(t, 30*time.Second, "everything to settle", func() error {
		if now := kind.looks.Load(); now != settled {
			settled, since = now, time.Now()
		}
		if time.Since(since) < time.Second {
			return errors.New("still looking")
		}
		return nil
	})
	b.Create(t, pod("other", map[string]string{"counted": "", "app": "two"}))
	testkit.Quiet(t, quietFor, "nobody to look because of another's pod", func() error {
		if now := kind.looks.Load(); now != settled {
			return fmt.Errorf("%d looks more", now-settled)
		}
		return nil
	})
	if err := b.C.Delete(t.Context(), mine, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	counted("0")
}
