// SPDX-License-Identifier: Apache-2.0

package graphs

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/kube/cause"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/knative"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// Conditions of a graph besides Ready and those that Knative has.
const (
	stoppedCondition = "Stopped"
	// modeKept is there only when an annotation asks for another mode than the
	// one that the graph keeps.
	modeKept = "DeploymentModeKept"
	// updatesHeld is there only while the router is not what would be made now.
	updatesHeld = "UpdatesHeld"
	// settingsIgnored is there only when something that was asked for is not done.
	settingsIgnored = "SettingsIgnored"
)

// Reasons.
const (
	reasonHalted   = "Stopped"
	reasonRunning  = "Running"
	reasonStarting = "Starting"

	reasonInvalidConfig = "InvalidConfiguration"
	reasonNoEffect      = "NoEffect"
)

const labelRevision = "serving.knative.dev/revision"

// newStatus has what every status of a graph says.
func (p *planner) newStatus() *v1alpha1.InferenceGraphStatus {
	s := &v1alpha1.InferenceGraphStatus{DeploymentMode: p.seen.Mode}
	if p.seen.ConfigProblem != nil {
		s.DeploymentMode = p.graph.Status.DeploymentMode // a guess is not kept
	}
	s.ObservedGeneration = p.graph.Generation
	s.Annotations = p.graph.Status.Annotations
	return s
}

// status tells how the graph is. Its URL appears when it is ready for the first
// time and stays until it is stopped.
func (p *planner) status(targets []*target, router kube.Condition, serverless kube.Conditions, url string) *v1alpha1.InferenceGraphStatus {
	s := p.newStatus()
	ready := p.conclude(s, targets, router, serverless)
	if url != "" && (ready || p.graph.Status.URL != nil) {
		s.URL = &url
	}
	return s
}

// conclude sums up: a graph is ready when everything that it routes to and the
// router are. What somebody has to act on comes first.
func (p *planner) conclude(s *v1alpha1.InferenceGraphStatus, targets []*target, router kube.Condition, serverless kube.Conditions) (ready bool) {
	all := kube.Conditions{}
	var parts []string
	add := func(part string, c kube.Condition) {
		c.Type = part
		all.Set(c)
		parts = append(parts, part)
	}
	for _, t := range targets {
		if t.problem != nil {
			add("service/"+t.name, t.standing)
		}
	}
	for _, t := range targets {
		if t.problem == nil {
			add("service/"+t.name, t.standing)
		}
	}
	add("router", router)
	all.Summarise(v1beta1.ConditionReady, "", parts...)

	cs := kube.Conditions{}
	for _, typ := range []string{knative.ConditionRoutesReady, knative.ConditionConfigurationsReady} {
		if c, ok := serverless.Get(typ); ok {
			cs.Set(c)
		}
	}
	sum, _ := all.Get(v1beta1.ConditionReady)
	cs.Set(sum)
	cs.False(stoppedCondition, reasonRunning, "")
	if p.seen.ConfigProblem != nil {
		cs.True(updatesHeld, reasonInvalidConfig, p.doubt())
	}
	p.sayModeKept(&cs)
	if ignored := p.ignored(); len(ignored) > 0 {
		cs.True(settingsIgnored, reasonNoEffect, strings.Join(ignored, " "))
	}
	s.Conditions = render(cs)
	return sum.Status == metav1.ConditionTrue
}

// ignored are settings that do nothing here. It is no reason to be unready.
func (p *planner) ignored() []string {
	var out []string
	if p.seen.Mode != config.ModeStandard {
		return nil
	}
	if least := p.graph.Spec.MinReplicas; least != nil && *least == 0 && workload.Class(p.graph.Annotations) == workload.ClassHPA {
		out = append(out, "The router keeps one pod in spite of minReplicas: 0, because an HPA cannot do without. Set the annotation "+
			v1beta1.AnnotationAutoscalerClass+": keda, make the graph anew in Knative mode, or set minReplicas to 1.")
	}
	if p.seen.Config.Ingress.EnableGatewayAPI {
		out = append(out, ingress.Ignored(outline(p.graph), p.seen.Config)...)
	}
	return out
}

// sayModeKept tells that an annotation has no effect.
func (p *planner) sayModeKept(cs *kube.Conditions) {
	recorded, _ := config.TranslateMode(p.graph.Status.DeploymentMode)
	asked, ok := config.TranslateMode(p.graph.Annotations[v1beta1.AnnotationDeploymentMode])
	if ok && recorded != "" && asked != recorded {
		cs.True(modeKept, "ModeIsFixed", fmt.Sprintf("The annotation %s asks for %s, but the graph was made in %s and keeps that mode. Delete the graph and create it anew to change it.",
			v1beta1.AnnotationDeploymentMode, asked, recorded))
	}
}

