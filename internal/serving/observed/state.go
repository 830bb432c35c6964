// SPDX-License-Identifier: Apache-2.0

// Package observed holds everything that the decision about an InferenceService depends on besides the service itself, as
// plain data. Reading it is for the room above, and judging it for the rooms that plan: nothing is decided here.
package observed

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/kube/cause"
	"github.com/modelplane/modelplane/internal/serving/activation"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/runtimes"
	"github.com/modelplane/modelplane/internal/serving/storage"
)

// Optional APIs.
var (
	KnativeService = schema.GroupVersionKind{Group: "serving.knative.dev", Version: "v1", Kind: "Service"}
	VirtualService = schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1beta1", Kind: "VirtualService"}
	ScaledObject   = schema.GroupVersionKind{Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"}
	OTelCollector  = schema.GroupVersionKind{Group: "opentelemetry.io", Version: "v1beta1", Kind: "OpenTelemetryCollector"}
	HTTPRoute      = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}
	Gateway        = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Gateway"}
)

// OptionalAPIs are all of them.
var OptionalAPIs = []schema.GroupVersionKind{KnativeService, VirtualService, ScaledObject, OTelCollector, HTTPRoute, Gateway}

// State is everything that the decision about a service depends on.
type State struct {
	Config          *config.Config
	ConfigNamespace string
	Mode            string
	// ConfigProblem is what is not known of the configuration, nil if everything is.
	ConfigProblem *config.Problem
	// Kubernetes is its version, where models may come as images; nil if nobody knows.
	Kubernetes *version.Version

	Runtimes   runtimes.Candidates
	Containers []v1alpha1.ClusterStorageContainer
	Secrets    map[v1beta1.ComponentType]storage.Secrets // for storageUris only
	Models     []v1alpha1.TrainedModel
	CABundle   *string // nil: wanted and missing

	Deployments map[string]*appsv1.Deployment
	Services    map[string]*corev1.Service
	// Activators are the EndpointSlices of the process that scales by traffic, where the service has components that ask
	// for it.
	Activators []discoveryv1.EndpointSlice
	// Fronts are the EndpointSlices of its own Services that are about to leave the activator.
	Fronts []discoveryv1.EndpointSlice
	// HPAs are looked for where something else could scale instead.
	HPAs    map[string]bool
	Knative map[string]*unstructured.Unstructured
	Routes  map[string]client.Object // by kind/name
	Door    ingress.Door
	// Ingress says that the service has one.
	Ingress bool
	Pods    []corev1.Pod
	// Rivals are services that want an address of this one.
	Rivals []v1beta1.InferenceService

	// What Knative is told by its own configuration, nil while it has none.
	KnativeDomains, KnativeAutoscaler map[string]string

	// Served are the optional APIs that the cluster has.
	Served map[schema.GroupKind]bool
}

// Has tells whether the cluster has an optional API.
func (s *State) Has(gvk schema.GroupVersionKind) bool { return s.Served[gvk.GroupKind()] }

// Available tells whether a Deployment has pods that answer.
func (s *State) Available(name string) bool {
	d := s.Deployments[name]
	return d != nil && d.Status.AvailableReplicas > 0
}

// Led tells whether requests for a component go through the activator now.
func (s *State) Led(name string) bool {
	service := s.Services[name]
	return service != nil && service.Spec.Selector[activation.LabelBehind] != ""
}

// Leaves tells whether requests for a component have just been led past the activator again.
func (s *State) Leaves(name string) bool {
	service := s.Services[name]
	return service != nil && service.Labels[activation.LabelActivator] == activation.ValueLeaving
}

// Fronted tells whether Kubernetes has put pods that answer behind the Service of such a component.
func (s *State) Fronted(name string) bool {
	return slices.ContainsFunc(s.Fronts, func(slice discoveryv1.EndpointSlice) bool {
		return slice.Labels[discoveryv1.LabelServiceName] == name && slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
			return e.Conditions.Ready == nil || *e.Conditions.Ready
		})
	})
}

// ActivatorAnswers tells whether some replica of the activator takes requests.
func (s *State) ActivatorAnswers() bool {
	return slices.ContainsFunc(s.Activators, func(slice discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
			return e.Conditions.Ready == nil || *e.Conditions.Ready || e.Conditions.Serving != nil && *e.Conditions.Serving
		})
	})
}

// Downloader is the container that fetches models in the template of a component that runs, nil if there is none, and what
// storage.Keep noted beside the template.
func (s *State) Downloader(component string) (*corev1.Container, string) {
	var pod corev1.PodSpec
	var noted string
	if d := s.Deployments[component]; d != nil {
		pod, noted = d.Spec.Template.Spec, d.Annotations[storage.AnnotationRest]
	} else if u := s.Knative[component]; u != nil {
		spec, _, err := unstructured.NestedMap(u.Object, "spec", "template", "spec")
		if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod) != nil {
			return nil, ""
		}
		noted = u.GetAnnotations()[storage.AnnotationRest]
	}
	for i := range pod.InitContainers {
		if pod.InitContainers[i].Name == storage.InitializerName {
			return &pod.InitContainers[i], noted
		}
	}
	return nil, noted
}

// Labelled is the value that a label has on what runs, whoever made it; empty if nothing has it. Of several it is the
// first in order.
func (s *State) Labelled(key string) string {
	var found []string
	for _, d := range s.Deployments {
		found = append(found, d.Labels[key])
	}
	for _, u := range s.Knative {
		value, _, err := unstructured.NestedString(u.Object, "spec", "template", "metadata", "labels", key)
		if err == nil {
			found = append(found, value)
		}
	}
	for i := range s.Pods {
		found = append(found, s.Pods[i].Labels[key])
	}
	slices.Sort(found)
	for _, value := range found {
		if value != "" {
			return value
		}
	}
	return ""
}

// Runs tells whether the service has anything that runs.
func (s *State) Runs() bool { return len(s.Deployments)+len(s.Knative) > 0 }

// Answers tells whether a component has a pod that takes requests, whoever made it.
func (s *State) Answers(component v1beta1.ComponentType) bool {
	return slices.ContainsFunc(s.Pods, func(p corev1.Pod) bool {
		return p.Labels[v1beta1.LabelComponent] == string(component) && p.DeletionTimestamp == nil && cause.Ready(&p)
	})
}

// PodsOf are the pods of one Deployment.
func (s *State) PodsOf(deployment string) []corev1.Pod {
	var out []corev1.Pod
	for i := range s.Pods {
		if s.Pods[i].Labels[v1beta1.LabelApp] == "isvc."+deployment {
			out = append(out, s.Pods[i])
		}
	}
	return out
}
