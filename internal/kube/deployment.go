// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Answers tells whether pods of a Deployment, new or old, take requests.
func Answers(d *appsv1.Deployment) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
	})
}

// RolledOut tells whether a Deployment's newest pods have taken over. A change
// of their number alone does not undo it. Whether the Deployment's status
// speaks of its present spec is the caller's to check.
func RolledOut(d *appsv1.Deployment) bool {
	return Answers(d) && d.Status.UpdatedReplicas == d.Status.Replicas && !slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentProgressing && (c.Status != corev1.ConditionTrue || c.Reason != "NewReplicaSetAvailable")
	})
}
