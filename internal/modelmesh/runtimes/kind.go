// SPDX-License-Identifier: Apache-2.0

// Package runtimes turns multi-model ServingRuntimes and ClusterServingRuntimes into the Deployments that serve models in
// the namespaces that are enabled for it, and refuses runtimes that could not run.
//
// It decides about pods, their number and their autoscaler. What stands once in a namespace, whoever runs there, is package
// namespaces'; which models are loaded where is the mesh's own business.
package runtimes

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/modelmesh/settings"
)

// A webhook that has to know of server types beyond the usual ones reads the configuration itself. Names of services are
// looked up among graphs as well, also where nobody looks after graphs.
//
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get
// +kubebuilder:rbac:groups=serving.kserve.io,resources=inferencegraphs,verbs=list;watch

// Labels and annotations that others know.
const (
	// LabelService is on everything that belongs to the mesh of a namespace, with the name of its Service.
	LabelService = "modelmesh-service"
	// AnnotationKeepPods with the value "false" makes pods anew that another controller left.
	AnnotationKeepPods = "modelplane.dev/keep-pods"
)

// oldManager is the field manager of the controller that existing children come from.
const oldManager = "manager"

// Domain is the part of the domain that looks after runtimes.
type Domain struct {
	source *settings.Source
	now    func() time.Time
}

// New looks after runtimes by the settings of a source.
func New(source *settings.Source) *Domain { return &Domain{source: source, now: time.Now} }

// WithClock takes another clock than the machine's, for tests.
func (d *Domain) WithClock(now func() time.Time) *Domain {
	d.now = now
	return d
}

// Controllers of both kinds.
func (d *Domain) Controllers() []engine.Controller {
	return []engine.Controller{
		engine.For[*v1alpha1.ServingRuntime, Seen](ofNamespace{d}, spec("modelmesh-runtime", kindCluster)),
		engine.For[*v1alpha1.ClusterServingRuntime, Seen](ofCluster{d}, spec("modelmesh-clusterruntime", kindNamespaced)),
	}
}

const kindNamespaced, kindCluster = "ServingRuntime", "ClusterServingRuntime"

// spec of one kind; the other one may have made what it takes over.
func spec(name, other string) engine.Spec {
	return engine.Spec{
		Name: name, NoStatus: true, OldManagers: []string{oldManager},
		FormerOwners: []engine.FormerOwner{{Group: v1alpha1.GroupVersion.Group, Kind: other}},
		Children: []engine.ChildKind{
			{Object: &appsv1.Deployment{}, Trim: kube.TrimDeployment},
			{Object: &autoscalingv2.HorizontalPodAutoscaler{}, MetadataOnly: true},
		},
		Inputs: []engine.Input{
			{Object: &corev1.Namespace{}, MetadataOnly: true},
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &corev1.Secret{}, MetadataOnly: true},
			{Object: &corev1.PersistentVolumeClaim{}, MetadataOnly: true},
			{Object: &appsv1.Deployment{}, Select: ofMesh},
			{Object: &v1alpha1.ServingRuntime{}},
			{Object: &v1alpha1.ClusterServingRuntime{}},
			{Object: &v1alpha1.Predictor{}},
			{Object: &v1beta1.InferenceService{}},
		},
	}
}

// ofMesh selects the Deployments of runtimes among all of the cluster, whoever made them.
var ofMesh = func() labels.Selector {
	exists, err := labels.NewRequirement(LabelService, selection.Exists, nil)
	if err != nil {
		panic(err) // a constant
	}
	return labels.NewSelector().Add(*exists)
}()

// view is a runtime of either kind.
type view struct {
	kind, name  string
	labels      map[string]string
	annotations map[string]string
	spec        *v1alpha1.ServingRuntimeSpec
}

func viewOf(obj any) *view {
	switch r := obj.(type) {
	case *v1alpha1.ServingRuntime:
		return &view{kindNamespaced, r.Name, r.Labels, r.Annotations, &r.Spec}
	case *v1alpha1.ClusterServingRuntime:
		return &view{kindCluster, r.Name, r.Labels, r.Annotations, &r.Spec}
	}
	return nil
}

// Runs tells whether a runtime has pods that serve many models.
func Runs(spec *v1alpha1.ServingRuntimeSpec) bool {
	return spec.MultiModel != nil && *spec.MultiModel && (spec.Disabled == nil || !*spec.Disabled)
}
