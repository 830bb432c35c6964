// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSummarise(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(*Conditions)
		want Condition
	}{
		{"all true", func(cs *Conditions) { cs.True("A", "Up", ""); cs.True("B", "Up", "") },
			Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", Message: "All is well."}},
		{"false beats an earlier unknown", func(cs *Conditions) { cs.Unknown("A", "Starting", "Wait."); cs.False("B", "Down", "Fix B.") },
			Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Down", Message: "Fix B."}},
		{"the first false wins", func(cs *Conditions) { cs.False("A", "DownA", "Fix A."); cs.False("B", "DownB", "Fix B.") },
			Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "DownA", Message: "Fix A."}},
		{"missing is unknown", func(cs *Conditions) { cs.True("A", "Up", "") },
			Condition{Type: "Ready", Status: metav1.ConditionUnknown, Reason: "NotReported", Message: "B has not been reported yet."}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cs := Conditions{}
			tc.set(&cs)
			cs.Summarise("Ready", "All is well.", "A", "B")
			got, _ := cs.Get("Ready")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestConditionsAreSetOnce(t *testing.T) {
	cs := Conditions{}
	cs.True("A", "Up", "")
	cs.True("B", "Up", "")
	cs.False("A", "Down", "Fix it.")
	want := []metav1.Condition{
		{Type: "A", Status: metav1.ConditionFalse, Reason: "Down", Message: "Fix it."},
		{Type: "B", Status: metav1.ConditionTrue, Reason: "Up"},
	}
	if diff := cmp.Diff(want, cs.Standard()); diff != "" {
		t.Error(diff)
	}
	if cs.IsTrue("A") || !cs.IsTrue("B") || cs.IsTrue("C") {
		t.Error("IsTrue does not tell the truth")
	}
}

func TestRenderKnativeStyle(t *testing.T) {
	type knative struct{ Type, Severity string }
	cs := Conditions{{Type: "A", Severity: "Info"}}
	got := Render(cs, func(c Condition) knative { return knative{c.Type, c.Severity} })
	if diff := cmp.Diff([]knative{{"A", "Info"}}, got); diff != "" {
		t.Error(diff)
	}
}
