// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"fmt"
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

var (
	// podRefused begins what the API server says of a pod that it did not take; the name is made up anew each time.
	podRefused = regexp.MustCompile(`^pods? "[^"]*" (is|was) (forbidden|invalid)?:? ?`)
	// aReplicaSet is the one that a Deployment says to make progress with.
	aReplicaSet = regexp.MustCompile(`(?i)replica ?set "([^"]+)"`)
	// overQuota says how much is in use, which changes all the time, between what stays.
	overQuota = regexp.MustCompile(`exceeded quota: ([^,]+), requested: (.*), used: .*, limited: (.*)$`)
	// noAccount is what the API server says of a service account that does not exist. A webhook may mention the account of
	// a Secret that is missing.
	noAccount = regexp.MustCompile(`(?i)serviceaccount "[^"]*" not found`)
)

// Observed tells whether the status of a Deployment speaks of its present spec. One that says something but not of which
// spec is believed: not everything that plays the Deployment controller counts generations.
func Observed(d *appsv1.Deployment) bool {
	if d.Status.ObservedGeneration == 0 && len(d.Status.Conditions) > 0 {
		return true
	}
	return d.Status.ObservedGeneration >= d.Generation
}

// Late tells whether a rollout has taken longer than the Deployment allows.
func Late(d *appsv1.Deployment) bool {
	c := conditionOf(d, appsv1.DeploymentProgressing)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == ProgressDeadlineExceeded
}

// refusal is why pods of a Deployment cannot even be made.
func refusal(d *appsv1.Deployment) (Finding, bool) {
	if c := conditionOf(d, appsv1.DeploymentReplicaFailure); c != nil && c.Status == corev1.ConditionTrue {
		return refused(c), true
	}
	c := conditionOf(d, appsv1.DeploymentProgressing)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason == ProgressDeadlineExceeded {
		return Finding{}, false
	}
	// FailedCreate and ReplicaSetCreateError: the Deployment cannot make its ReplicaSet or its pods.
	return refused(c), true
}

func refused(c *appsv1.DeploymentCondition) Finding {
	f := Finding{Reason: reasonOr(c.Reason, FailedCreate), Blocking: true, Time: c.LastTransitionTime}
	text := podRefused.ReplaceAllString(c.Message, "")
	if m := overQuota.FindStringSubmatch(text); m != nil {
		f.Reason = QuotaExceeded
		f.Message = fmt.Sprintf("Pods cannot be created: they ask for %s, but the quota %q of the namespace ends at %s. "+
			"Ask for less, or raise the quota.", words(m[2], nil), words(m[1], nil), words(m[3], nil))
		return f
	}
	said := sentence(words(text, nil))
	switch lower := strings.ToLower(text); {
	case strings.Contains(lower, "failed calling webhook"):
		f.Blocking = false
		f.Message = "Pods cannot be created: " + said + " Check that the webhook's own pods run; creation is tried again by itself."
	case advises(text):
		f.Message = "Pods cannot be created: " + said
	case noAccount.MatchString(text):
		f.Message = "Pods cannot be created: " + said + " Create the service account, or name one that exists."
	case strings.Contains(lower, "podsecurity"):
		f.Message = "Pods cannot be created: " + said + " Change the security context, or the policy of the namespace."
	default:
		f.Message = "Pods cannot be created: " + said + " Change what is refused, or the policy that refuses it."
	}
	return f
}

// stuck is what to say when nothing is wrong with the pods but waiting takes too long.
func stuck(d *appsv1.Deployment, found []Finding) (Finding, bool) {
	c := conditionOf(d, appsv1.DeploymentProgressing)
	switch {
	case d.Spec.Paused:
		return Finding{
			Reason: DeploymentPaused, Message: "The rollout is paused. Resume it with kubectl rollout resume.", Blocking: true,
		}, true
	case !Late(d):
		return Finding{}, false
	}
	for _, f := range found {
		if f.late != nil {
			return *f.late, true
		}
	}
	return Finding{
		Reason: ProgressDeadlineExceeded,
		Message: "The pods did not become ready in the time that the Deployment allows. Look at their events with kubectl " +
			"describe.",
		Time: c.LastTransitionTime,
	}, true
}

// current is the hash of the ReplicaSet that the Deployment speaks of; nothing else in its status names it.
func current(d *appsv1.Deployment) string {
	c := conditionOf(d, appsv1.DeploymentProgressing)
	if c == nil {
		return ""
	}
	m := aReplicaSet.FindStringSubmatch(c.Message)
	if m == nil {
		return ""
	}
	hash, _ := strings.CutPrefix(m[1], d.Name+"-")
	return hash
}

func conditionOf(d *appsv1.Deployment, typ appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range d.Status.Conditions {
		if d.Status.Conditions[i].Type == typ {
			return &d.Status.Conditions[i]
		}
	}
	return nil
}