// render puts the conditions in the order of their names.
func render(cs kube.Conditions) []v1beta1.Condition {
	slices.SortFunc(cs, func(a, b kube.Condition) int { return strings.Compare(a.Type, b.Type) })
	return kube.Render(cs, func(c kube.Condition) v1beta1.Condition {
		out := v1beta1.Condition{Type: c.Type, Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, Severity: c.Severity}
		switch {
		case c.Type == stoppedCondition || c.Type == modeKept || c.Type == updatesHeld || c.Type == settingsIgnored:
			out.Severity = v1beta1.SeverityInfo
		case c.Status == metav1.ConditionTrue:
			out.Reason, out.Message = "", ""
		}
		return out
	})
}

// stoppedStatus tells that nothing runs because the user wants it so.
func (p *planner) stoppedStatus() *v1alpha1.InferenceGraphStatus {
	s := p.newStatus()
	if s.DeploymentMode == config.ModeModelMesh {
		s.DeploymentMode = p.graph.Status.DeploymentMode
	}
	cs := kube.Conditions{}
	cs.False(v1beta1.ConditionReady, reasonHalted, "The graph is stopped. Remove the annotation "+v1beta1.AnnotationStop+" to start it.")
	cs.True(stoppedCondition, reasonHalted, "")
	p.sayModeKept(&cs)
	s.Conditions = render(cs)
	return s
}

// standing judges the router on its Deployment: True when its pods answer and
// are those that the spec asks for, otherwise the first cause why they are not.
func (p *planner) standing() kube.Condition {
	d := p.seen.Deployment
	waiting := starting("Waiting for the router's pods (Deployment " + p.graph.Name + ") to become ready.")
	switch {
	case d == nil || p.outdated(d):
		return waiting
	case !cause.Observed(d):
		// Most often the autoscaler has changed the number of pods; that alone
		// is no reason to call a graph unready that was ready.
		if p.wasReady() {
			return kube.Condition{Status: metav1.ConditionTrue}
		}
		return waiting
	case kube.RolledOut(d):
		return kube.Condition{Status: metav1.ConditionTrue}
	}
	finding, found := cause.Of(d, p.podsWith(v1beta1.LabelApp, "isvc."+p.graph.Name))
	if !found || finding.Reason == cause.Waiting {
		return waiting
	}
	return conditionOf(finding)
}

func starting(message string) kube.Condition {
	return kube.Condition{Status: metav1.ConditionUnknown, Reason: reasonStarting, Message: message}
}

func conditionOf(f cause.Finding) kube.Condition {
	status := metav1.ConditionUnknown
	if f.Blocking {
		status = metav1.ConditionFalse
	}
	return kube.Condition{Status: status, Reason: f.Reason, Message: f.Message}
}

// wasReady tells whether the graph, as it is now, was ready when last looked at.
func (p *planner) wasReady() bool {
	for _, c := range p.graph.Status.Conditions {
		if c.Type == v1beta1.ConditionReady {
			return c.Status == corev1.ConditionTrue && p.graph.Status.ObservedGeneration == p.graph.Generation
		}
	}
	return false
}

// serverless judges the router on Knative, with the first cause in its pods
// where Knative says that something is wrong.
func (p *planner) serverless(said kube.Conditions, now v1beta1.ComponentStatusSpec) kube.Condition {
	ready, ok := said.Get(knative.ConditionReady)
	if !ok || p.outdated(p.seen.Knative) {
		return starting("Waiting for Knative to report on Service " + p.graph.Name + ".")
	}
	if ready.Status != metav1.ConditionTrue && now.LatestCreatedRevision != "" {
		for _, pod := range p.podsWith(labelRevision, now.LatestCreatedRevision) {
			if f, found := cause.Pod(&pod); found && f.Blocking {
				return conditionOf(f)
			}
		}
	}
	ready.Severity = ""
	if ready.Status != metav1.ConditionTrue && ready.Reason == "" {
		ready.Reason = "RouterNotReady"
	}
	if ready.Status != metav1.ConditionTrue && ready.Message == "" {
		ready.Message = "Knative has not said why Service " + p.graph.Name + " is not ready; look at its conditions."
	}
	return ready
}

// podsWith are the graph's pods with a label, in the order of their names.
func (p *planner) podsWith(key, value string) []corev1.Pod {
	var out []corev1.Pod
	for i := range p.seen.Pods {
		if p.seen.Pods[i].Labels[key] == value {
			out = append(out, p.seen.Pods[i])
		}
	}
	slices.SortFunc(out, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}
