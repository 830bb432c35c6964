// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ofPod says why a pod that is not ready is not.
func ofPod(p *corev1.Pod) Finding {
	if f, ok := wholePod(p); ok {
		return f
	}
	if f, ok := unscheduled(p); ok {
		return f
	}
	var found []Finding
	for i := range p.Status.InitContainerStatuses {
		s := &p.Status.InitContainerStatuses[i]
		found = append(found, container{pod: p, status: s, spec: specOf(p.Spec.InitContainers, s.Name), init: true, order: i}.look()...)
	}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		found = append(found, container{pod: p, status: s, spec: specOf(p.Spec.Containers, s.Name), order: i}.look()...)
	}
	if len(found) == 0 {
		return waiting(nil)
	}
	slices.SortStableFunc(found, graver)
	return found[0]
}

func specOf(containers []corev1.Container, name string) *corev1.Container {
	for i := range containers {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return &corev1.Container{Name: name}
}

// wholePod is what happened to a pod rather than to one of its containers.
func wholePod(p *corev1.Pod) (Finding, bool) {
	ready, containers := condition(p, corev1.PodReady), condition(p, corev1.ContainersReady)
	switch {
	case p.Status.Phase == corev1.PodUnknown, p.Status.Reason == NodeLost:
		return nodeLost, true
	case p.Status.Reason == Evicted:
		// How much was used on the node differs from pod to pod; what was short does not.
		short, _, _ := strings.Cut(p.Status.Message, ". ")
		return Finding{Reason: Evicted, Message: "The pod was evicted: " + sentence(words(short, p)) +
			" Ask for as much as it needs, or make room on the nodes."}, true
	case p.Status.Phase == corev1.PodFailed && p.Status.Reason != "":
		return Finding{Reason: reasonOr(p.Status.Reason, "PodFailed"), Message: "The node ended or refused the pod: " +
			sentence(words(p.Status.Message, p)) + " Look at the node's capacity and health with kubectl describe node."}, true
	case ready != nil && containers != nil && ready.Status == corev1.ConditionFalse && containers.Status == corev1.ConditionTrue &&
		ready.Reason == "":
		// So it looks when not the kubelet but the control plane took the readiness away.
		return nodeLost, true
	}
	return Finding{}, false
}

var nodeLost = Finding{
	Reason:  NodeLost,
	Message: "The node of the pod does not report any more. Look at it with kubectl get nodes; the pod is replaced after a while.",
}
