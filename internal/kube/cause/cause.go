// SPDX-License-Identifier: Apache-2.0

// Package cause finds the first cause why the pods of a workload are not ready, and says it in a sentence for the person
// on call: what is wrong, in which container, and what to do next.
//
// What it says becomes the reason and message of conditions. It therefore stays the same for as long as the cause does:
// no names of pods, no times, no counts of restarts, one reason for states between which a kubelet alternates, and one
// single message for everything that a healthy start passes through.
//
// It is pure and knows Kubernetes only; it must not know which product a pod belongs to.
package cause

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Reasons. Where Kubernetes has a word for it, it is that word.
const (
	// Waiting means that nothing is wrong so far.
	Waiting = "PodsNotReady"

	ImagePullBackOff           = "ImagePullBackOff"
	ErrImageNeverPull          = "ErrImageNeverPull"
	InvalidImageName           = "InvalidImageName"
	CreateContainerConfigError = "CreateContainerConfigError"
	RunContainerError          = "RunContainerError"
	CrashLoopBackOff           = "CrashLoopBackOff"
	OOMKilled                  = "OOMKilled"
	InitContainerFailed        = "InitContainerFailed"
	InitContainerRunning       = "InitContainerRunning"
	ContainerCreating          = "ContainerCreating"
	Unhealthy                  = "Unhealthy"
	Unschedulable              = "Unschedulable"
	SchedulingGated            = "SchedulingGated"
	NodeLost                   = "NodeLost"
	Evicted                    = "Evicted"
	QuotaExceeded              = "QuotaExceeded"
	FailedCreate               = "FailedCreate"
	DeploymentPaused           = "DeploymentPaused"
	ProgressDeadlineExceeded   = "ProgressDeadlineExceeded"
)

// Finding is a cause.
type Finding struct {
	Reason, Message string
	// Blocking means that waiting will not help.
	Blocking bool
	// Container that is concerned, if one is, and whether it is an init container.
	Container string
	Init      bool
	// ExitCode of the container when it ended.
	ExitCode int32
	// Volumes are what keeps the pod from a node; looking at the nodes would not help.
	Volumes bool
	// Pod in which it was found. Another replica may be next time, so this does not belong into a status.
	Pod string
	// Time since when the pod or Deployment is in trouble; not when it last failed, which would change all the time.
	Time metav1.Time

	// order of the container in its pod.
	order int
	// late is what to say instead once the Deployment has waited too long.
	late *Finding
}

// Of is the first cause why a Deployment is not as wanted; false means that all is well. The pods are those that its
// selector finds.
func Of(d *appsv1.Deployment, pods []corev1.Pod) (Finding, bool) {
	if settled(d, pods) {
		return Finding{}, false
	}
	if f, ok := refusal(d); ok {
		return f, true
	}
	found := inspect(d, pods)
	if len(found) > 0 && found[0].Reason != Waiting {
		return found[0], true
	}
	if f, ok := stuck(d, found); ok {
		return f, true
	}
	return Finding{Reason: Waiting, Message: waitingFor(wanted(d)), Time: d.CreationTimestamp}, true
}

// Pod is the first cause why one pod is not ready; false means that it is, or that it is on its way out.
func Pod(p *corev1.Pod) (Finding, bool) {
	if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || Ready(p) {
		return Finding{}, false
	}
	f := ofPod(p)
	f.Pod, f.Time = p.Name, since(p)
	if f.late != nil {
		f.late.Pod, f.late.Time = f.Pod, f.Time
	}
	return f, true
}

func wanted(d *appsv1.Deployment) int32 { return ptr.Deref(d.Spec.Replicas, 1) }

// settled tells whether the present generation runs in as many pods as wanted. Pods of an older one that are still on
// their way out do no harm, but those of them that answer say nothing about the new ones: the Deployment counts how many
// are new and how many are available, not how many are both.
func settled(d *appsv1.Deployment, pods []corev1.Pod) bool {
	n := wanted(d)
	if n == 0 {
		return true
	}
	if !Observed(d) || d.Status.UpdatedReplicas < n || d.Status.AvailableReplicas < n {
		return false
	}
	if old := max(d.Status.Replicas-d.Status.UpdatedReplicas, 0); d.Status.AvailableReplicas-old >= n {
		return true
	}
	hash, ready := current(d), int32(0)
	for i := range pods {
		if p := &pods[i]; hash != "" && hashOf(p) == hash && p.DeletionTimestamp == nil && Ready(p) {
			ready++
		}
	}
	return ready >= n
}

// inspect finds what holds the pods of the newest ReplicaSet up, gravest first. What older pods suffer from may have been
// mended already, and they are about to go.
func inspect(d *appsv1.Deployment, pods []corev1.Pod) []Finding {
	hash, ok := newestOf(d, pods)
	if !ok {
		return nil
	}
	var found, history []Finding
	live := int32(0)
	for i := range pods {
		p := &pods[i]
		if hashOf(p) != hash || p.DeletionTimestamp != nil {
			continue
		}
		f, ok := Pod(p)
		if p.Status.Phase == corev1.PodFailed {
			history = append(history, f)
			continue
		}
		live++
		if ok {
			found = append(found, f)
		}
	}
	// A pod that failed as a whole is left lying about for long; it matters as long as nothing has taken its place.
	if live < wanted(d) {
		found = append(found, history...)
	}
	slices.SortFunc(found, graver)
	return found
}

// newestOf tells the pods of the newest ReplicaSet from others: it is the one that the Deployment speaks of, or else the one
// of the newest pod that is not ready. A pod that is may be an older one that was moved.
func newestOf(d *appsv1.Deployment, pods []corev1.Pod) (hash string, ok bool) {
	if hash := current(d); hash != "" && slices.ContainsFunc(pods, func(p corev1.Pod) bool { return hashOf(&p) == hash }) {
		return hash, true
	}
	newest := -1
	for i := range pods {
		if _, ok := Pod(&pods[i]); ok && (newest < 0 || newer(&pods[i], &pods[newest])) {
			newest = i
		}
	}
	if newest < 0 {
		return "", false
	}
	return hashOf(&pods[newest]), true
}

func hashOf(p *corev1.Pod) string { return p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] }

func newer(a, b *corev1.Pod) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name < b.Name
}

// graver orders findings so that the choice does not depend on the order of pods, and on their names last.
func graver(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(b.weight(), a.weight()),
		cmp.Compare(a.place(), b.place()),
		cmp.Compare(a.order, b.order),
		cmp.Compare(a.Reason, b.Reason),
		cmp.Compare(a.Message, b.Message),
		cmp.Compare(a.Pod, b.Pod),
	)
}

func (f Finding) weight() int {
	switch {
	case f.Blocking:
		return 2
	case f.Reason != Waiting:
		return 1
	}
	return 0
}

// place puts init containers before the others, since they run first.
func (f Finding) place() int {
	if f.Init {
		return 0
	}
	return 1
}

func waitingFor(replicas int32) string {
	if replicas == 1 {
		return "Waiting until the pod is ready."
	}
	return fmt.Sprintf("Waiting until all %d pods are ready.", replicas)
}

// waiting is the one finding of a healthy start.
func waiting(late *Finding) Finding {
	return Finding{Reason: Waiting, Message: waitingFor(1), late: late}
}

// since is when the pod stopped being ready, or was made.
func since(p *corev1.Pod) metav1.Time {
	if c := condition(p, corev1.PodReady); c != nil && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime
	}
	return p.CreationTimestamp
}

// Ready tells whether a pod takes requests.
func Ready(p *corev1.Pod) bool {
	c := condition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func condition(p *corev1.Pod, typ corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == typ {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}
