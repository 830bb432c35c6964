// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube/cause"
)

// Reasons of our own, for what no condition can say.
const (
	reasonNotLookedAt = "NotLookedAt"
	reasonDeleting    = "BeingDeleted"
	reasonBehind      = "ManagerBehind"
)

// checkManager ends what is said when the manager seems to be away.
const checkManager = "If this stays, check that the manager runs and that the kind's domain is enabled."

// podReasons are those that conditions take over from the pods.
var podReasons = []string{
	cause.Waiting, cause.ImagePullBackOff, cause.ErrImageNeverPull, cause.InvalidImageName, cause.CreateContainerConfigError,
	cause.RunContainerError, cause.CrashLoopBackOff, cause.OOMKilled, cause.InitContainerFailed, cause.InitContainerRunning,
	cause.ContainerCreating, cause.Unhealthy, cause.Unschedulable, cause.SchedulingGated, cause.NodeLost, cause.Evicted,
	cause.QuotaExceeded, cause.FailedCreate, cause.DeploymentPaused, cause.ProgressDeadlineExceeded,
}

// echoes are reasons by which other controllers say no more than that pods are
// not ready; the pods know why.
var echoes = []string{"MinimumReplicasUnavailable", "RevisionFailed", "RevisionMissing"}

// verdict weighs what the object says against what its pods say: the object's
// word stands unless it is older than they are.
type verdict struct {
	*exploration
	*Report
	conditions []condition
	ready      *condition
	// live is the workload that is worst off, nil if all are as wanted.
	live *workload
}

// judge fills in whether the object is ready, why not, and what to do.
func (x *exploration) judge(ctx context.Context, r *Report) {
	v := &verdict{exploration: x, Report: r, conditions: conditionsOf(x.obj)}
	v.ready = find(v.conditions, x.readyType())
	v.live = x.worst()
	r.ObservedGeneration, _, _ = unstructured.NestedInt64(x.obj.Object, "status", "observedGeneration")
	if v.ready != nil {
		r.Since = v.ready.since
		r.ObservedGeneration = max(r.ObservedGeneration, v.ready.generation)
	}
	switch {
	case x.obj.GetDeletionTimestamp() != nil:
		v.deleting()
	case v.ready == nil && x.kind.controller.Spec().NoStatus:
		v.statusless(x.warnings(ctx, nil))
	case v.ready == nil:
		v.blame(nil, &Cause{Source: FromObject, Reason: reasonNotLookedAt, Message: "No manager has looked at it yet. " + checkManager})
	case v.unserved() != nil:
		v.saysUnserved(v.unserved())
	case r.ObservedGeneration > 0 && r.ObservedGeneration < r.Generation:
		v.outdated()
	case v.ready.status == string(metav1.ConditionTrue):
		v.saysReady()
	default:
		v.saysNotReady()
	}
	for _, typ := range x.kind.about.Aside {
		if c := find(v.conditions, typ); c != nil && c.status != string(metav1.ConditionTrue) {
			r.Notes = append(r.Notes, c.sentence())
		}
	}
	r.Commands = v.commands()
}

func (x *exploration) readyType() string {
	if t := x.kind.controller.Spec().Ready; t != "" {
		return t
	}
	return "Ready"
}

// worst is the first workload that waiting will not mend, else the first that
// has something to say.
func (x *exploration) worst() *workload {
	var second *workload
	for _, w := range x.workloads {
		switch {
		case w.finding == nil:
		case w.finding.Blocking:
			return w
		case second == nil && w.finding.Reason != cause.Waiting:
			second = w
		}
	}
	return second
}

// blame takes a cause; w is the workload where it happens, if it is one.
func (v *verdict) blame(w *workload, c *Cause) {
	if w != nil {
		c.Pod, c.Container = w.finding.Pod, w.finding.Container
	}
	if c.Message == "" {
		c.Message = "No more is said about it."
	}
	v.Cause = c
}

// statusless is for an object whose status is not the manager's to write: it is as well as its pods are, and where it has
// none, what the manager has to say of it is in its events.
func (v *verdict) statusless(events []Warning) {
	if v.live != nil {
		v.blamePods(v.live)
		return
	}
	for _, e := range events {
		if len(v.workloads) == 0 && e.Kind == v.obj.GetKind() && e.Name == v.obj.GetName() {
			v.blame(nil, &Cause{Source: FromObject, Reason: e.Reason, Message: e.Message})
			return
		}
	}
	v.Report.Ready = true
}

func (v *verdict) deleting() {
	age := duration.HumanDuration(v.exploration.Now().Sub(v.obj.GetDeletionTimestamp().Time))
	text := "It was deleted " + age + " ago and is about to go."
	if f := v.obj.GetFinalizers(); len(f) > 0 {
		text = "It was deleted " + age + " ago and is held by finalizers: " + strings.Join(f, ", ") +
			". Whoever set one takes it off after cleaning up; check that it runs."
	}
	v.blame(nil, &Cause{Source: FromObject, Reason: reasonDeleting, Message: text})
}

// unserved is the condition that says that the object is ready only because older pods answer, nil if none does. One that
// was said of an earlier generation is about another rollout.
func (v *verdict) unserved() *condition {
	c := find(v.conditions, v.kind.about.Latest)
	if c == nil || c.status == string(metav1.ConditionTrue) || v.ready.status != string(metav1.ConditionTrue) {
		return nil
	}
	if v.ObservedGeneration < v.Generation && !strings.Contains(c.message, fmt.Sprintf("generation %d ", v.Generation)) {
		return nil
	}
	return c
}

