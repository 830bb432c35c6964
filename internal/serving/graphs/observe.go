// SPDX-License-Identifier: Apache-2.0

package graphs

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/trainedmodels"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// Seen is everything that the decision about a graph depends on.
type Seen struct {
	Config *config.Config
	Mode   string
	// ConfigProblem is what is not known of the configuration, nil if everything is.
	ConfigProblem *config.Problem

	// Services that the graph names, by name; one that does not exist is nil.
	Services map[string]*v1beta1.InferenceService
	// Runtimes of those services whose protocol they know, by name of the
	// service; one that does not exist is nil.
	Runtimes map[string]*v1alpha1.ServingRuntimeSpec

	// HasKnative and HasKEDA tell whether the cluster serves these APIs.
	HasKnative, HasKEDA bool
	// KnativeAutoscaler is Knative's own configuration, nil while it has none.
	KnativeAutoscaler map[string]string

	// What became of earlier plans.
	Deployment *appsv1.Deployment
	Service    *corev1.Service
	HasHPA     bool
	Knative    *unstructured.Unstructured
	Pods       []corev1.Pod
	Front      front
	Protection protection
}

// Where Knative keeps its configuration.
const (
	knativeNamespace  = "knative-serving"
	knativeAutoscaler = "config-autoscaler"
)

// madeOf are the keys of the configuration that a router is made of.
var madeOf = []string{
	config.KeyRouter, config.KeyInferenceService, config.KeyOpenTelemetryCollector, config.KeyAutoscaler,
	config.KeyIngress, config.KeyDeploy, config.KeyService,
}

// observer reads for one graph.
type observer struct {
	engine.Reader
	graph *v1alpha1.InferenceGraph
	seen  Seen
}

// Observe implements engine.Kind.
func (g graphs) Observe(ctx context.Context, r engine.Reader, graph *v1alpha1.InferenceGraph) (Seen, error) {
	o := &observer{Reader: r, graph: graph}
	cfg, home, err := g.platform.Read(ctx, r)
	if err != nil {
		return Seen{}, err
	}
	o.seen.Config, o.seen.Mode, o.seen.ConfigProblem = cfg, modeOf(graph, cfg), cfg.FirstUnusable(madeOf...)
	o.seen.Protection.Namespace = home
	if stopped(graph) {
		return o.seen, nil // nothing that is left depends on anything
	}
	for _, read := range []func(context.Context) error{o.readServices, o.readLive, o.readFront, o.readKnative, o.readPods, o.readProtection} {
		if err := read(ctx); err != nil {
			return Seen{}, err
		}
	}
	return o.seen, nil
}

// readServices reads exactly what the graph names.
func (o *observer) readServices(ctx context.Context) error {
	o.seen.Services = map[string]*v1beta1.InferenceService{}
	o.seen.Runtimes = map[string]*v1alpha1.ServingRuntimeSpec{}
	for _, node := range o.graph.Spec.Nodes {
		for _, step := range node.Steps {
			if err := o.readService(ctx, step.ServiceName); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *observer) readService(ctx context.Context, name string) error {
	if _, done := o.seen.Services[name]; done || name == "" {
		return nil
	}
	isvc := &v1beta1.InferenceService{}
	err := o.Get(ctx, client.ObjectKey{Namespace: o.graph.Namespace, Name: name}, isvc)
	if err != nil {
		o.seen.Services[name] = nil
		return client.IgnoreNotFound(err)
	}
	o.seen.Services[name] = isvc
	if rt := trainedmodels.RuntimeAsked(&isvc.Spec.Predictor); rt != "" {
		o.seen.Runtimes[name], err = trainedmodels.ReadRuntime(ctx, o.Reader, isvc.Namespace, rt)
	}
	return err
}

func (o *observer) readLive(ctx context.Context) error {
	if o.seen.Mode != config.ModeStandard {
		return nil
	}
	o.seen.HasKEDA = o.HasAPI(scaledObject.GroupKind())
	d, service, hpa := &appsv1.Deployment{}, &corev1.Service{}, &metav1.PartialObjectMetadata{}
	hpa.SetGroupVersionKind(workload.HPA)
	for _, child := range []struct {
		client.Object
		found func()
	}{
		{d, func() { o.seen.Deployment = d }},
		{service, func() { o.seen.Service = service }},
		{hpa, func() { o.seen.HasHPA = true }},
	} {
		child.SetNamespace(o.graph.Namespace)
		child.SetName(o.graph.Name)
		if err := o.Child(ctx, child.Object); err == nil {
			child.found()
		} else if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func (o *observer) readKnative(ctx context.Context) error {
	if o.seen.Mode != config.ModeKnative {
		return nil
	}
	if o.seen.HasKnative = o.HasAPI(knativeService.GroupKind()); !o.seen.HasKnative {
		return nil
	}
	u := foreign(knativeService)
	u.SetNamespace(o.graph.Namespace)
	u.SetName(o.graph.Name)
	err := o.Child(ctx, u)
	if err == nil {
		o.seen.Knative = u
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	cm, err := config.Content(ctx, o.Reader, knativeNamespace, knativeAutoscaler)
	if cm != nil {
		o.seen.KnativeAutoscaler = cm.Data
	}
	return err
}

func (o *observer) readPods(ctx context.Context) error {
	graph := o.graph.Name
	mine := func(obj client.Object) bool { return obj.GetLabels()[v1beta1.LabelInferenceGraph] == graph }
	list := &corev1.PodList{}
	if err := o.List(ctx, list, client.InNamespace(o.graph.Namespace), engine.MatchingFunc(mine)); err != nil {
		return err
	}
	for i := range list.Items {
		if mine(&list.Items[i]) {
			o.seen.Pods = append(o.seen.Pods, list.Items[i])
		}
	}
	return nil
}

// modeOf decides how a graph is run. A mode that was recorded once stays, with
// the address that clients have.
func modeOf(graph *v1alpha1.InferenceGraph, cfg *config.Config) string {
	return cfg.Mode(graph.Status.DeploymentMode, graph.Annotations[v1beta1.AnnotationDeploymentMode])
}

// stopped tells whether the user wants nothing to run.
func stopped(obj client.Object) bool {
	return strings.EqualFold(obj.GetAnnotations()[v1beta1.AnnotationStop], "true")
}
