// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/kube/cause"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/knative"
)

// Conditions that Knative's own lead to.
const (
	routesReady           = "RoutesReady"
	latestDeploymentReady = "LatestDeploymentReady"
	labelRevision         = "serving.knative.dev/revision"
)

// knativeConditions are the names under which a service repeats what Knative
// says of its components.
var knativeConditions = map[v1beta1.ComponentType][2]string{
	v1beta1.PredictorComponent:   {"PredictorRouteReady", "PredictorConfigurationReady"},
	v1beta1.TransformerComponent: {"TransformerRouteReady", "TransformerConfigurationReady"},
	v1beta1.ExplainerComponent:   {"ExplainerRoutesReady", "ExplainerConfigurationReady"},
}

// serverless is what became of the components on Knative.
type serverless struct {
	components map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec
	conditions map[v1beta1.ComponentType]kube.Conditions
}

// knative runs a service on Knative Services.
func (p *planner) knative() engine.Plan {
	if !p.seen.has(knativeService) {
		return p.fail(&failure{of: v1beta1.PredictorComponent, problem: engine.WaitFor("ServerlessModeRejected",
			"The service is to run in Knative mode, but the cluster does not serve %s. Install Knative Serving, or make the service anew with annotation %s: Standard.",
			knativeService.GroupVersion(), v1beta1.AnnotationDeploymentMode)})
	}
	if f := p.build(); f != nil {
		return p.fail(f)
	}
	now := p.addServerless(p.components())
	front := p.knativeFront(now)
	objects, err := ingress.KnativeObjects(front, p.cfg)
	if err != nil {
		return p.fail(&failure{problem: engine.MustChange("InvalidHost", "%s", err.Error())})
	}
	for _, o := range objects {
		p.children = append(p.children, engine.Child{Object: o})
	}
	urls, err := ingress.KnativeURLs(front, p.cfg)
	if err != nil {
		return p.fail(&failure{problem: engine.MustChange("InvalidHost", "%s", err.Error())})
	}
	status := p.knativeStatus(now, urls, ingress.KnativeIgnored(front, p.cfg))
	return engine.Plan{Children: p.children, Status: status, Problem: p.problem, Events: append(p.events, p.failures(status)...)}
}

// addServerless adds the Knative Services of components and reads what became
// of those that exist.
func (p *planner) addServerless(components []*component) serverless {
	now := p.liveServerless(components)
	for _, c := range components {
		annotations, note := knative.InitialScale(c.Annotations, p.seen.KnativeAutoscaler)
		if note != "" && p.problem == nil {
			p.events = append(p.events, engine.Event{Warning: true, Reason: "InitialScaleIgnored", Message: note})
		}
		p.children = append(p.children, engine.Child{Object: knative.Service(knative.Part{
			Component: c.Component, Name: c.Name, Namespace: c.Namespace,
			Labels: c.Labels, Annotations: annotations, Pod: c.Pod, Scale: c.Scale,
		}, now.components[c.Component], p.cfg)})
	}
	return now
}

func (p *planner) knativeFront(now serverless) ingress.KnativeService {
	part := func(c *component) ingress.KnativePart {
		return ingress.KnativePart{Name: c.Name, URL: ptr.Deref(now.components[c.Component].URL, "")}
	}
	k := ingress.KnativeService{
		Name: p.isvc.Name, Namespace: p.isvc.Namespace, Labels: p.isvc.Labels, Annotations: p.isvc.Annotations,
		Domains: slices.Sorted(maps.Keys(p.seen.KnativeDomains)),
		NoIstio: !p.seen.has(virtualService),
	}
	if p.predictor != nil {
		k.Predictor = part(p.predictor)
	}
	if p.transformer != nil {
		t := part(p.transformer)
		// Until it has a URL for the first time, requests go on to the predictor.
		k.Transformer, k.ThroughTransformer = &t, t.URL != "" || p.isvc.Status.URL == nil
	}
	if p.explainer != nil {
		e := part(p.explainer)
		k.Explainer = &e
	}
	return k
}

// knativeStatus tells how a service on Knative is.
func (p *planner) knativeStatus(now serverless, urls ingress.URLSet, ignored []string) *v1beta1.InferenceServiceStatus {
	s := p.newStatus()
	p.recordRuntime(s)
	cs := kube.Conditions{}
	p.judgeServerless(&cs, s, now, p.components())
	p.judgeKnativeFront(&cs, urls)
	p.judgeImageVolumes(&cs)
	sayIgnored(&cs, ignored)
	s.ModelStatus = p.knativeModel(now, cs.IsTrue(predictorReady))
	if urls.URL != "" && (p.isvc.Status.URL != nil || cs.IsTrue(ingressReady)) {
		s.URL, s.Address = &urls.URL, &v1beta1.Addressable{URL: &urls.Address}
	}
	p.conclude(s, cs)
	return s
}

// judgeServerless repeats Knative's conditions, with the first cause in the
// pods where Knative says that something is wrong.
func (p *planner) judgeServerless(cs *kube.Conditions, s *v1beta1.InferenceServiceStatus, now serverless, components []*component) {
	routes := kube.Condition{Type: routesReady, Status: metav1.ConditionTrue}
	latest := kube.Condition{Type: latestDeploymentReady, Status: metav1.ConditionTrue}
	for _, c := range components {
		said := now.conditions[c.Component]
		status := now.components[c.Component]
		cs.Set(p.serverlessStanding(c, said, status))
		names := knativeConditions[c.Component]
		for i, source := range []string{knative.ConditionRoutesReady, knative.ConditionConfigurationsReady} {
			k, ok := said.Get(source)
			if !ok {
				k = kube.Condition{Status: metav1.ConditionUnknown, Reason: reasonStarting, Message: "Knative has not reported yet."}
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
		s.Components[c.Component] = status
	}
	cs.Set(routes)
	cs.Set(latest)
}

func (p *planner) serverlessStanding(c *component, said kube.Conditions, status v1beta1.ComponentStatusSpec) kube.Condition {
	typ := readyConditions[c.Component]
	ready, ok := said.Get(knative.ConditionReady)
	if !ok {
		return kube.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: reasonStarting, Message: "Waiting for Knative to report on Service " + c.Name + "."}
	}
	ready.Type, ready.Severity = typ, ""
	if ready.Status == metav1.ConditionTrue {
		return ready
	}
	for _, pod := range p.podsOfRevision(status.LatestCreatedRevision) {
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

func (p *planner) judgeKnativeFront(cs *kube.Conditions, urls ingress.URLSet) {
	if c := p.notReady(*cs); c != nil {
		notYet(cs, c)
		return
	}
	if urls.URL == "" {
		cs.Unknown(ingressReady, "NoURL", "Knative has not given the service a URL yet.")
		return
	}
	cs.True(ingressReady, "", "")
}

// knativeModel tells how far the model is. Knative may run none of its pods
// and still be ready: it starts one with the first request.
func (p *planner) knativeModel(now serverless, ready bool) *v1beta1.ModelStatus {
	status := now.components[v1beta1.PredictorComponent]
	settled := status.LatestCreatedRevision != "" && status.LatestCreatedRevision == status.LatestReadyRevision
	pods := p.podsOfRevision(status.LatestCreatedRevision)
	return p.modelStatusOf(p.isvc.Status.ModelStatus, pods, ready && settled, func() (cause.Finding, bool) {
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
