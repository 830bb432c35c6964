// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestRolledOut(t *testing.T) {
	condition := func(typ appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: typ, Status: status, Reason: reason}
	}
	available := condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable")
	for name, c := range map[string]struct {
		conditions       []appsv1.DeploymentCondition
		old              int32 // pods of the template before
		answers, through bool
	}{
		"new": {},
		"without a deadline": {
			conditions: []appsv1.DeploymentCondition{available}, answers: true, through: true,
		},
		"complete": {
			conditions: []appsv1.DeploymentCondition{available, condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable")},
			answers:    true, through: true,
		},
		"the conditions lag behind": {
			conditions: []appsv1.DeploymentCondition{available, condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable")},
			old:        1, answers: true,
		},
		"old pods answer": {
			conditions: []appsv1.DeploymentCondition{condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated"), available},
			answers:    true,
		},
		"in vain": {
			conditions: []appsv1.DeploymentCondition{available, condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded")},
			answers:    true,
		},
		"down": {
			conditions: []appsv1.DeploymentCondition{
				condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable"),
				condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable"),
			},
		},
	} {
		d := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Conditions: c.conditions, Replicas: 1 + c.old, UpdatedReplicas: 1}}
		if Answers(d) != c.answers || RolledOut(d) != c.through {
			t.Errorf("%s: answers %v, rolled out %v", name, Answers(d), RolledOut(d))
		}
	}
}
