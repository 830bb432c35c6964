// SPDX-License-Identifier: Apache-2.0

package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/kube/cause"
	"github.com/modelplane/modelplane/internal/serving/resolve"
)

// reasonRollingOut is that of a rollout of which nothing is wrong so far.
const reasonRollingOut = "RollingOut"

// Standing is the condition of a component that runs on Deployments: True when
// its pods answer, also while they give way to newer ones, until these have
// taken longer than allowed; otherwise the first cause why they do not.
func (j Judge) Standing(c *resolve.Component) kube.Condition {
	typ := ReadyConditions[c.Component]
	worst := j.Rollout(typ, c.Name)
	if worst.Status != metav1.ConditionTrue && (j.atZero(c) || j.waking(c)) {
		return kube.Condition{Type: typ, Status: metav1.ConditionTrue}
	}
	if w := c.Part.Worker; w != nil && worst.Status == metav1.ConditionTrue {
		if worst = j.Rollout(typ, w.Name); worst.Status != metav1.ConditionTrue {
			worst.Message = "worker-container: " + worst.Message
		}
	}
	return worst
}

// Trial is the condition of a canary.
func (j Judge) Trial(c *resolve.Component) kube.Condition {
	if f := c.Failed; f != nil {
		return kube.Condition{Type: CanaryReady, Status: metav1.ConditionFalse, Reason: f.Problem.Reason, Message: f.Problem.Message}
	}
	return j.Rollout(CanaryReady, c.Name)
}

// Rollout judges one Deployment. While its own status lags behind, what was
// said before stands, unless the spec has changed since.
func (j Judge) Rollout(typ, name string) kube.Condition {
	d := j.Seen.Deployments[name]
	waiting := kube.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: ReasonStarting,
		Message: "Waiting for the pods of Deployment " + name + " to become ready."}
	if d == nil {
		return waiting
	}
	current := cause.Observed(d)
	if !current && j.Isvc.Status.ObservedGeneration == j.Isvc.Generation {
		if before, ok := j.Before(typ); !ok {
			return waiting
		} else if before.Reason != ReasonInvalidConfig { // which is over
			return before
		}
	}
	if current && kube.RolledOut(d) || kube.Answers(d) && !cause.Late(d) {
		return kube.Condition{Type: typ, Status: metav1.ConditionTrue}
	}
	finding, found := cause.Of(d, j.Seen.PodsOf(name))
	switch {
	case found && (finding.Blocking || kube.Answers(d)):
		return kube.Condition{Type: typ, Status: metav1.ConditionFalse, Reason: finding.Reason, Message: finding.Message}
	case kube.Answers(d):
		return kube.Condition{Type: typ, Status: metav1.ConditionTrue}
	case found && finding.Reason != cause.Waiting:
		return kube.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: finding.Reason, Message: finding.Message}
	}
	return waiting
}

// Latest says of components that answer whether their newest pods have taken over, where these have not: the old ones
// must not hide what becomes of the new ones.
func (j Judge) Latest(cs *kube.Conditions, components ...*resolve.Component) {
	var worst kube.Condition
	for _, c := range components {
		names := []string{c.Name}
		if w := c.Part.Worker; w != nil {
			names = append(names, w.Name)
		}
		for _, name := range names {
			if found := j.latest(c, name); worst.Type == "" || worst.Status == metav1.ConditionUnknown && found.Status == metav1.ConditionFalse {
				worst = found
			}
		}
	}
	if worst.Type != "" {
		cs.Set(worst)
	}
}

// latest judges the newest pods of one Deployment; nothing where they have taken over, or where it does not answer, which
// the component's own condition tells. Ready does not wait for a canary, so its pods count either way. The generation is
// in the message, because the one in the status may be that of the old pods.
func (j Judge) latest(c *resolve.Component, name string) kube.Condition {
	d := j.Seen.Deployments[name]
	if c.Canary == "" && (d == nil || !kube.Answers(d)) {
		return kube.Condition{}
	}
	who := resolve.NewPods(j.Isvc)
	switch {
	case c.Canary != "":
		who += " (canary " + c.Canary + ")"
	case c.Component != v1beta1.PredictorComponent:
		who += " (" + string(c.Component) + ")"
	}
	if f := c.Failed; f != nil {
		return kube.Condition{Type: LatestReady, Status: metav1.ConditionFalse, Reason: f.Problem.Reason, Message: who + " cannot be made: " + f.Problem.Message}
	}
	rolling := kube.Condition{Type: LatestReady, Status: metav1.ConditionUnknown, Reason: reasonRollingOut,
		Message: who + " take over when they are ready; until then those before them answer."}
	if d == nil {
		return rolling
	}
	if !cause.Observed(d) {
		// Most often the autoscaler has changed the number of pods, so that what was said of these pods stands.
		switch before, said := j.Before(LatestReady); {
		case resolve.Changed(j.Isvc):
			return rolling
		case said:
			return before
		}
		return kube.Condition{}
	}
	if kube.RolledOut(d) {
		return kube.Condition{}
	}
	f, found := cause.Of(d, j.Seen.PodsOf(name))
	switch {
	case found && (f.Blocking || cause.Late(d)):
		return kube.Condition{Type: LatestReady, Status: metav1.ConditionFalse, Reason: f.Reason, Message: who + " cannot take over: " + f.Message}
	case found && f.Reason == cause.Unschedulable: // until somebody makes room
		rolling.Reason, rolling.Message = f.Reason, who+" wait: "+f.Message
	}
	return rolling
}

// generation keeps the generation in the status back while the service is ready only because older pods answer. Whoever
// waits for Ready of a generation (kubectl wait, kstatus, the Python SDK) so waits until that one is served.
func (j Judge) generation(s *v1beta1.InferenceServiceStatus, cs kube.Conditions) {
	if _, said := cs.Get(LatestReady); said && !cs.IsTrue(LatestReady) && cs.IsTrue(v1beta1.ConditionReady) {
		s.ObservedGeneration = j.Isvc.Status.ObservedGeneration
	}
}
