// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/models"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// The copy of the certificates that models are fetched with.
const (
	bundleName = "global-ca-bundle"
	bundleKey  = "cabundle.crt"
)

// planner decides about one service.
type planner struct {
	builder
	cfg *config.Config

	predictor              *component
	canaries               []*component
	transformer, explainer *component

	children []engine.Child
	problem  *engine.Problem
	events   []engine.Event
}

// Plan implements engine.Kind.
func (services) Plan(isvc *v1beta1.InferenceService, seen Seen) engine.Plan {
	p := &planner{builder: builder{isvc: isvc, seen: &seen}, cfg: seen.Config}
	p.configMaps()
	switch {
	case stopped(isvc):
		return engine.Plan{Children: p.children, Status: p.stoppedStatus()}
	case seen.Doubt != nil:
		return p.doubtful()
	case seen.Mode == config.ModeModelMesh:
		return p.mesh()
	case p.unwanted():
		return p.keep()
	case seen.Mode == config.ModeKnative:
		return p.knative()
	}
	return p.standard()
}

// build makes the components that the mode asks for.
func (p *planner) build() *failure {
	var f *failure
	mesh := p.seen.Mode == config.ModeModelMesh
	if !mesh {
		if p.predictor, f = p.builder.predictor(&p.isvc.Spec.Predictor); f != nil {
			return f
		}
		if p.canaries, f = p.builder.canaries(); f != nil {
			return f
		}
	}
	if p.isvc.Spec.Transformer != nil {
		if p.transformer, f = p.builder.transformer(mesh); f != nil {
			return f
		}
	}
	if p.isvc.Spec.Explainer != nil {
		if p.explainer, f = p.builder.explainer(); f != nil {
			return f
		}
	}
	return nil
}

// components in the order in which they are told of, without canaries.
func (p *planner) components() []*component {
	return slices.DeleteFunc([]*component{p.predictor, p.transformer, p.explainer}, func(c *component) bool { return c == nil })
}

// standard runs a service on Deployments.
func (p *planner) standard() engine.Plan {
	if f := p.build(); f != nil {
		return p.fail(f)
	}
	p.relieve(p.predictor, p.canaries)
	for _, c := range append(p.components(), p.canaries...) {
		p.addWorkload(c)
	}
	front := p.front()
	for _, route := range front.objects {
		p.children = append(p.children, engine.Child{Object: route, Keep: front.keep})
	}
	p.keepLeaving(front)
	status := p.standardStatus(front)
	return engine.Plan{
		Children: p.children,
		Status:   status,
		Problem:  p.problem,
		Events:   append(p.events, p.failures(status)...),
	}
}

// addWorkload adds what runs, reaches and scales one component.
func (p *planner) addWorkload(c *component) {
	deployment := engine.Child{Object: workload.Deployment(c.Part, p.cfg)}
	if workload.InitialReplicas(c.Part) {
		deployment.Initial = []string{"spec.replicas"}
	}
	p.children = append(p.children, deployment)
	// A Service that is in the way is left out, and so removed; we are woken when it is gone.
	if service := workload.Service(c.Part, p.cfg); !workload.Irreconcilable(p.seen.Services[c.Name], service) {
		p.children = append(p.children, engine.Child{Object: service})
	}
	if c.Part.Worker != nil {
		p.children = append(p.children, engine.Child{Object: workload.WorkerDeployment(c.Part, p.cfg)})
		for _, service := range workload.MultiNodeServices(c.Part) {
			p.children = append(p.children, engine.Child{Object: service})
		}
	}
	for _, scaler := range workload.Autoscaler(c.Part, p.cfg) {
		if p.served(scaler) && !p.tooEarly(scaler) {
			p.children = append(p.children, engine.Child{Object: scaler})
		}
	}
}

// tooEarly holds a ScaledObject back while our own HPA still scales the same
// Deployment: KEDA refuses it. The HPA is not in the plan, and we are woken when
// it is gone.
func (p *planner) tooEarly(scaler client.Object) bool {
	return scaler.GetObjectKind().GroupVersionKind() == scaledObject && p.seen.HPAs[scaler.GetName()]
}

// served tells whether the cluster knows the kind of an autoscaler, and
// complains if not: the rest of the service need not wait for it.
func (p *planner) served(scaler client.Object) bool {
	gvk := scaler.GetObjectKind().GroupVersionKind()
	if gvk != scaledObject && gvk != otelCollector || p.seen.has(gvk) {
		return true
	}
	p.problem = engine.WaitFor(gvk.Kind+"Missing",
		"The service is to be scaled by a %s, but the cluster does not serve %s. Install it (nothing needs a restart), or change the annotation %s.",
		gvk.Kind, gvk.GroupVersion(), v1beta1.AnnotationAutoscalerClass)
	return false
}

// frontDoor is how a service is reached.
type frontDoor struct {
	objects []client.Object
	urls    ingress.URLSet
	// problem is why there are no routes; everything else is made nevertheless.
	problem *engine.Problem
	// keep leaves the objects as they are in the cluster, because of what ignored says.
	keep    bool
	ignored []string
}

// routes are the objects that a gateway answers for. An Ingress is nobody's to
// accept.
func (f *frontDoor) routes() []client.Object {
	return slices.DeleteFunc(slices.Clone(f.objects), func(o client.Object) bool {
		_, ok := o.(*gatewayv1.HTTPRoute)
		return !ok
	})
}

