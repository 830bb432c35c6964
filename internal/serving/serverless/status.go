// SPDX-License-Identifier: Apache-2.0

package serverless

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/kube/cause"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/knative"
	"github.com/modelplane/modelplane/internal/serving/resolve"
	"github.com/modelplane/modelplane/internal/serving/status"
)

// Conditions that Knative's own lead to.
const (
	routesReady   = "RoutesReady"
	labelRevision = "serving.knative.dev/revision"
)

// knativeConditions are the names under which a service repeats what Knative
// says of its components.
var knativeConditions = map[v1beta1.ComponentType][2]string{
	v1beta1.PredictorComponent:   {"PredictorRouteReady", "PredictorConfigurationReady"},
	v1beta1.TransformerComponent: {"TransformerRouteReady", "TransformerConfigurationReady"},
	v1beta1.ExplainerComponent:   {"ExplainerRoutesReady", "ExplainerConfigurationReady"},
}

// live is what became of the components on Knative.
type live struct {
	components map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec
	conditions map[v1beta1.ComponentType]kube.Conditions
}

// live reads what became of components on Knative.
func (p *planner) live() live {
	now := live{
		components: map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec{},
		conditions: map[v1beta1.ComponentType]kube.Conditions{},
	}
	for _, c := range p.parts.List() {
		now.components[c.Component], now.conditions[c.Component] =
			knative.Status(p.seen.Knative[c.Name], p.isvc.Status.Components[c.Component], c.Scale.CanaryTrafficPercent)
	}
	return now
}

// status tells how a service on Knative is.
func (p *planner) status(now live, urls ingress.URLSet, ignored []string) *v1beta1.InferenceServiceStatus {
	s := p.judge.New()
	p.judge.RecordRuntime(s)
	cs := kube.Conditions{}
	p.judgeServices(&cs, s, now)
	p.judgeFront(&cs, urls)
	p.judge.ImageVolumes(&cs)
	status.Ignored(&cs, slices.Concat(ignored, p.judge.IgnoredSecrets(), p.judge.IgnoredMode()))
	s.ModelStatus = p.modelStatus(now, cs.IsTrue(status.PredictorReady))
	if urls.URL != "" && (p.isvc.Status.URL != nil || cs.IsTrue(status.IngressReady)) {
		s.URL, s.Address = &urls.URL, &v1beta1.Addressable{URL: &urls.Address}
	}
	p.judge.Conclude(s, cs)
	return s
}

// judgeServices repeats Knative's conditions, with the first cause in the
// pods where Knative says that something is wrong.
func (p *planner) judgeServices(cs *kube.Conditions, s *v1beta1.InferenceServiceStatus, now live) {
	routes := kube.Condition{Type: routesReady, Status: metav1.ConditionTrue}
	latest := kube.Condition{Type: status.LatestReady, Status: metav1.ConditionTrue}
	for _, c := range p.parts.List() {
		said := now.conditions[c.Component]
		component := now.components[c.Component]
		cs.Set(p.standing(c, said, component))
		names := knativeConditions[c.Component]
		for i, source := range []string{knative.ConditionRoutesReady, knative.ConditionConfigurationsReady} {
			k, ok := said.Get(source)
			if !ok {
				k = kube.Condition{Status: metav1.ConditionUnknown, Reason: status.ReasonStarting, Message: "Knative has not reported yet."}
			}
			k.Type = names[i]
			cs.Set(k)
			sum := &routes
			if i == 1 {
				sum = &latest
			}
			if sum.Status == metav1.ConditionTrue && k.Status != metav1.ConditionTrue {
				sum.Status, sum.Reason, sum.Message = k.Status, names[i]+"NotReady", k.Message
			}
		}
		if s.Components == nil {
			s.Components = map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec{}
		}
		s.Components[c.Component] = component
	}
	cs.Set(routes)
	cs.Set(latest)
}

func (p *planner) standing(c *resolve.Component, said kube.Conditions, now v1beta1.ComponentStatusSpec) kube.Condition {
	typ := status.ReadyConditions[c.Component]
	ready, ok := said.Get(knative.ConditionReady)
	if !ok {
		return kube.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: status.ReasonStarting, Message: "Waiting for Knative to report on Service " + c.Name + "."}
	}
	ready.Type, ready.Severity = typ, ""
	if ready.Status == metav1.ConditionTrue {
		return ready
	}
	for _, pod := range p.podsOfRevision(now.LatestCreatedRevision) {
		if f, found := cause.Pod(&pod); found && f.Blocking {
			return kube.Condition{Type: typ, Status: metav1.ConditionFalse, Reason: f.Reason, Message: f.Message}
		}
	}
	return ready
}

func (p *planner) podsOfRevision(revision string) []corev1.Pod {
	var out []corev1.Pod
	for i := range p.seen.Pods {
		if revision != "" && p.seen.Pods[i].Labels[labelRevision] == revision {
			out = append(out, p.seen.Pods[i])
		}
	}
	slices.SortFunc(out, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (p *planner) judgeFront(cs *kube.Conditions, urls ingress.URLSet) {
	if c := p.judge.NotReady(*cs); c != nil {
		status.NotYet(cs, c)
		return
	}
	if urls.URL == "" {
		cs.Unknown(status.IngressReady, "NoURL", "Knative has not given the service a URL yet.")
		return
	}
	cs.True(status.IngressReady, "", "")
}

// modelStatus tells how far the model is. Knative may run none of its pods
// and still be ready: it starts one with the first request.
func (p *planner) modelStatus(now live, ready bool) *v1beta1.ModelStatus {
	predictor := now.components[v1beta1.PredictorComponent]
	settled := predictor.LatestCreatedRevision != "" && predictor.LatestCreatedRevision == predictor.LatestReadyRevision
	pods := p.podsOfRevision(predictor.LatestCreatedRevision)
	return p.judge.ModelStatusOf(p.isvc.Status.ModelStatus, pods, ready && settled, func() (cause.Finding, bool) {
		for i := range pods {
			if f, found := cause.Pod(&pods[i]); found && f.Blocking {
				return f, true
			}
		}
		for _, c := range now.conditions[v1beta1.PredictorComponent] {
			if c.Status == metav1.ConditionFalse {
				return cause.Finding{Reason: c.Reason, Message: c.Message, Blocking: true}, true
			}
		}
		return cause.Finding{}, false
	})
}
