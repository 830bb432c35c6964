// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/activation"
	"github.com/modelplane/modelplane/internal/serving/ingress"
	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/resolve"
	"github.com/modelplane/modelplane/internal/serving/runtimes"
	"github.com/modelplane/modelplane/internal/serving/storage"
	"github.com/modelplane/modelplane/internal/serving/trainedmodels"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// Where Knative keeps its configuration.
const (
	knativeNamespace  = "knative-serving"
	knativeDomain     = "config-domain"
	knativeAutoscaler = "config-autoscaler"
)

// Observe implements engine.Kind.
func (s services) Observe(ctx context.Context, r engine.Reader, isvc *v1beta1.InferenceService) (observed.State, error) {
	o := &observer{Domain: s.Domain, Reader: r, isvc: isvc}
	return o.observe(ctx)
}

// observer reads for one service.
type observer struct {
	*Domain
	engine.Reader
	isvc *v1beta1.InferenceService
	seen observed.State
}

func (o *observer) observe(ctx context.Context) (observed.State, error) {
	for _, read := range []func(context.Context) error{
		o.readConfig, o.readRuntimes, o.readStorage, o.readModels, o.readBundle, o.readLive, o.readActivators, o.readKnative, o.readRivals,
	} {
		if err := read(ctx); err != nil {
			return observed.State{}, err
		}
	}
	return o.seen, nil
}

func (o *observer) readConfig(ctx context.Context) error {
	var err error
	o.seen.Config, o.seen.ConfigNamespace, err = o.platform.Read(ctx, o.Reader)
	if err != nil {
		return err
	}
	o.seen.Mode, o.seen.ConfigProblem = modeOf(o.isvc, o.seen.Config), o.seen.Config.FirstUnusable(resolve.ConfigKeys...)
	if o.seen.Config.StorageInitializer.EffectiveOCIMode() != "" {
		if o.seen.Kubernetes, err = o.cluster.Version(); err != nil {
			return err
		}
	}
	o.seen.Served = map[schema.GroupKind]bool{}
	for _, gvk := range observed.OptionalAPIs {
		o.seen.Served[gvk.GroupKind()] = o.HasAPI(gvk.GroupKind())
	}
	return nil
}

// readRuntimes reads the one that was named, or all that could be chosen.
func (o *observer) readRuntimes(ctx context.Context) error {
	if o.seen.Mode == config.ModeModelMesh {
		return nil
	}
	for _, spec := range resolve.Predictors(o.isvc) {
		if spec.Model == nil {
			continue
		}
		read := o.listRuntimes
		if spec.Model.Runtime != nil && *spec.Model.Runtime != "" {
			read = o.getRuntime
		}
		if err := read(ctx, spec.Model); err != nil {
			return err
		}
	}
	return nil
}

