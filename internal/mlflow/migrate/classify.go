// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/kube/cause"
)

// What database.py says, in its own words.
const (
	unchanged        = "The database was not changed."
	maybeChanged     = "The database may have been changed."
	nothingToMigrate = "Nothing to migrate"
)

// terminalCodes are the exit codes of failures that another try cannot mend.
var terminalCodes = map[int32]string{
	10: "the image has another version of MLflow",
	11: "the backend store is of an unsupported kind",
	12: "the registry store is of an unsupported kind",
	13: "the database is not at the newest revision after the migration",
	14: "the revision of the database does not fit the MLflow of the image",
}

const failedCode = 15

// result is how a Job ended.
type result struct {
	terminal bool
	// unchanged is set when the database is certainly as it was.
	unchanged bool
	detail    string
	at        time.Time
}

// attempt is a Job with its pods, oldest first.
type attempt struct {
	*batchv1.Job
	pods []corev1.Pod
}

func (o *Observed) attempt(job *batchv1.Job) attempt {
	a := attempt{Job: job}
	for _, p := range o.Pods {
		if ref := metav1.GetControllerOfNoCopy(&p); ref != nil && ref.UID == job.UID {
			a.pods = append(a.pods, p)
		}
	}
	slices.SortFunc(a.pods, func(x, y corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	return a
}

func (a attempt) succeeded() bool { return a.Status.Succeeded > 0 }

func (a attempt) failed() bool { return a.condition(batchv1.JobFailed) != nil || a.givenUp() }

func (a attempt) finished() bool { return a.succeeded() || a.failed() }

// givenUp is a Job that we stopped because its pod did not start.
func (a attempt) givenUp() bool {
	return ptr.Deref(a.Spec.Suspend, false) && !slices.ContainsFunc(a.pods, active)
}

func (a attempt) condition(t batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range a.Status.Conditions {
		if c := &a.Status.Conditions[i]; c.Type == t && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// active is a pod that may still do something.
func active(p corev1.Pod) bool {
	return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func terminated(p *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == container {
			return c.State.Terminated
		}
	}
	return nil
}

// started tells whether anything of the Job may have worked on the database.
func (a attempt) started() bool {
	return a.Status.Failed > 0 || slices.ContainsFunc(a.pods, func(p corev1.Pod) bool {
		return p.Status.Phase != corev1.PodPending && p.Status.Phase != "" || slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.State.Running != nil || c.State.Terminated != nil || c.RestartCount > 0
		})
	})
}

// said is what the newest pod left in its termination log.
func (a attempt) said() string {
	if len(a.pods) == 0 {
		return ""
	}
	if t := terminated(&a.pods[len(a.pods)-1]); t != nil {
		return strings.TrimSpace(t.Message)
	}
	return ""
}

// result classifies a failed Job. Every pod must have said that it left the
// database alone, not only the last one.
func (a attempt) result(reads bool) result {
	out := result{unchanged: reads || len(a.pods) > 0 && int(a.Status.Failed) <= len(a.pods)}
	for i := range a.pods {
		t := terminated(&a.pods[i])
		out.unchanged = out.unchanged && (reads || t != nil && strings.Contains(t.Message, unchanged))
	}
	if c := a.condition(batchv1.JobFailed); c != nil {
		out.at, out.detail = c.LastTransitionTime.Time, a.ofJob(c)
	}
	if a.givenUp() {
		out.unchanged, out.at, out.detail = true, a.CreationTimestamp.Add(startDeadline), fmt.Sprintf("its pod did not start within %s", span(startDeadline))
		if c := a.condition(batchv1.JobSuspended); c != nil {
			out.at = c.LastTransitionTime.Time
		}
		return out
	}
	if len(a.pods) == 0 {
		return out
	}
	if t := terminated(&a.pods[len(a.pods)-1]); t != nil && t.ExitCode != 0 {
		_, out.terminal = terminalCodes[t.ExitCode]
		out.detail = ofContainer(t)
	}
	return out
}

// ofContainer says in words why a container ended.
func ofContainer(t *corev1.ContainerStateTerminated) string {
	text, known := terminalCodes[t.ExitCode]
	switch {
	case known:
	case t.ExitCode == failedCode:
		text = "the database could not be worked on"
	case t.Reason != "" && t.Reason != "Error":
		text = fmt.Sprintf("the container ended with %s", t.Reason)
	default:
		text = fmt.Sprintf("the container exited with code %d", t.ExitCode)
	}
	message := strings.TrimSpace(cause.Hide(t.Message))          // an image of the user's may say anything
	for _, end := range []string{unchanged, maybeChanged, "."} { // they are said in other words
		message = strings.TrimSpace(strings.TrimSuffix(message, end))
	}
	if message != "" {
		text += ": " + message
	}
	return text
}

func (a attempt) ofJob(c *batchv1.JobCondition) string {
	if c.Reason == batchv1.JobReasonDeadlineExceeded {
		return fmt.Sprintf("the Job did not end within %s", span(time.Duration(ptr.Deref(a.Spec.ActiveDeadlineSeconds, 0))*time.Second))
	}
	for _, text := range []string{c.Message, c.Reason} {
		if text != "" {
			return strings.TrimSuffix(text, ".")
		}
	}
	return fmt.Sprintf("%d of its pods failed", a.Status.Failed)
}

// span is a duration for people.
func span(d time.Duration) string {
	unit, n := "minute", int(d/time.Minute)
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		unit, n = "hour", int(d/time.Hour)
	case d < time.Minute:
		unit, n = "second", int(d/time.Second)
	}
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d %s", n, unit)
}