func (v *verdict) saysUnserved(c *condition) {
	v.unservedYet, v.Since = true, c.since
	var at *workload
	for _, w := range v.workloads {
		if w.finding != nil && c.explains(w.finding) {
			at = w
			break
		}
	}
	v.blame(at, &Cause{Source: FromCondition, Condition: c.typ, Status: c.status, Reason: c.reason, Message: c.message})
	v.Notes = append(v.Notes, v.ready.typ+" is True: what ran before answers.")
}

// outdated: what the conditions say is about an earlier generation, so that the
// pods know better.
func (v *verdict) outdated() {
	c := v.first()
	v.Notes = append(v.Notes, fmt.Sprintf("Of generation %d it was said: %s", v.ObservedGeneration, c.sentence()))
	if v.live != nil && v.live.finding.Blocking {
		v.blamePods(v.live)
		return
	}
	v.blame(nil, &Cause{Source: FromObject, Reason: reasonNotLookedAt,
		Message: fmt.Sprintf("The manager has seen generation %d and this is generation %d. %s", v.ObservedGeneration, v.Generation, checkManager)})
}

// saysReady believes it, unless pods that count are down.
func (v *verdict) saysReady() {
	for _, w := range v.workloads {
		if w.down() && v.explaining(w.finding) == nil {
			v.blamePods(w)
			v.Notes = append(v.Notes, v.ready.typ+" is True, which the manager has not corrected yet. "+checkManager)
			return
		}
	}
	v.Report.Ready = true
	for _, typ := range append([]string{engine.Stalled, engine.Contested}, v.kind.about.Conditions...) {
		c := find(v.conditions, typ)
		abnormal := typ == engine.Stalled || typ == engine.Contested
		if c != nil && c.typ != v.ready.typ && (c.status == string(metav1.ConditionTrue)) == abnormal {
			v.Notes = append(v.Notes, c.sentence())
		}
	}
}

// saysNotReady takes the first cause from the conditions, with the pod that it
// is about; what the pods say counts where the conditions lag behind them.
func (v *verdict) saysNotReady() {
	c := v.first()
	said := &Cause{Source: FromCondition, Condition: c.typ, Status: c.status, Reason: c.reason, Message: c.message}
	for _, w := range v.workloads {
		if w.finding != nil && c.explains(w.finding) {
			v.blame(w, said)
			return
		}
	}
	ofPods := slices.Contains(podReasons, c.reason)
	switch {
	case v.live != nil && (ofPods || slices.Contains(echoes, c.reason) || c.status == string(metav1.ConditionUnknown)):
		v.blamePods(v.live)
		v.Notes = append(v.Notes, "The conditions say: "+c.sentence())
	case ofPods && v.allWell():
		v.blame(nil, &Cause{Source: FromPods, Reason: reasonBehind,
			Message: "The pods are as wanted now, and the manager has not said so yet. " + checkManager})
		v.Notes = append(v.Notes, "The conditions still say: "+c.sentence())
	default:
		v.blame(nil, said)
		if v.live != nil {
			v.Notes = append(v.Notes, fmt.Sprintf("Besides, of %s %s: %s", v.live.child.GetKind(), v.live.child.GetName(), v.live.finding.Message))
		}
	}
}

func (v *verdict) blamePods(w *workload) {
	v.blame(w, &Cause{Source: FromPods, Reason: w.finding.Reason, Message: w.finding.Message})
}

// allWell tells whether there are Deployments, all were read, and none lacks anything.
func (v *verdict) allWell() bool {
	return len(v.workloads) > 0 && v.readAll(podKind) &&
		!slices.ContainsFunc(v.workloads, func(w *workload) bool { return w.deployment == nil || w.finding != nil })
}

// explaining is the condition that already says what was found, nil if none does.
func (v *verdict) explaining(f *cause.Finding) *condition {
	for i := range v.conditions {
		if c := &v.conditions[i]; c.status != string(metav1.ConditionTrue) && c.explains(f) {
			return c
		}
	}
	return nil
}

// explains tells whether the condition carries the finding, maybe with a word
// before it that says where.
func (c *condition) explains(f *cause.Finding) bool {
	return c.reason == f.Reason && strings.HasSuffix(c.message, f.Message)
}

// sentence is a condition in words.
func (c *condition) sentence() string {
	text := c.typ + " is " + c.status
	if c.reason != "" {
		text += " (" + c.reason + ")"
	}
	if c.message != "" {
		return text + ": " + c.message
	}
	return text + "."
}

// first is the condition that says the first cause. A summary of ours repeats
// it, so the one that it repeats is looked for; other summaries are passed over.
func (v *verdict) first() *condition {
	if c := find(v.conditions, engine.Stalled); c != nil && c.status == string(metav1.ConditionTrue) {
		return c
	}
	var parts []*condition
	for _, typ := range v.order() {
		if typ == v.kind.about.Latest { // which repeats what is said of an object that is not ready
			continue
		}
		if c := find(v.conditions, typ); c != nil && c.status != string(metav1.ConditionTrue) {
			parts = append(parts, c)
		}
	}
	if v.ready.message != "" {
		for _, c := range parts {
			if c.reason == v.ready.reason && c.message == v.ready.message {
				return c
			}
		}
		return v.ready
	}
	for _, status := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown} {
		for _, c := range parts {
			if c.status == string(status) {
				return c
			}
		}
	}
	return v.ready
}

// order of the conditions that the summary depends on.
func (v *verdict) order() []string {
	if len(v.kind.about.Conditions) > 0 {
		return v.kind.about.Conditions
	}
	var out []string
	for i := range v.conditions {
		if t := v.conditions[i].typ; t != v.ready.typ && t != engine.Stalled {
			out = append(out, t)
		}
	}
	return out
}
