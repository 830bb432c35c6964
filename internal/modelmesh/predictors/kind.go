// SPDX-License-Identifier: Apache-2.0

// Package predictors looks after Predictors, and after the predictors of InferenceServices in ModelMesh mode: each is a
// model that the mesh of its namespace is asked for, and a status that says what became of it.
//
// Plans are pure. The mesh is asked by the client alone, and its records wake the objects that they concern. Of an
// InferenceService only what the mesh knows is written; the rest of its status is another domain's.
package predictors

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelmesh/client"
	"github.com/modelplane/modelplane/internal/modelmesh/model"
)

// Platform is what holds for the meshes of all namespaces.
type Platform struct {
	// Home is the manager's namespace.
	Home string
	// Service is the name of each mesh's Service, and Port that of its gRPC.
	Service string
	Port    int32
	// RESTPort answers HTTP; 0 if nothing does.
	RESTPort int32
	// Endpoint is where the mesh is reached instead, for developers.
	Endpoint string
	// TLSSecret has the certificates, in the manager's namespace; plain text if empty. ClientAuth says that the manager has
	// to prove itself with them.
	TLSSecret  string
	ClientAuth bool
	// EtcdSecret has the connection to etcd, in the manager's namespace.
	EtcdSecret string
	// Enabled tells whether a namespace has a mesh.
	Enabled func(namespace metav1.Object) bool
	// Problem is why none of this can be known.
	Problem *engine.Problem
}

// Settings reads the platform as it is now.
type Settings func(ctx context.Context, r engine.Reader) (Platform, error)

// Domain is both controllers and what they have in common.
type Domain struct {
	settings Settings
	mesh     *client.Client
	now      func() time.Time
	// patience is how long a mesh that fails is given when an object is deleted that nobody can ask for any more.
	patience time.Duration
}

// New looks after nothing until its controllers run.
func New(settings Settings) *Domain {
	const restart = 20 * time.Second
	return &Domain{settings: settings, mesh: client.New(), now: time.Now, patience: restart}
}

// The conditions of a Predictor.
const (
	// ConditionReady says whether requests are answered.
	ConditionReady = "Ready"
	// ConditionLatest says whether what answers is what was asked for last.
	ConditionLatest = "LatestModelReady"
	// ConditionIgnored tells of settings that have no effect. It is absent where there are none.
	ConditionIgnored = "SettingsIgnored"
)

// Conditions of an InferenceService that are the mesh's to say.
const (
	conditionPredictor  = "PredictorReady"
	conditionIngress    = "IngressReady"
	conditionDeployment = "LatestDeploymentReady"
)

// Controllers look after both kinds.
func (d *Domain) Controllers() []engine.Controller {
	first, second := d.spec("predictors", model.FromPredictor), d.spec("meshservices", model.FromService)
	first.ReadyEvent, first.NotReadyEvent = "Ready", "NotReady"
	second.Ready, second.KnativeConditions = conditionPredictor, true
	second.ReadyEvent, second.NotReadyEvent = "PredictorReady", "PredictorNotReady"
	second.Status = &engine.StatusOwnership{
		Conditions: []string{conditionPredictor, conditionIngress, conditionDeployment},
		Alone:      []string{v1beta1.ConditionReady},
		Fields:     []string{"modelStatus", "observedGeneration", "url", "components.predictor"},
		Where:      speaksFor,
	}
	return []engine.Controller{
		engine.For[*v1alpha1.Predictor, Seen](predictors{d}, first),
		engine.For[*v1beta1.InferenceService, Seen](services{d}, second),
	}
}

// speaksFor tells whether the predictor of a service is the mesh's to tell of: also until it has left the mesh, so that
// nothing which was said of it there stays behind.
func speaksFor(obj kubeclient.Object) bool {
	isvc, ok := obj.(*v1beta1.InferenceService)
	return ok && (model.InMesh(isvc) || finalized(isvc, services{}.finalizer()))
}

// ofMeshes selects the EndpointSlices of meshes, which have the labels of their Services.
var ofMeshes = func() labels.Selector {
	r, err := labels.NewRequirement("modelmesh-service", selection.Exists, nil)
	if err != nil {
		panic(err)
	}
	return labels.NewSelector().Add(*r)
}()

