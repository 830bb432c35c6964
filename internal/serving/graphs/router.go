// SPDX-License-Identifier: Apache-2.0

package graphs

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/serving/knative"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// What the router knows.
const (
	argGraph     = "--graph-json"
	envPropagate = "PROPAGATE_HEADERS"
	pathReady    = "/readyz"
	routerPort   = 8080
	kindGraph    = "InferenceGraph"

	// longestArgument is what Linux takes.
	longestArgument = 128<<10 - 1
)

// annotationGeneration is on the router's own object (not on its pods) and says
// which generation of the graph it runs.
const annotationGeneration = "modelplane.dev/graph-generation"

// pod runs the router. It needs no token of the API server, and nothing else
// that it could lose.
func (p *planner) pod(spec *v1alpha1.InferenceGraphSpec) (corev1.PodSpec, error) {
	graph, err := json.Marshal(spec)
	if err != nil {
		return corev1.PodSpec{}, err
	}
	if len(graph) > longestArgument {
		return corev1.PodSpec{}, fmt.Errorf("it takes %d bytes, and a program takes at most %d as an argument", len(graph), longestArgument)
	}
	router := &p.seen.Config.Router
	c := corev1.Container{
		ImagePullPolicy: corev1.PullPolicy(router.ImagePullPolicy),
		Args:            []string{argGraph, string(graph)},
		Resources:       router.Requirements(),
		ReadinessProbe:  readyProbe(),
		SecurityContext: restricted(),
	}
	if own := spec.Resources; len(own.Limits) > 0 || len(own.Requests) > 0 || len(own.Claims) > 0 {
		c.Resources = *own.DeepCopy()
	}
	if headers := router.Headers.Propagate; len(headers) > 0 {
		c.Env = []corev1.EnvVar{{Name: envPropagate, Value: strings.Join(headers, ",")}}
	}
	pod := corev1.PodSpec{
		Containers:                   []corev1.Container{c},
		Affinity:                     spec.Affinity.DeepCopy(),
		AutomountServiceAccountToken: ptr.To(false),
		Tolerations:                  spec.Tolerations,
		NodeSelector:                 spec.NodeSelector,
		NodeName:                     spec.NodeName,
		ServiceAccountName:           spec.ServiceAccountName,
	}
	for _, name := range router.ImagePullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	p.protect(&pod)
	p.start(&pod, spec)
	return pod, nil
}

func readyProbe() *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: pathReady, Port: intstr.FromInt32(routerPort), Scheme: corev1.URISchemeHTTP,
		}},
		InitialDelaySeconds: 5,
		TimeoutSeconds:      2,
		PeriodSeconds:       5,
		SuccessThreshold:    1,
		FailureThreshold:    3,
	}
}

func restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		Privileged:               ptr.To(false),
		RunAsNonRoot:             ptr.To(true),
		ReadOnlyRootFilesystem:   ptr.To(true),
		AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// scale is how the router is scaled and how long a request may take.
func (p *planner) scale() v1beta1.ComponentExtensionSpec {
	spec := &p.graph.Spec
	return v1beta1.ComponentExtensionSpec{
		MinReplicas: spec.MinReplicas, MaxReplicas: spec.MaxReplicas,
		ScaleTarget: spec.ScaleTarget, ScaleMetric: spec.ScaleMetric, TimeoutSeconds: spec.TimeoutSeconds,
	}
}

// labels are the user's, and those by which a graph's objects are found.
func (p *planner) labels() map[string]string {
	out := map[string]string{}
	maps.Copy(out, p.graph.Labels)
	out[v1beta1.LabelInferenceGraph] = p.graph.Name
	return out
}

// part is the router on a Deployment.
func (p *planner) part(pod corev1.PodSpec) workload.Part {
	pod.Containers[0].Name = p.graph.Name
	return workload.Part{
		Name:        p.graph.Name,
		Namespace:   p.graph.Namespace,
		Labels:      p.labels(),
		Annotations: p.seen.Config.FilterAnnotations(p.graph.Annotations),
		Pod:         pod,
		Scale:       p.scale(),
		Generation:  p.graph.Generation,
	}
}

// ksvc is the router on Knative, with a note if an annotation was left out.
// Knative names the only container itself.
func (p *planner) ksvc(pod corev1.PodSpec) (*unstructured.Unstructured, string) {
	annotations, note := knative.InitialScale(p.seen.Config.FilterAnnotations(p.graph.Annotations), p.seen.KnativeAutoscaler)
	part := knative.Part{
		Name: p.graph.Name, Namespace: p.graph.Namespace,
		Labels: p.labels(), Annotations: annotations, Pod: pod, Scale: p.scale(),
	}
	part.Labels[v1beta1.LabelKind] = kindGraph
	u := knative.Service(part, v1beta1.ComponentStatusSpec{}, p.seen.Config)
	if containers, found, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers"); found && err == nil {
		for i := range containers {
			delete(containers[i].(map[string]any), "name")
		}
		_ = unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers")
	}
	return u, note
}

// mark notes on the router's object what it was made of.
func (p *planner) mark(obj client.Object, targets []*target) {
	annotations := maps.Clone(obj.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationGeneration] = strconv.FormatInt(p.graph.Generation, 10)
	if urls := endpoints(targets); urls != "" {
		annotations[annotationEndpoints] = urls
	}
	if p.rest != "" {
		annotations[annotationRest] = p.rest
	}
	obj.SetAnnotations(annotations)
}

// outdated tells whether the router still runs an earlier spec.
func (p *planner) outdated(live client.Object) bool {
	return live.GetAnnotations()[annotationGeneration] != strconv.FormatInt(p.graph.Generation, 10)
}
