// SPDX-License-Identifier: Apache-2.0

package graphs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/trainedmodels"
)

// Reasons why a service cannot be routed to.
const (
	reasonMissing     = "InferenceServiceMissing"
	reasonStopped     = "InferenceServiceStopped"
	reasonNotReady    = "InferenceServiceNotReady"
	reasonNoAddress   = "InferenceServiceHasNoAddress"
	reasonNoRuntime   = "RuntimeMissing"
	reasonNotRoutable = "ProtocolUnsupported"
)

// annotationEndpoints is on the router's own object (not on its pods) and holds
// the URLs that were found for services. It is what stands when a service loses
// its address: an unchanged URL changes nothing for the router.
const annotationEndpoints = "modelplane.dev/endpoints"

// target is a service that the graph names.
type target struct {
	name string
	// at is the first step that names it.
	at string
	// url where it answers predictions; empty if that was never known.
	url string
	// standing tells whether it is ready, and if not, what to do about it.
	standing kube.Condition
	// problem is set when somebody has to act for the service to be found.
	problem *engine.Problem
}

// targets are the services of the graph in the order of nodes and steps, each
// once.
func (p *planner) targets() []*target {
	var out []*target
	seen := map[string]bool{}
	last := endpointsOf(p.live())
	for _, node := range slices.Sorted(maps.Keys(p.graph.Spec.Nodes)) {
		for i, step := range p.graph.Spec.Nodes[node].Steps {
			if step.ServiceName == "" || seen[step.ServiceName] {
				continue
			}
			seen[step.ServiceName] = true
			t := &target{name: step.ServiceName, at: fmt.Sprintf("spec.nodes[%s].steps[%d]", node, i)}
			p.find(t)
			if t.url == "" {
				t.url = last[t.name]
			}
			out = append(out, t)
		}
	}
	return out
}

// live is the object that runs the router now, nil if there is none.
func (p *planner) live() client.Object {
	switch {
	case p.seen.Deployment != nil:
		return p.seen.Deployment
	case p.seen.Knative != nil:
		return p.seen.Knative
	}
	return nil
}

// endpointsOf are the URLs that were found for services before.
func endpointsOf(live client.Object) map[string]string {
	out := map[string]string{}
	if live == nil {
		return out
	}
	if err := json.Unmarshal([]byte(live.GetAnnotations()[annotationEndpoints]), &out); err != nil {
		return map[string]string{} // somebody else wrote it, and it will be written anew
	}
	return out
}

// find looks up where a service answers and whether it does.
func (p *planner) find(t *target) {
	isvc := p.seen.Services[t.name]
	if isvc == nil {
		t.act(engine.WaitFor(reasonMissing, "InferenceService %s, which %s names, does not exist. Create it, or correct the name.", t.name, t.at))
		return
	}
	path, problem := p.path(t, isvc)
	if problem != nil {
		t.act(problem)
		return
	}
	if a := isvc.Status.Address; a != nil && a.URL != nil && *a.URL != "" {
		t.url = strings.TrimSuffix(*a.URL, "/") + path
	}
	if stopped(isvc) {
		t.act(engine.WaitFor(reasonStopped, "InferenceService %s, which %s names, is stopped. Remove its annotation %s to start it.",
			t.name, t.at, v1beta1.AnnotationStop))
		return
	}
	t.standing = readiness(isvc, t.at)
	if t.standing.Status == metav1.ConditionTrue && t.url == "" {
		t.standing.Status, t.standing.Reason = metav1.ConditionUnknown, reasonNoAddress
		t.standing.Message = fmt.Sprintf("InferenceService %s, which %s names, is ready but has no address yet (status.address.url).", t.name, t.at)
	}
}

// act says that somebody has to do something about the service.
func (t *target) act(problem *engine.Problem) {
	t.problem = problem
	t.standing = kube.Condition{Status: metav1.ConditionFalse, Reason: problem.Reason, Message: problem.Message}
}

// path is where the service answers predictions, below its address.
func (p *planner) path(t *target, isvc *v1beta1.InferenceService) (string, *engine.Problem) {
	rt := p.seen.Runtimes[t.name]
	if name := trainedmodels.RuntimeAsked(&isvc.Spec.Predictor); name != "" && rt == nil && isvc.Spec.Transformer == nil {
		return "", engine.WaitFor(reasonNoRuntime, "The runtime %s of InferenceService %s, which %s names, does not exist, so the protocol is not known. "+
			"Create the runtime, or set protocolVersion in the predictor's model.", name, t.name, t.at)
	}
	path, err := trainedmodels.PredictPath(isvc, rt)
	if err != nil {
		return "", engine.MustChange(reasonNotRoutable, "InferenceService %s, which %s names, cannot be part of a graph: %s. "+
			"Let it speak one of these, or name a serviceUrl instead.", t.name, t.at, err.Error())
	}
	return path, nil
}

// readiness repeats what the service says of itself.
func readiness(isvc *v1beta1.InferenceService, at string) kube.Condition {
	why := "It has not said why yet; look at its conditions."
	status := metav1.ConditionUnknown
	for _, c := range isvc.Status.Conditions {
		if c.Type != v1beta1.ConditionReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return kube.Condition{Status: metav1.ConditionTrue}
		}
		status = metav1.ConditionStatus(c.Status)
		if c.Message != "" {
			why = strings.TrimSuffix(c.Message, ".") + "."
		}
	}
	return kube.Condition{Status: status, Reason: reasonNotReady,
		Message: fmt.Sprintf("InferenceService %s, which %s names, is not ready: %s", isvc.Name, at, why)}
}

// resolved is the graph as the router gets it: with a URL for every service.
func (p *planner) resolved(targets []*target) *v1alpha1.InferenceGraphSpec {
	urls := map[string]string{}
	for _, t := range targets {
		urls[t.name] = t.url
	}
	spec := p.graph.Spec.DeepCopy()
	for _, node := range spec.Nodes {
		for i := range node.Steps {
			if step := &node.Steps[i]; step.ServiceURL == "" {
				step.ServiceURL = urls[step.ServiceName]
			}
		}
	}
	// The router ends every request after a minute unless it is told otherwise,
	// however long the user allows.
	if limit := spec.TimeoutSeconds; limit != nil && (spec.RouterTimeouts == nil || spec.RouterTimeouts.ServerWrite == nil) {
		if spec.RouterTimeouts == nil {
			spec.RouterTimeouts = &v1alpha1.GraphRouterTimeouts{}
		}
		spec.RouterTimeouts.ServerWrite = limit
	}
	return spec
}

// endpoints is what is kept of the URLs; nothing if there are none.
func endpoints(targets []*target) string {
	urls := map[string]string{}
	for _, t := range targets {
		urls[t.name] = t.url
	}
	if len(urls) == 0 {
		return ""
	}
	text, err := json.Marshal(urls)
	if err != nil {
		return "" // strings always encode
	}
	return string(text)
}
