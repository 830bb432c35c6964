// SPDX-License-Identifier: Apache-2.0

package standard

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/resolve"
	"github.com/modelplane/modelplane/internal/serving/status"
)

// status tells how a service on Deployments is.
func (p *planner) status(front *frontDoor) *v1beta1.InferenceServiceStatus {
	s := p.judge.New()
	p.judge.RecordRuntime(s)
	cs := kube.Conditions{}
	for _, c := range p.parts.List() {
		cs.Set(p.judge.Standing(c))
	}
	p.judge.Latest(&cs, append(p.parts.List(), p.parts.Canaries...)...)
	p.judgeFront(&cs, front)
	p.judgeCanaries(&cs, s)
	p.judge.ImageVolumes(&cs)
	p.judge.AtZero(&cs)
	status.Ignored(&cs, slices.Concat(front.ignored, p.ignoredZero(), p.judge.IgnoredSecrets(), p.judge.IgnoredMode()))
	s.ModelStatus = p.judge.ModelStatus(p.parts.Predictor)
	p.addresses(s, cs, front.urls)
	p.judge.Conclude(s, cs)
	return s
}

// judgeFront says whether requests can reach the service. Routes are judged
// when there is something for them to lead to.
func (p *planner) judgeFront(cs *kube.Conditions, front *frontDoor) {
	if front.problem != nil {
		cs.False(status.IngressReady, front.problem.Reason, front.problem.Message)
		return
	}
	if c := p.judge.NotReady(*cs); c != nil {
		status.NotYet(cs, c)
		return
	}
	if slices.ContainsFunc(p.parts.List(), func(c *resolve.Component) bool { return c.Led }) && !p.seen.ActivatorAnswers() {
		cs.False(status.IngressReady, "ActivatorNotReady", p.noActivator())
		return
	}
	answer := ingress.Accepted(front.routes(), p.seen.Routes, p.seen.Door)
	switch {
	case answer == nil:
		cs.True(status.IngressReady, "", "")
	case answer.Refused:
		cs.False(status.IngressReady, answer.Reason, answer.Message)
	default:
		cs.Unknown(status.IngressReady, answer.Reason, answer.Message)
	}
}

// reasonCanaries is known to users; the message has the cause.
const reasonCanaries = "CanariesNotReady"

// judgeCanaries tells how the predictors on trial are.
func (p *planner) judgeCanaries(cs *kube.Conditions, s *v1beta1.InferenceServiceStatus) {
	if len(p.parts.Canaries) == 0 {
		return
	}
	worst := kube.Condition{Type: status.CanaryReady, Status: metav1.ConditionTrue, Reason: "AllCanariesReady"}
	for _, c := range p.parts.Canaries {
		condition := p.judge.Trial(c)
		if condition.Status != metav1.ConditionTrue && worst.Status != metav1.ConditionFalse &&
			(worst.Status == metav1.ConditionTrue || condition.Status == metav1.ConditionFalse) {
			worst = condition
			if worst.Reason != reasonCanaries { // or else it is what was said before
				worst.Reason, worst.Message = reasonCanaries, "Canary "+c.Canary+": "+condition.Message
			}
		}
		s.CanaryStatuses = append(s.CanaryStatuses, v1beta1.CanaryStatus{
			Name: c.Canary, Ready: p.seen.Available(c.Name), TrafficPercent: c.Percent, ModelStatus: p.judge.ModelStatus(c),
		})
	}
	if worst.Status == metav1.ConditionTrue && !ingress.CanSplit(p.cfg) {
		worst = kube.Condition{Type: status.CanaryReady, Status: metav1.ConditionFalse, Reason: "TrafficCannotBeSplit",
			Message: "An Ingress cannot share requests between predictors, so the canaries get none. Set ingress.enableGatewayApi in the platform's configuration."}
	}
	cs.Set(worst)
}

// addresses appear when the service is ready for the first time and stay until
// it is stopped.
func (p *planner) addresses(s *v1beta1.InferenceServiceStatus, cs kube.Conditions, urls ingress.URLSet) {
	before := p.isvc.Status
	for _, c := range p.parts.List() {
		had := before.Components[c.Component].URL != nil
		if url := urls.Components[c.Component]; url != "" && (had || cs.IsTrue(status.ReadyConditions[c.Component])) {
			if s.Components == nil {
				s.Components = map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec{}
			}
			s.Components[c.Component] = v1beta1.ComponentStatusSpec{URL: &url}
		}
	}
	if urls.URL != "" && (before.URL != nil || cs.IsTrue(status.IngressReady)) {
		s.URL = &urls.URL
		s.Address = &v1beta1.Addressable{URL: &urls.Address}
	} else if urls.Address != "" && before.Address != nil { // lost its host, but not its place in the cluster
		s.Address = &v1beta1.Addressable{URL: &urls.Address}
	}
}