func (d *Domain) spec(name string, source model.Source) engine.Spec {
	return engine.Spec{
		Name: name, Executor: d.mesh.Executor(source), CallTimeout: client.Timeout, Sources: []engine.EventSource{d.mesh.Source(source)},
		Inputs: []engine.Input{
			{Object: &corev1.Namespace{}, MetadataOnly: true},
			{Object: &discoveryv1.EndpointSlice{}, Select: ofMeshes},
			{Object: &corev1.Secret{}, MetadataOnly: true},
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
		},
	}
}

// predictors is the kind Predictor.
type predictors struct{ *Domain }

var (
	_ engine.Kind[*v1alpha1.Predictor, Seen]     = predictors{}
	_ engine.Teardown[*v1alpha1.Predictor, Seen] = predictors{}
)

// Observe implements engine.Kind.
func (k predictors) Observe(ctx context.Context, r engine.Reader, p *v1alpha1.Predictor) (Seen, error) {
	return k.observe(ctx, r, model.FromPredictor, p)
}

// Plan implements engine.Kind.
func (k predictors) Plan(p *v1alpha1.Predictor, seen Seen) engine.Plan {
	t := predictorTask(p, seen)
	plan := t.plan()
	if t.said {
		plan.Status = t.predictorStatus()
	}
	return plan
}

// Teardown implements engine.Teardown.
func (k predictors) Teardown(p *v1alpha1.Predictor, seen Seen) engine.Ending {
	t := predictorTask(p, seen)
	ending := t.end()
	if t.said {
		ending.Status = t.predictorStatus()
	}
	return ending
}

// services is the kind InferenceService, as far as the mesh is concerned.
type services struct{ *Domain }

var (
	_ engine.Kind[*v1beta1.InferenceService, Seen]     = services{}
	_ engine.Teardown[*v1beta1.InferenceService, Seen] = services{}
)

// Observe implements engine.Kind.
func (k services) Observe(ctx context.Context, r engine.Reader, isvc *v1beta1.InferenceService) (Seen, error) {
	if !model.InMesh(isvc) && !finalized(isvc, k.finalizer()) {
		return Seen{}, nil
	}
	return k.observe(ctx, r, model.FromService, isvc)
}

func (k services) finalizer() string { return engine.FinalizerPrefix + "meshservices" }

// Plan implements engine.Kind. A service that has left the mesh is taken out of it.
func (k services) Plan(isvc *v1beta1.InferenceService, seen Seen) engine.Plan {
	if !model.InMesh(isvc) {
		return leave(isvc, seen)
	}
	t := serviceTask(isvc, seen)
	plan := t.plan()
	if t.said {
		plan.Status = t.serviceStatus()
	}
	return plan
}

// leave takes a service out of the mesh, and what was said of its model out of its status.
func leave(isvc *v1beta1.InferenceService, seen Seen) engine.Plan {
	if !finalized(isvc, services{}.finalizer()) || seen.Deleted.Done && !speaks(isvc) {
		return engine.Plan{NoFinalizer: true}
	}
	plan := engine.Plan{Status: &v1beta1.InferenceServiceStatus{}}
	if seen.Deleted.Done {
		plan.RequeueAfter = time.Second // until what is read here says what was written
	} else {
		plan.Calls = serviceTask(isvc, seen).removal()
	}
	return plan
}

// speaks tells whether a status has anything that the mesh said.
func speaks(isvc *v1beta1.InferenceService) bool {
	_, reached := isvc.Status.Components[v1beta1.PredictorComponent]
	return reached || isvc.Status.ModelStatus != nil || isvc.Status.URL != nil ||
		slices.ContainsFunc(isvc.Status.Conditions, func(c v1beta1.Condition) bool { return c.Type == conditionPredictor })
}

// Teardown implements engine.Teardown.
func (k services) Teardown(isvc *v1beta1.InferenceService, seen Seen) engine.Ending {
	t := serviceTask(isvc, seen)
	ending := t.end()
	if t.said && model.InMesh(isvc) {
		ending.Status = t.serviceStatus()
	}
	return ending
}
