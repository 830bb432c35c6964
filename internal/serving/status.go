// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/kube/cause"
	"github.com/modelplane/modelplane/internal/serving/ingress"
)

// Conditions of a service.
const (
	predictorReady   = "PredictorReady"
	transformerReady = "TransformerReady"
	explainerReady   = "ExplainerReady"
	ingressReady     = "IngressReady"
	canaryReady      = "CanaryPredictorReady"
	stoppedCondition = "Stopped"
	// settingsIgnored is there only when something that was asked for is not done.
	settingsIgnored = "SettingsIgnored"
)

// Reasons that several conditions share.
const (
	reasonStopped  = "Stopped"
	reasonRunning  = "Running"
	reasonStarting = "Starting"
)

// telling are the conditions that say something also when they are True.
var telling = []string{stoppedCondition, settingsIgnored, updatesHeld}

// readyConditions are those of the components, by component.
var readyConditions = map[v1beta1.ComponentType]string{
	v1beta1.PredictorComponent:   predictorReady,
	v1beta1.TransformerComponent: transformerReady,
	v1beta1.ExplainerComponent:   explainerReady,
}

// notPartOfReady carry a severity, as existing tools expect. Those of
// transformer and explainer count nevertheless.
func severityOf(condition string) string {
	switch condition {
	case v1beta1.ConditionReady, predictorReady, ingressReady:
		return v1beta1.SeverityError
	}
	return v1beta1.SeverityInfo
}

// newStatus has what every status of a service says.
func (p *planner) newStatus() *v1beta1.InferenceServiceStatus {
	s := &v1beta1.InferenceServiceStatus{DeploymentMode: p.recordedMode()}
	s.ObservedGeneration = p.isvc.Generation
	s.Annotations = p.statusAnnotations()
	return s
}

// recordedMode is the mode that the service keeps from now on. A guess is not
// kept.
func (p *planner) recordedMode() string {
	if p.seen.Doubt != nil {
		return p.isvc.Status.DeploymentMode
	}
	return p.seen.Mode
}

// standardStatus tells how a service on Deployments is.
func (p *planner) standardStatus(front *frontDoor) *v1beta1.InferenceServiceStatus {
	s := p.newStatus()
	p.recordRuntime(s)
	cs := kube.Conditions{}
	for _, c := range p.components() {
		cs.Set(p.standing(c))
	}
	p.judgeFront(&cs, front)
	p.judgeCanaries(&cs, s)
	p.judgeImageVolumes(&cs)
	sayIgnored(&cs, front.ignored)
	s.ModelStatus = p.modelStatus(p.predictor)
	p.addresses(s, cs, front.urls)
	p.conclude(s, cs)
	return s
}

// recordRuntime says which runtime serves the model; exactly one name is set.
func (p *planner) recordRuntime(s *v1beta1.InferenceServiceStatus) {
	switch rt := p.predictor.runtime; {
	case rt == nil:
	case rt.Cluster:
		s.ClusterServingRuntimeName = rt.Name
	default:
		s.ServingRuntimeName = rt.Name
	}
}

// conclude sums up, and renders the conditions in the order of their names.
func (p *planner) conclude(s *v1beta1.InferenceServiceStatus, cs kube.Conditions) {
	if _, said := cs.Get(stoppedCondition); !said {
		cs.False(stoppedCondition, reasonRunning, "The service is not stopped.")
	}
	parts := []string{predictorReady}
	for _, part := range []string{transformerReady, explainerReady} {
		if _, ok := cs.Get(part); ok {
			parts = append(parts, part)
		}
	}
	cs.Summarise(v1beta1.ConditionReady, "", append(parts, ingressReady)...)
	slices.SortFunc(cs, func(a, b kube.Condition) int { return strings.Compare(a.Type, b.Type) })
	s.Conditions = kube.Render(cs, func(c kube.Condition) v1beta1.Condition {
		out := v1beta1.Condition{Type: c.Type, Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			Severity: severityOf(c.Type)}
		if out.Status == corev1.ConditionTrue && !slices.Contains(telling, c.Type) {
			out.Reason, out.Message = "", ""
		}
		return out
	})
}

// sayIgnored tells what has no effect. It is no reason to be unready.
func sayIgnored(cs *kube.Conditions, ignored []string) {
	if len(ignored) > 0 {
		cs.True(settingsIgnored, "NoEffect", strings.Join(ignored, " "))
	}
}

