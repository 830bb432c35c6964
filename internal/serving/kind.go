// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/activation"
	"github.com/modelplane/modelplane/internal/serving/graphs"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/status"
	"github.com/modelplane/modelplane/internal/serving/trainedmodels"
)

// AddToScheme makes a scheme know every kind that the domain reads or writes.
func AddToScheme(scheme *runtime.Scheme) error {
	return errors.Join(admission.AddToScheme(scheme), gatewayv1.Install(scheme))
}

// Domain is the domain: what its controllers and webhooks share.
type Domain struct {
	Settings
	platform *config.Platform
	cluster  cluster
}

// New prepares the domain.
func New() *Domain { return &Domain{platform: config.NewPlatform()} }

// WithNamespace says in which namespace the platform's configuration lives.
func (r *Domain) WithNamespace(namespace string) *Domain {
	r.platform.Namespace = namespace
	return r
}

// WithKubernetes says who knows the version of Kubernetes.
func (r *Domain) WithKubernetes(cluster discovery.ServerVersionInterface) *Domain {
	r.cluster.ask = cluster
	return r
}

// Controllers of the domain.
func (r *Domain) Controllers() []engine.Controller {
	return []engine.Controller{r.services(), graphs.Controller(r.platform), trainedmodels.Controller()}
}

// services is the kind InferenceService.
type services struct{ *Domain }

func (r *Domain) services() engine.Controller {
	return engine.For[*v1beta1.InferenceService, observed.State](services{r}, engine.Spec{
		Name:              "inferenceservice",
		KnativeConditions: true,
		OldFinalizers:     []string{v1beta1.FinalizerInferenceService},
		OldManagers:       []string{oldManager},
		ReadyEvent:        "InferenceServiceReady",
		NotReadyEvent:     "InferenceServiceNotReady",
		Blocked:           status.Blocked,
		Children: []engine.ChildKind{
			{Object: &appsv1.Deployment{}, Trim: kube.TrimDeployment},
			{Object: &corev1.Service{}, Trim: kube.TrimService},
			{Object: &discoveryv1.EndpointSlice{}, MetadataOnly: true, Restricted: true},
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &autoscalingv2.HorizontalPodAutoscaler{}, MetadataOnly: true},
			{Object: &networkingv1.Ingress{}, MetadataOnly: true},
			{Object: &gatewayv1.HTTPRoute{}, Optional: true, Trim: ingress.TrimRoute},
			{Object: foreign(observed.KnativeService), Optional: true},
			{Object: foreign(observed.VirtualService), Optional: true, MetadataOnly: true},
			{Object: foreign(observed.ScaledObject), Optional: true, MetadataOnly: true},
			{Object: foreign(observed.OTelCollector), Optional: true, MetadataOnly: true},
		},
		Inputs: []engine.Input{
			{Object: &v1alpha1.ServingRuntime{}},
			{Object: &v1alpha1.ClusterServingRuntime{}},
			{Object: &v1alpha1.ClusterStorageContainer{}},
			{Object: &v1alpha1.TrainedModel{}},
			{Object: &v1beta1.InferenceService{}, Index: clashIndex},
			{Object: &corev1.Pod{}, Select: ofServices, Trim: kube.TrimPod, Index: serviceOf},
			{Object: &discoveryv1.EndpointSlice{}, Select: ofActivators, Trim: trimSlice, Home: true},
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &corev1.Secret{}, MetadataOnly: true},
			{Object: &corev1.ServiceAccount{}, MetadataOnly: true},
			{Object: &gatewayv1.Gateway{}, Resource: "gateways", Optional: true, Trim: ingress.TrimGateway},
		},
	})
}

// oldManager is the field manager of the controllers that existing children
// were made by.
const oldManager = "manager"

func foreign(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// serviceOf finds the pods of one service among those of all.
func serviceOf(obj client.Object) []string {
	return []string{obj.GetLabels()[v1beta1.LabelInferenceService]}
}

// clashIndex finds the services that may want the address of another.
func clashIndex(obj client.Object) []string {
	return ingress.ClashIndex(obj.GetName(), obj.GetNamespace())
}

// ofServices selects the pods of services, among all pods of the cluster.
var ofServices = func() labels.Selector {
	exists, err := labels.NewRequirement(v1beta1.LabelInferenceService, selection.Exists, nil)
	if err != nil {
		panic(err) // a constant
	}
	return labels.NewSelector().Add(*exists)
}()

// ofActivators selects the EndpointSlices of activators, and of components that leave them, which have the labels of their
// Services.
var ofActivators = func() labels.Selector {
	exists, err := labels.NewRequirement(activation.LabelActivator, selection.Exists, nil)
	if err != nil {
		panic(err) // a constant
	}
	return labels.NewSelector().Add(*exists)
}()

// trimSlice keeps which replicas take requests, and where.
func trimSlice(obj client.Object) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	slice.Annotations = nil
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		*e = discoveryv1.Endpoint{Addresses: e.Addresses[:min(1, len(e.Addresses))], Conditions: e.Conditions}
	}
}

var _ engine.Kind[*v1beta1.InferenceService, observed.State] = services{}