// front makes the routes. They are there from the start; what may wait is a
// change of where they lead, until the new destination can answer.
func (p *planner) front() *frontDoor {
	s := ingress.Service{
		Name:               p.isvc.Name,
		Namespace:          p.isvc.Namespace,
		Labels:             p.isvc.Labels,
		Annotations:        p.isvc.Annotations,
		PredictorHostName:  p.isvc.Name + "-predictor",
		Predictor:          p.backend(p.predictor),
		ThroughTransformer: p.throughTransformer(),
	}
	for _, c := range p.canaries {
		if p.seen.available(c.Name) {
			s.Predictor.Canaries = append(s.Predictor.Canaries, ingress.Share{Service: c.Name, Percent: c.percent})
		}
	}
	if p.transformer != nil {
		b := p.backend(p.transformer)
		s.Transformer = &b
	}
	if p.explainer != nil {
		b := p.backend(p.explainer)
		b.Model = argument(p.explainer.Pod.Containers[0].Args, argModelName)
		s.Explainer = &b
	}
	door := &frontDoor{}
	var err error
	if door.urls, err = ingress.URLs(s, p.cfg); err == nil {
		door.objects, err = ingress.Objects(s, p.cfg)
	}
	switch {
	case err != nil:
		door.problem = engine.MustChange("InvalidHost", "%s", err.Error())
	case len(door.objects) > 0 && p.cfg.Ingress.EnableGatewayAPI && !p.seen.has(httpRoute):
		door.objects = nil
		door.problem = engine.WaitFor("GatewayAPIMissing",
			"The platform's configuration asks for HTTPRoutes (ingress.enableGatewayApi), but the cluster does not serve the Gateway API. Install it; nothing needs a restart.")
	default:
		p.refuseAnnotations(door)
		p.giveWay(door)
	}
	door.ignored = append(door.ignored, ingress.Ignored(s, p.cfg)...)
	if p.problem == nil {
		p.problem = door.problem
	}
	return door
}

// giveWay makes no routes to an address that another service has.
func (p *planner) giveWay(door *frontDoor) {
	if len(door.objects) == 0 {
		return
	}
	if problem := p.taken(); problem != nil {
		door.objects, door.problem = nil, problem
		door.urls = ingress.URLSet{Address: door.urls.Address}
	}
}

// refuseAnnotations makes no Ingress with annotations that reach beyond the service, nor one without them: they may be
// what protects it. An Ingress that is older than the refusal stays as it is.
func (p *planner) refuseAnnotations(door *frontDoor) {
	refusals := ingress.Refusals(p.isvc.Annotations, p.cfg)
	if len(refusals) == 0 || len(door.objects) == 0 {
		return
	}
	first := "annotation " + refusals[0].Annotation + " is refused, because " + refusals[0].Advice() + "."
	if p.seen.Ingress {
		door.keep, door.ignored = true, []string{"The Ingress is left as it is and follows no change: " + first}
		return
	}
	door.objects = nil
	door.problem = engine.MustChange("AnnotationRefused", "The service gets no Ingress: %s", first)
}

func (p *planner) backend(c *component) ingress.Backend {
	return ingress.Backend{Service: workload.Service(c.Part, p.cfg), Timeout: c.Scale.TimeoutSeconds}
}

// throughTransformer tells whether requests go to the transformer. One that is
// added to a running service gets them when it can answer, and keeps them.
func (p *planner) throughTransformer() bool {
	if p.transformer == nil {
		return false
	}
	route, ok := p.seen.Routes[httpRoute.Kind+"/"+p.isvc.Name].(*gatewayv1.HTTPRoute)
	if !ok || p.seen.available(p.transformer.Name) {
		return true
	}
	for _, rule := range route.Spec.Rules {
		for _, ref := range rule.BackendRefs {
			if string(ref.Name) == p.transformer.Name {
				return true
			}
		}
	}
	return false
}

// fail leaves what runs alone and says what is wrong.
func (p *planner) fail(f *failure) engine.Plan {
	return engine.Plan{Hold: true, Status: p.failedStatus(f), Problem: f.problem}
}

// configMaps are what pods read: they stay while a service is stopped.
func (p *planner) configMaps() {
	if models.MultiModel(&p.isvc.Spec.Predictor) && p.seen.Mode != config.ModeModelMesh {
		p.children = append(p.children, engine.Child{Object: p.modelConfig()})
	}
	source := p.cfg.StorageInitializer.CABundleConfigMapName
	if source == "" || p.seen.ConfigNamespace == p.isvc.Namespace {
		return
	}
	if p.seen.CABundle == nil {
		p.problem = engine.WaitFor("CABundleMissing",
			"ConfigMap %s/%s with key %s does not exist, but the platform's configuration (storageInitializer.caBundleConfigMapName) names it. Create it.",
			p.seen.ConfigNamespace, source, bundleKey)
		return
	}
	p.children = append(p.children, engine.Child{Shared: true, Object: &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: bundleName, Namespace: p.isvc.Namespace},
		Data:       map[string]string{bundleKey: *p.seen.CABundle},
	}})
}

// modelEntry is one model in the list that the agent reads.
type modelEntry struct {
	Name string                      `json:"modelName"`
	Spec v1alpha1.TrainedModelSource `json:"modelSpec"`
}

// modelConfig lists the TrainedModels that have room in a server that takes
// several.
func (p *planner) modelConfig() *corev1.ConfigMap {
	entries := []modelEntry{}
	fits, _ := models.Fit(p.seen.Models, models.MemoryLimit(p.isvc))
	for i := range fits {
		entries = append(entries, modelEntry{Name: fits[i].Name, Spec: fits[i].Spec.Model})
	}
	slices.SortFunc(entries, func(a, b modelEntry) int { return strings.Compare(a.Name, b.Name) })
	list, err := json.Marshal(entries)
	if err != nil {
		list = []byte("[]") // strings and a quantity always encode
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: modelConfigName(p.isvc), Namespace: p.isvc.Namespace},
		Data:       map[string]string{"models.json": string(list)},
	}
}