// standing is the condition of a component that runs on Deployments: True when
// its pods answer, also while they give way to newer ones, unless waiting for
// these is in vain; otherwise the first cause why they do not.
func (p *planner) standing(c *component) kube.Condition {
	typ := readyConditions[c.Component]
	worst := p.rollout(typ, c.Name)
	if w := c.Part.Worker; w != nil && worst.Status == metav1.ConditionTrue {
		if worst = p.rollout(typ, w.Name); worst.Status != metav1.ConditionTrue {
			worst.Message = "worker-container: " + worst.Message
		}
	}
	return worst
}

// rollout judges one Deployment. While its own status lags behind, what was
// said before stands, unless the spec has changed since.
func (p *planner) rollout(typ, name string) kube.Condition {
	d := p.seen.Deployments[name]
	waiting := kube.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: reasonStarting,
		Message: "Waiting for the pods of Deployment " + name + " to become ready."}
	if d == nil {
		return waiting
	}
	current := d.Status.ObservedGeneration >= d.Generation
	if !current && p.isvc.Status.ObservedGeneration == p.isvc.Generation {
		if before, ok := p.before(typ); !ok {
			return waiting
		} else if before.Reason != reasonInvalidConfig { // which is over
			return before
		}
	}
	if current && kube.RolledOut(d) {
		return kube.Condition{Type: typ, Status: metav1.ConditionTrue}
	}
	finding, found := cause.Of(d, p.podsOf(name))
	switch {
	case found && finding.Blocking:
		return kube.Condition{Type: typ, Status: metav1.ConditionFalse, Reason: finding.Reason, Message: finding.Message}
	case kube.Answers(d):
		return kube.Condition{Type: typ, Status: metav1.ConditionTrue}
	case found && finding.Reason != cause.Waiting:
		return kube.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: finding.Reason, Message: finding.Message}
	}
	return waiting
}

// before is what the object says now.
func (p *planner) before(typ string) (kube.Condition, bool) {
	for _, c := range p.isvc.Status.Conditions {
		if c.Type == typ {
			return kube.Condition{Type: typ, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message}, true
		}
	}
	return kube.Condition{}, false
}

// podsOf are the pods of one Deployment.
func (p *planner) podsOf(name string) []corev1.Pod {
	var out []corev1.Pod
	for i := range p.seen.Pods {
		if p.seen.Pods[i].Labels[v1beta1.LabelApp] == "isvc."+name {
			out = append(out, p.seen.Pods[i])
		}
	}
	return out
}

// judgeFront says whether requests can reach the service. Routes are judged
// when there is something for them to lead to.
func (p *planner) judgeFront(cs *kube.Conditions, front *frontDoor) {
	if front.problem != nil {
		cs.False(ingressReady, front.problem.Reason, front.problem.Message)
		return
	}
	if c := p.notReady(*cs); c != nil {
		notYet(cs, c)
		return
	}
	ok, reason, message := ingress.Accepted(front.routes(), p.seen.Routes)
	switch {
	case ok:
		cs.True(ingressReady, "", "")
	case reason == ingress.ReasonNotWritten || reason == ingress.ReasonNotAnswered:
		cs.Unknown(ingressReady, reason, message)
	default:
		cs.False(ingressReady, reason, message)
	}
}

// notReady is the first component that is not ready, nil if all are.
func (p *planner) notReady(cs kube.Conditions) *component {
	for _, c := range p.components() {
		if !cs.IsTrue(readyConditions[c.Component]) {
			return c
		}
	}
	return nil
}

func notYet(cs *kube.Conditions, c *component) {
	typ := readyConditions[c.Component]
	cs.Unknown(ingressReady, strings.TrimSuffix(typ, "Ready")+"NotReady", "Requests are let in when the "+string(c.Component)+" is ready.")
}

