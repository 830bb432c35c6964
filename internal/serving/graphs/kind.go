// SPDX-License-Identifier: Apache-2.0

// Package graphs turns an InferenceGraph into the router that runs it: a
// Deployment with its Service, autoscaler and HTTPRoute, or a Knative Service.
//
// The router is told where to send requests once, when it starts. A graph
// therefore looks up the InferenceServices that it names and is woken when one
// of them changes; a service that is away for a moment makes the graph unready,
// but leaves the router alone. The package decides; reading and writing the
// cluster is the engine's, and how requests are routed is the router's.
package graphs

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/ingress"
)

// Optional APIs.
var (
	knativeService = schema.GroupVersionKind{Group: "serving.knative.dev", Version: "v1", Kind: "Service"}
	scaledObject   = schema.GroupVersionKind{Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"}
)

// graphs is the kind InferenceGraph.
type graphs struct{ platform *config.Platform }

var _ engine.Kind[*v1alpha1.InferenceGraph, Seen] = graphs{}

// Controller of InferenceGraphs.
func Controller(platform *config.Platform) engine.Controller {
	return engine.For[*v1alpha1.InferenceGraph, Seen](graphs{platform}, engine.Spec{
		Name:              "inferencegraph",
		KnativeConditions: true,
		OldManagers:       []string{oldManager},
		ReadyEvent:        "InferenceGraphReady",
		NotReadyEvent:     "InferenceGraphNotReady",
		Children: []engine.ChildKind{
			{Object: &appsv1.Deployment{}, Trim: kube.TrimDeployment},
			{Object: &corev1.Service{}, Trim: kube.TrimService},
			{Object: &autoscalingv2.HorizontalPodAutoscaler{}, MetadataOnly: true},
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &gatewayv1.HTTPRoute{}, Optional: true, Trim: ingress.TrimRoute},
			{Object: foreign(knativeService), Optional: true},
			{Object: foreign(scaledObject), Optional: true, MetadataOnly: true},
		},
		Inputs: []engine.Input{
			{Object: &v1beta1.InferenceService{}},
			{Object: &v1alpha1.ServingRuntime{}},
			{Object: &v1alpha1.ClusterServingRuntime{}},
			{Object: &corev1.Pod{}, Select: ofGraphs, Trim: kube.TrimPod},
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &corev1.Secret{}, MetadataOnly: true},
			{Object: &gatewayv1.Gateway{}, Resource: "gateways", Optional: true, Trim: ingress.TrimGateway},
		},
	})
}

// oldManager is the field manager of the controllers that existing routers come
// from.
const oldManager = "manager"

func foreign(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// ofGraphs selects the pods of graphs, among all pods of the cluster.
var ofGraphs = func() labels.Selector {
	exists, err := labels.NewRequirement(v1beta1.LabelInferenceGraph, selection.Exists, nil)
	if err != nil {
		panic(err) // a constant
	}
	return labels.NewSelector().Add(*exists)
}()
