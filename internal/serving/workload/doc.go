// SPDX-License-Identifier: Apache-2.0

// Package workload makes the Kubernetes objects that run a component of an InferenceService in Standard mode:
// Deployments, Services and what scales them.
//
// Everything here is a pure function of a decided Part and the configuration. What comes out equals, after the API
// server has filled in its defaults, what KServe writes for the same service: a Deployment that exists already is
// taken over without a change to its pod template. The package must not choose runtimes, look at live objects or talk
// to anything.
package workload

import (
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/serving/activation"
)

// Part is one component of a service, decided.
type Part struct {
	Component v1beta1.ComponentType
	// IsvcName is the name of the InferenceService; Name that of the component's Deployment, Service and autoscaler.
	IsvcName, Name, Namespace string
	// Labels and Annotations are complete but for the label app. Deployment, pods, Service and autoscaler share them,
	// but for the internal ones, which are for pods alone.
	Labels, Annotations map[string]string
	Pod                 corev1.PodSpec
	Scale               v1beta1.ComponentExtensionSpec
	// Replicas is a fixed number of pods; nil leaves it to the autoscaler.
	Replicas *int32
	// Generation of the InferenceService. Only pods of the same one form a multi-node group.
	Generation int64
	// Worker holds the other nodes of a multi-node predictor.
	Worker *Worker
	// Activation says how the activator scales the component; nil: something else does. Led says that requests go through
	// the activator already.
	Activation *activation.Settings
	Led        bool
	// Leaving says that the activator is there only until Kubernetes has put the pods behind their Service again.
	Leaving bool
}

// Worker is the part of a multi-node predictor that runs beside the head.
type Worker struct {
	Name                string
	Labels, Annotations map[string]string
	Pod                 corev1.PodSpec
	Replicas            int32
}

// The values of the annotation that says who scales a component.
const (
	ClassHPA      = "hpa"
	ClassKEDA     = "keda"
	ClassExternal = "external"
	ClassNone     = "none"
)

// Class tells who scales a component: the HPA unless something else is asked for. A class that nobody knows, which
// admission refuses, leaves the number of pods alone.
func Class(annotations map[string]string) string {
	switch class := annotations[v1beta1.AnnotationAutoscalerClass]; class {
	case "":
		return ClassHPA
	case ClassHPA, ClassKEDA, ClassExternal:
		return class
	}
	return ClassNone
}

const (
	modelContainer       = "kserve-container"
	transformerContainer = "transformer-container"

	modelPort   = 8080
	agentPort   = 9081
	servicePort = 80

	roleHead   = "head"
	roleWorker = "worker"
)

// app is the value that selectors find the pods of a component by.
func (p Part) app() string { return "isvc." + p.Name }

// workerApp is the same for the pods of the workers.
func (p Part) workerApp() string { return "isvc." + p.Name + "-worker" }

func (p Part) generation() string { return strconv.FormatInt(p.Generation, 10) }

// meta is the metadata of Deployment and pods.
func (p Part) meta() metav1.ObjectMeta {
	return p.metaOf(p.Name, p.app(), p.Labels, p.Annotations)
}

// workerMeta is the same for the workers.
func (p Part) workerMeta() metav1.ObjectMeta {
	return p.metaOf(p.Worker.Name, p.workerApp(), p.Worker.Labels, p.Worker.Annotations)
}

func (p Part) metaOf(name, app string, labels, annotations map[string]string) metav1.ObjectMeta {
	own := make(map[string]string, len(labels)+2)
	if p.Worker != nil {
		own[v1beta1.LabelGeneration] = p.generation()
	}
	maps.Copy(own, labels)
	own[v1beta1.LabelApp] = app
	return metav1.ObjectMeta{Name: name, Namespace: p.Namespace, Labels: own, Annotations: maps.Clone(annotations)}
}

// beside is the metadata of an object that is not made of pods. It goes without the annotations by which the controller
// talks to the pods' webhook, so that another model does not change Services and autoscalers.
func beside(meta metav1.ObjectMeta) metav1.ObjectMeta {
	maps.DeleteFunc(meta.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, v1beta1.InternalPrefix) })
	return meta
}

// leastReplicas is the lower bound that an autoscaler keeps. Below one it could never measure anything.
func (p Part) leastReplicas() int32 {
	if p.Scale.MinReplicas == nil {
		return 1
	}
	return max(*p.Scale.MinReplicas, 1)
}