// judgeCanaries tells how the predictors on trial are.
func (p *planner) judgeCanaries(cs *kube.Conditions, s *v1beta1.InferenceServiceStatus) {
	if len(p.canaries) == 0 {
		return
	}
	worst := kube.Condition{Type: canaryReady, Status: metav1.ConditionTrue}
	for _, c := range p.canaries {
		if condition := p.rollout(canaryReady, c.Name); worst.Status == metav1.ConditionTrue {
			worst = condition
		}
		s.CanaryStatuses = append(s.CanaryStatuses, v1beta1.CanaryStatus{
			Name: c.canary, Ready: p.seen.available(c.Name), TrafficPercent: c.percent, ModelStatus: p.modelStatus(c),
		})
	}
	if worst.Status == metav1.ConditionTrue && !ingress.CanSplit(p.cfg) {
		worst = kube.Condition{Type: canaryReady, Status: metav1.ConditionFalse, Reason: "TrafficCannotBeSplit",
			Message: "An Ingress cannot share requests between predictors, so the canaries get none. Set ingress.enableGatewayApi in the platform's configuration."}
	}
	cs.Set(worst)
}

// addresses appear when the service is ready for the first time and stay until
// it is stopped.
func (p *planner) addresses(s *v1beta1.InferenceServiceStatus, cs kube.Conditions, urls ingress.URLSet) {
	before := p.isvc.Status
	for _, c := range p.components() {
		had := before.Components[c.Component].URL != nil
		if url := urls.Components[c.Component]; url != "" && (had || cs.IsTrue(readyConditions[c.Component])) {
			if s.Components == nil {
				s.Components = map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec{}
			}
			s.Components[c.Component] = v1beta1.ComponentStatusSpec{URL: &url}
		}
	}
	if urls.URL != "" && (before.URL != nil || cs.IsTrue(ingressReady)) {
		s.URL = &urls.URL
		s.Address = &v1beta1.Addressable{URL: &urls.Address}
	} else if urls.Address != "" && before.Address != nil { // lost its host, but not its place in the cluster
		s.Address = &v1beta1.Addressable{URL: &urls.Address}
	}
}

// stoppedStatus tells that nothing runs because the user wants it so.
func (p *planner) stoppedStatus() *v1beta1.InferenceServiceStatus {
	const message = "The service is stopped. Remove the annotation " + v1beta1.AnnotationStop + " to start it."
	s := p.newStatus()
	cs := kube.Conditions{}
	cs.False(predictorReady, reasonStopped, message)
	if p.isvc.Spec.Transformer != nil {
		cs.False(transformerReady, reasonStopped, message)
	}
	if p.isvc.Spec.Explainer != nil {
		cs.False(explainerReady, reasonStopped, message)
	}
	if len(p.isvc.Spec.Canary) > 0 {
		cs.False(canaryReady, reasonStopped, message)
	}
	cs.False(ingressReady, reasonStopped, message)
	cs.True(stoppedCondition, reasonStopped, "The service is stopped by annotation "+v1beta1.AnnotationStop+".")
	p.conclude(s, cs)
	return s
}

// failedStatus says why a component cannot be made. What the service had
// before is still there and stays in the status.
func (p *planner) failedStatus(f *failure) *v1beta1.InferenceServiceStatus {
	s := p.isvc.Status.DeepCopy()
	s.ObservedGeneration, s.DeploymentMode = p.isvc.Generation, p.recordedMode()
	cs := kube.Conditions{}
	for _, typ := range []string{predictorReady, transformerReady, explainerReady, ingressReady, canaryReady} {
		if c, ok := p.before(typ); ok && p.wants(typ) {
			cs.Set(c)
		}
	}
	for _, typ := range []string{predictorReady, ingressReady} {
		if _, ok := cs.Get(typ); !ok {
			cs.Unknown(typ, f.problem.Reason, "Nothing is made before this is solved.")
		}
	}
	typ := readyConditions[f.of]
	if f.of == "" {
		typ = ingressReady
	}
	cs.False(typ, f.problem.Reason, f.problem.Message)
	if f.of == v1beta1.PredictorComponent && f.reason != "" {
		s.ModelStatus = invalidModel(s.ModelStatus, f)
	}
	p.conclude(s, cs)
	return s
}

// wants tells whether the spec still has the part that a condition speaks of.
func (p *planner) wants(typ string) bool {
	switch typ {
	case transformerReady:
		return p.isvc.Spec.Transformer != nil
	case explainerReady:
		return p.isvc.Spec.Explainer != nil
	case canaryReady:
		return len(p.isvc.Spec.Canary) > 0
	}
	return true
}