func (o *observer) getRuntime(ctx context.Context, model *v1beta1.ModelSpec) error {
	namespaced := v1alpha1.ServingRuntime{}
	err := o.Get(ctx, client.ObjectKey{Namespace: o.isvc.Namespace, Name: *model.Runtime}, &namespaced)
	if err == nil {
		o.addNamespaced(namespaced)
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	cluster := v1alpha1.ClusterServingRuntime{}
	err = o.Get(ctx, client.ObjectKey{Name: *model.Runtime}, &cluster)
	if err == nil {
		o.addCluster(cluster)
	}
	return client.IgnoreNotFound(err)
}

func (o *observer) listRuntimes(ctx context.Context, model *v1beta1.ModelSpec) error {
	concerned := engine.MatchingFunc(runtimes.Concerns(model))
	namespaced := &v1alpha1.ServingRuntimeList{}
	if err := o.List(ctx, namespaced, client.InNamespace(o.isvc.Namespace), concerned); err != nil {
		return err
	}
	cluster := &v1alpha1.ClusterServingRuntimeList{}
	if err := o.List(ctx, cluster, concerned); err != nil {
		return err
	}
	for _, rt := range namespaced.Items {
		o.addNamespaced(rt)
	}
	for _, rt := range cluster.Items {
		o.addCluster(rt)
	}
	return nil
}

func (o *observer) addNamespaced(rt v1alpha1.ServingRuntime) {
	if !slices.ContainsFunc(o.seen.Runtimes.Namespaced, func(have v1alpha1.ServingRuntime) bool { return have.Name == rt.Name }) {
		o.seen.Runtimes.Namespaced = append(o.seen.Runtimes.Namespaced, rt)
	}
}

func (o *observer) addCluster(rt v1alpha1.ClusterServingRuntime) {
	if !slices.ContainsFunc(o.seen.Runtimes.Cluster, func(have v1alpha1.ClusterServingRuntime) bool { return have.Name == rt.Name }) {
		o.seen.Runtimes.Cluster = append(o.seen.Runtimes.Cluster, rt)
	}
}

// readStorage reads what can fetch models and, for components whose init
// container is part of the template, the credentials it needs.
func (o *observer) readStorage(ctx context.Context) error {
	containers := &v1alpha1.ClusterStorageContainerList{}
	if err := o.List(ctx, containers); err != nil {
		return err
	}
	o.seen.Containers = containers.Items
	spec := &o.isvc.Spec
	account := map[v1beta1.ComponentType]string{v1beta1.PredictorComponent: spec.Predictor.ServiceAccountName}
	uris := map[v1beta1.ComponentType][]v1beta1.StorageUri{v1beta1.PredictorComponent: spec.Predictor.StorageUris}
	if t := spec.Transformer; t != nil {
		account[v1beta1.TransformerComponent], uris[v1beta1.TransformerComponent] = t.ServiceAccountName, t.StorageUris
	}
	if e := spec.Explainer; e != nil {
		account[v1beta1.ExplainerComponent], uris[v1beta1.ExplainerComponent] = e.ServiceAccountName, e.StorageUris
	}
	o.seen.Secrets = map[v1beta1.ComponentType]storage.Secrets{}
	for of, list := range uris {
		if len(list) == 0 {
			continue
		}
		secrets, err := storage.Gather(ctx, contents{o.Reader}, o.isvc.Namespace, account[of], o.isvc.Annotations,
			storage.Source{URIs: list}, o.seen.Config)
		if err != nil {
			return err
		}
		o.seen.Secrets[of] = secrets
	}
	return nil
}

// contents reads objects in full of which only the metadata is kept in memory.
type contents struct{ engine.Reader }

func (c contents) Get(ctx context.Context, key client.ObjectKey, obj client.Object) error {
	return c.GetUncached(ctx, key, obj)
}

// readModels reads the TrainedModels of a server that takes several.
func (o *observer) readModels(ctx context.Context) error {
	if !trainedmodels.MultiModel(&o.isvc.Spec.Predictor) || o.seen.Mode == config.ModeModelMesh {
		return nil
	}
	list := &v1alpha1.TrainedModelList{}
	service := o.isvc.Name
	ours := func(obj client.Object) bool {
		tm, ok := obj.(*v1alpha1.TrainedModel)
		return ok && tm.Spec.InferenceService == service
	}
	if err := o.List(ctx, list, client.InNamespace(o.isvc.Namespace), engine.MatchingFunc(ours)); err != nil {
		return err
	}
	for i := range list.Items {
		if ours(&list.Items[i]) {
			o.seen.Models = append(o.seen.Models, list.Items[i])
		}
	}
	return nil
}

// readBundle reads the certificates that models are fetched with, and looks at
// the copy in the service's namespace, to be woken when it changes.
func (o *observer) readBundle(ctx context.Context) error {
	name := o.seen.Config.StorageInitializer.CABundleConfigMapName
	if name == "" {
		return nil
	}
	cm, err := config.Content(ctx, o.Reader, o.seen.ConfigNamespace, name)
	if err != nil || cm == nil {
		return err
	}
	if bundle, ok := cm.Data[bundleKey]; ok {
		o.seen.CABundle = &bundle
	}
	return nil
}

// readLive reads what became of earlier plans.
func (o *observer) readLive(ctx context.Context) error {
	o.seen.Deployments = map[string]*appsv1.Deployment{}
	for _, name := range resolve.DeploymentNames(o.isvc) {
		d := &appsv1.Deployment{}
		d.Namespace, d.Name = o.isvc.Namespace, name
		if err := o.Child(ctx, d); err == nil {
			o.seen.Deployments[name] = d
		} else if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if err := o.readBeside(ctx); err != nil {
		return err
	}
	pods := &corev1.PodList{}
	if err := o.List(ctx, pods, client.InNamespace(o.isvc.Namespace), engine.Indexed(o.isvc.Name)); err != nil {
		return err
	}
	o.seen.Pods = pods.Items
	return o.readRoutes(ctx)
}

// readBeside reads what stands beside the Deployments and can be in the way of
// a new plan.
func (o *observer) readBeside(ctx context.Context) error {
	o.seen.Services, o.seen.HPAs = map[string]*corev1.Service{}, map[string]bool{}
	for _, name := range resolve.DeploymentNames(o.isvc) {
		service := &corev1.Service{}
		service.Namespace, service.Name = o.isvc.Namespace, name
		if err := o.Child(ctx, service); err == nil {
			o.seen.Services[name] = service
		} else if client.IgnoreNotFound(err) != nil {
			return err
		}
		if !o.seen.Has(observed.ScaledObject) {
			continue
		}
		hpa := &metav1.PartialObjectMetadata{}
		hpa.SetGroupVersionKind(workload.HPA)
		hpa.Namespace, hpa.Name = o.isvc.Namespace, name
		err := o.Child(ctx, hpa)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		o.seen.HPAs[name] = err == nil
	}
	return nil
}

// readActivators reads who scales by traffic, for a service that is or has been scaled so.
func (o *observer) readActivators(ctx context.Context) error {
	if o.seen.Mode != config.ModeStandard || !o.behind() && (o.seen.Config.Autoscaler.Activator == "" || !o.byTraffic()) {
		return nil
	}
	for _, component := range resolve.DeploymentNames(o.isvc) {
		service := &corev1.Service{}
		service.Namespace, service.Name = o.isvc.Namespace, activation.PodsService(component)
		if err := o.Child(ctx, service); err == nil {
			o.seen.Services[service.Name] = service
		} else if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if err := o.readReplicas(ctx, o.seen.Config.Autoscaler.Activator); err != nil {
		return err
	}
	return o.readFronts(ctx)
}

// readReplicas reads the replicas of the activator. One that was switched off has no name any more, and goes on for a while.
func (o *observer) readReplicas(ctx context.Context, name string) error {
	its := func(obj client.Object) bool {
		if name == "" {
			return obj.GetLabels()[activation.LabelActivator] == activation.ValueActivator
		}
		return obj.GetLabels()[discoveryv1.LabelServiceName] == name
	}
	list := &discoveryv1.EndpointSliceList{}
	err := o.List(ctx, list, client.InNamespace(o.seen.ConfigNamespace), engine.MatchingFunc(its))
	o.seen.Activators = slices.DeleteFunc(list.Items, func(s discoveryv1.EndpointSlice) bool { return !its(&s) })
	return err
}

// readFronts reads what Kubernetes has put behind Services that leave the activator.
func (o *observer) readFronts(ctx context.Context) error {
	names := slices.DeleteFunc(resolve.DeploymentNames(o.isvc), func(name string) bool { return !o.seen.Leaves(name) })
	if len(names) == 0 {
		return nil
	}
	its := engine.MatchingFunc(func(obj client.Object) bool {
		return slices.Contains(names, obj.GetLabels()[discoveryv1.LabelServiceName])
	})
	list := &discoveryv1.EndpointSliceList{}
	err := o.List(ctx, list, client.InNamespace(o.isvc.Namespace), its)
	o.seen.Fronts = list.Items
	return err
}

// behind tells whether requests for some component go through the activator still.
func (o *observer) behind() bool {
	return slices.ContainsFunc(resolve.DeploymentNames(o.isvc), func(name string) bool { return o.seen.Led(name) || o.seen.Leaves(name) })
}

// byTraffic tells whether some component asks for the activator.
func (o *observer) byTraffic() bool {
	class := o.isvc.Annotations[v1beta1.AnnotationAutoscalerClass]
	spec := &o.isvc.Spec
	return workload.ByTraffic(class, spec.Predictor.ComponentExtensionSpec) ||
		spec.Transformer != nil && workload.ByTraffic(class, spec.Transformer.ComponentExtensionSpec) ||
		spec.Explainer != nil && workload.ByTraffic(class, spec.Explainer.ComponentExtensionSpec)
}

func (o *observer) readRoutes(ctx context.Context) error {
	o.seen.Routes = map[string]client.Object{}
	if err := o.readIngress(ctx); err != nil {
		return err
	}
	if !o.seen.Has(observed.HTTPRoute) || !o.seen.Config.Ingress.EnableGatewayAPI {
		return nil
	}
	names := []string{o.isvc.Name, o.isvc.Name + "-predictor", o.isvc.Name + "-transformer", o.isvc.Name + "-explainer", o.isvc.Name + "-path"}
	for _, name := range ingress.RouteNames(ingress.Outline(o.isvc), o.seen.Config) {
		if !slices.Contains(names, name) { // a service with many hosts
			names = append(names, name)
		}
	}
	for _, name := range names {
		route := &gatewayv1.HTTPRoute{}
		route.Namespace, route.Name = o.isvc.Namespace, name
		if err := o.Child(ctx, route); err == nil {
			o.seen.Routes[observed.HTTPRoute.Kind+"/"+name] = route
		} else if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return o.readGateway(ctx)
}

// readGateway reads the Gateway that routes attach to. In a namespace that we do not look at it may exist all the same.
func (o *observer) readGateway(ctx context.Context) error {
	key, wanted := ingress.GatewayKey(o.seen.Config)
	if !wanted || o.seen.Mode != config.ModeStandard || !o.seen.Has(observed.Gateway) {
		return nil
	}
	gateway := &gatewayv1.Gateway{}
	err := o.Get(ctx, key, gateway)
	if err == nil {
		o.seen.Door.Gateway = gateway
	}
	o.seen.Door.Known = !engine.OutOfSight(err)
	return client.IgnoreNotFound(err)
}

// readIngress looks for the Ingress where it may have to stay as it is.
func (o *observer) readIngress(ctx context.Context) error {
	if len(ingress.Refusals(o.isvc.Annotations, o.seen.Config)) == 0 {
		return nil
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(networkingv1.SchemeGroupVersion.WithKind("Ingress"))
	live.Namespace, live.Name = o.isvc.Namespace, o.isvc.Name
	err := o.Child(ctx, live)
	o.seen.Ingress = err == nil
	return client.IgnoreNotFound(err)
}

func (o *observer) readKnative(ctx context.Context) error {
	o.seen.Knative = map[string]*unstructured.Unstructured{}
	if o.seen.Mode == config.ModeStandard || !o.seen.Has(observed.KnativeService) {
		return nil
	}
	for _, name := range resolve.DeploymentNames(o.isvc) {
		u := foreign(observed.KnativeService)
		u.SetNamespace(o.isvc.Namespace)
		u.SetName(name)
		if err := o.Child(ctx, u); err == nil {
			o.seen.Knative[name] = u
		} else if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	for name, into := range map[string]*map[string]string{knativeDomain: &o.seen.KnativeDomains, knativeAutoscaler: &o.seen.KnativeAutoscaler} {
		cm, err := config.Content(ctx, o.Reader, knativeNamespace, name)
		if err != nil {
			return err
		}
		if cm != nil {
			*into = cm.Data
		}
	}
	return nil
}

// readRivals reads the services that want an address of this one, in whatever namespace.
func (o *observer) readRivals(ctx context.Context) error {
	mine := ingress.ClaimsOf(o.isvc, o.seen.Config)
	if len(mine) == 0 {
		return nil
	}
	self := client.ObjectKeyFromObject(o.isvc)
	others := engine.MatchingFunc(func(obj client.Object) bool { return client.ObjectKeyFromObject(obj) != self })
	queries := [][]client.ListOption{{others}}
	if values, ok := ingress.ClashQueries(ingress.Outline(o.isvc), o.seen.Config); ok {
		queries = nil
		for _, value := range values {
			queries = append(queries, []client.ListOption{engine.Indexed(value), others})
		}
	}
	for _, query := range queries {
		list := &v1beta1.InferenceServiceList{}
		if err := o.List(ctx, list, query...); err != nil {
			return err
		}
		for i := range list.Items {
			rival := &list.Items[i]
			if others(rival) && ingress.Shared(mine, ingress.ClaimsOf(rival, o.seen.Config)) != "" {
				o.seen.Rivals = append(o.seen.Rivals, *rival)
			}
		}
	}
	return nil
}
