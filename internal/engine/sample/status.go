// SPDX-License-Identifier: Apache-2.0

package sample

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/internal/engine"
)

func status(s *Sample, seen Seen, children int, p *engine.Problem) *SampleStatus {
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", Message: "Everything is in place."}
	switch {
	case p != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, p.Reason, p.Message
	case s.Spec.WaitForPods && !rolledOut(s, seen):
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "Progressing", "Waiting for the pods of the Deployment to become ready."
	}
	return &SampleStatus{ObservedGeneration: s.Generation, Conditions: []metav1.Condition{ready}, Children: children}
}

func rolledOut(s *Sample, seen Seen) bool {
	d := seen.Deployment
	return d != nil && d.Status.ObservedGeneration >= d.Generation && d.Status.ReadyReplicas >= s.Spec.Replicas
}
