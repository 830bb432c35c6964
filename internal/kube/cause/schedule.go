// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

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
		return unschedulable(p, c.Message), true
	}
	return Finding{}, false
}

func unschedulable(p *corev1.Pod, message string) Finding {
	why := refusals(message)
	step := roomStep(strings.Join(why, ", "))
	for i := range why {
		why[i] = withAsked(why[i], p)
	}
	return Finding{
		Reason: Unschedulable, Volumes: step.volumes, Blocking: step.blocking,
		Message: "No node takes the pod: " + sentence(words(strings.Join(why, ", "), p)) + " " + step.next,
	}
}

var (
	someNodes = regexp.MustCompile(`^\d+/\d+ nodes are available: `)
	// counted begins what is said of some of the nodes; a reason may have commas of its own.
	counted = regexp.MustCompile(`(?:^|, )\d+ `)
	lacking = regexp.MustCompile(`^Insufficient (\S+)$`)
)

// refusals is what the scheduler says without how many nodes it says it of, which changes with every node and pod. It
// writes "0/3 nodes are available: ", then either one reason that holds for all nodes or the reasons with their numbers of
// nodes, a full stop, and what came of attempts to make room, which says nothing new ("no new claims to deallocate,
// preemption: 0/3 nodes are available: …", or just "not found").
func refusals(message string) []string {
	text := someNodes.ReplaceAllString(message, "")
	if text == message {
		return []string{message}
	}
	text, _, _ = strings.Cut(text, ". ")
	text, _, _ = strings.Cut(text, " preemption:")
	text = strings.TrimRight(text, "., ")
	if at := counted.FindStringIndex(text); len(at) == 0 || at[0] != 0 {
		return []string{text}
	}
	reasons := counted.Split(text, -1)[1:]
	slices.Sort(reasons)
	return slices.Compact(reasons)
}

// withAsked adds how much the pod asks for of what is too little. How much is free is in no message and different on each
// node, and nodes are not watched for it.
func withAsked(reason string, p *corev1.Pod) string {
	m := lacking.FindStringSubmatch(reason)
	if m == nil {
		return reason
	}
	asked := requested(p, corev1.ResourceName(m[1]))
	if asked.IsZero() {
		return reason
	}
	return reason + " (it asks for " + asked.String() + ")"
}

// requested is how much of a resource a node must have free for the pod: what its containers and sidecars need together,
// or an init container next to the sidecars before it if that is more.
func requested(p *corev1.Pod, name corev1.ResourceName) resource.Quantity {
	var sidecars, most resource.Quantity
	for i := range p.Spec.InitContainers {
		c := container{spec: &p.Spec.InitContainers[i], init: true}
		need := c.spec.Resources.Requests[name].DeepCopy()
		need.Add(sidecars)
		if !c.oneShot() {
			sidecars = need
		}
		if need.Cmp(most) > 0 {
			most = need
		}
	}
	together := sidecars.DeepCopy()
	for i := range p.Spec.Containers {
		together.Add(p.Spec.Containers[i].Resources.Requests[name])
	}
	if together.Cmp(most) > 0 {
		most = together
	}
	if whole := p.Spec.Resources; whole != nil {
		if asked, ok := whole.Requests[name]; ok {
			most = asked.DeepCopy()
		}
	}
	most.Add(p.Spec.Overhead[name])
	return most
}

// room is what to do about a reason of the scheduler.
type room struct {
	// any of these, in lower case, gives it away.
	any  []string
	next string
	// volumes: nodes have no part in it.
	volumes bool
	// blocking: nobody but a person ends it. Room may be made by pods that go and by autoscalers of nodes.
	blocking bool
}

var rooms = []room{
	{any: []string{"readwriteoncepod"}, next: "Give the pod a claim of its own, or one that several pods may use.", volumes: true},
	{any: []string{"unbound immediate persistentvolumeclaim", "bound to non-existent", "waiting for ephemeral volume"},
		next: "See with kubectl describe pvc why the claim is not bound.", volumes: true},
	{any: []string{"is being deleted"}, next: "Wait until the claim is gone and create it again, or name another.", volumes: true},
	{any: []string{"persistentvolumeclaim"}, next: "Create the claim, or correct its name.", volumes: true, blocking: true},
	{any: []string{"resourceclaim"}, next: "Look at the claim with kubectl describe resourceclaim, and create it if it does not exist."},
	{any: []string{"insufficient"}, next: "Ask for less, or add nodes that have it; kubectl describe nodes shows what is free."},
	{any: []string{"too many pods"}, next: "Add nodes, or remove pods that are not needed."},
	{any: []string{"taint", "affinity", "selector"}, next: "Correct node selector, affinity or tolerations, or add nodes that fit."},
	{any: []string{"no nodes available"}, next: "Add nodes."},
}

func roomStep(why string) room {
	lower := strings.ToLower(why)
	for _, r := range rooms {
		if slices.ContainsFunc(r.any, func(part string) bool { return strings.Contains(lower, part) }) {
			return r
		}
	}
	return room{next: "Correct what the pod asks of a node, or add nodes that fit."}
}
