// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"regexp"
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

// unscheduled is why no node takes the pod.
func unscheduled(p *corev1.Pod) (Finding, bool) {
	c := condition(p, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse {
		return Finding{}, false
	}
	switch c.Reason {
	case corev1.PodReasonSchedulingGated:
		var gates []string
		for _, g := range p.Spec.SchedulingGates {
			gates = append(gates, g.Name)
		}
		slices.Sort(gates)
		return Finding{Reason: SchedulingGated, Message: "Scheduling is held back by gates: " + words(strings.Join(gates, ", "), p) +
			". Whoever set them has to lift them."}, true
	case corev1.PodReasonUnschedulable:
		why := shortage(c.Message)
		return Finding{Reason: Unschedulable, Message: "No node takes the pod: " + sentence(words(why, p)) + " " + makeRoom(why)}, true
	}
	return Finding{}, false
}

var (
	someNodes = regexp.MustCompile(`^\d+/\d+ nodes are available: `)
	leading   = regexp.MustCompile(`^\d+ `)
)

// shortage is what the scheduler says without how many nodes it says it of, which changes with every node and pod.
func shortage(message string) string {
	text := someNodes.ReplaceAllString(message, "")
	if text == message {
		return message
	}
	for _, end := range []string{". preemption:", " preemption:"} {
		text, _, _ = strings.Cut(text, end)
	}
	var reasons []string
	for _, reason := range strings.Split(strings.TrimSuffix(strings.TrimSpace(text), "."), ", ") {
		reasons = append(reasons, leading.ReplaceAllString(reason, ""))
	}
	slices.Sort(reasons)
	return strings.Join(slices.Compact(reasons), ", ")
}

func makeRoom(why string) string {
	lower := strings.ToLower(why)
	switch {
	case strings.Contains(lower, "persistentvolumeclaim"):
		return "Create the claim, or see with kubectl describe pvc why it is not bound."
	case strings.Contains(lower, "insufficient"):
		return "Ask for less, or add nodes that have it."
	case strings.Contains(lower, "taint"), strings.Contains(lower, "affinity"), strings.Contains(lower, "selector"):
		return "Correct node selector, affinity or tolerations, or add nodes that fit."
	}
	return "Correct what the pod asks of a node, or add nodes that fit."
}
