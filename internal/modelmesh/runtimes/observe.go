// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelmesh/model"
	"github.com/modelplane/modelplane/internal/modelmesh/settings"
)

// Seen is everything that the decision about a runtime depends on.
type Seen struct {
	settings.Current
	// EtcdSecret is the name of the Secret with the connection to etcd, and Etcd tells whether the platform has it in its own
	// namespace, which is Home.
	EtcdSecret, Home string
	Etcd             bool
	// Places are the namespaces in which it is to run, in the order of their names.
	Places []Place
	// Heir tells whether a runtime of the cluster waits to take the place of this one of a namespace.
	Heir bool
	// Now is the time of the look.
	Now time.Time
}

// Place is one namespace as a runtime finds it.
type Place struct {
	Namespace string
	// Needed tells whether a model there can be served by the runtime.
	Needed bool
	// Claims are the PersistentVolumeClaims that models are read from, in the order of their names.
	Claims []string
	// Etcd tells whether the namespace itself has the connection to etcd, where the platform has none.
	Etcd bool
	// TLS tells whether the Secret with the certificate is there, and CA whether it has an authority for clients.
	TLS, CA bool
	// Child is the Deployment as far as it is ours, without its template; Whole has it, whoever made the Deployment.
	Child, Whole *appsv1.Deployment
	// Taken is set where a runtime of the namespace runs in place of this one of the cluster. What this one made is then left
	// to it: Scaled says with its autoscaler.
	Taken, Scaled bool
}

// heldBy is the name of the runtime of a kind that has the Deployment, empty if none has.
func (p *Place) heldBy(kind string) string {
	if p.Whole == nil {
		return ""
	}
	ref := metav1.GetControllerOf(p.Whole)
	if ref == nil || ref.Kind != kind || schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group != v1alpha1.GroupVersion.Group {
		return ""
	}
	return ref.Name
}

// live is the Deployment, whoever made it; nil if there is none.
func (p *Place) live() *appsv1.Deployment {
	if p.Child != nil {
		return p.Child
	}
	return p.Whole
}

// ofNamespace is the kind ServingRuntime.
type ofNamespace struct{ *Domain }

var (
	_ engine.Kind[*v1alpha1.ServingRuntime, Seen]     = ofNamespace{}
	_ engine.Teardown[*v1alpha1.ServingRuntime, Seen] = ofNamespace{}
)

// Observe implements engine.Kind.
func (k ofNamespace) Observe(ctx context.Context, r engine.Reader, rt *v1alpha1.ServingRuntime) (Seen, error) {
	if !Runs(&rt.Spec) {
		return Seen{}, nil
	}
	o, err := k.begin(ctx, r, viewOf(rt))
	if err != nil {
		return o.seen, err
	}
	if err := o.heir(ctx); err != nil {
		return o.seen, err
	}
	ns := head("Namespace")
	if err := r.Get(ctx, types.NamespacedName{Name: rt.Namespace}, ns); err != nil {
		return o.seen, client.IgnoreNotFound(err) // as long as it is not known, nothing is removed
	}
	if enabled, err := k.source.Enabled(ctx, r, ns, o.seen.Current); err != nil || !enabled {
		return o.seen, err
	}
	err = o.place(ctx, rt.Namespace)
	return o.seen, err
}

// heir looks for the runtime of the cluster that has the name of one of a namespace.
func (o *observer) heir(ctx context.Context) error {
	rt := &v1alpha1.ClusterServingRuntime{}
	err := o.Get(ctx, types.NamespacedName{Name: o.runtime.name}, rt)
	o.seen.Heir = err == nil && rt.DeletionTimestamp == nil && Runs(&rt.Spec)
	return client.IgnoreNotFound(err)
}

// ofCluster is the kind ClusterServingRuntime.
type ofCluster struct{ *Domain }

var _ engine.Kind[*v1alpha1.ClusterServingRuntime, Seen] = ofCluster{}

// Observe implements engine.Kind.
func (k ofCluster) Observe(ctx context.Context, r engine.Reader, rt *v1alpha1.ClusterServingRuntime) (Seen, error) {
	if !Runs(&rt.Spec) {
		return Seen{}, nil
	}
	o, err := k.begin(ctx, r, viewOf(rt))
	if err != nil {
		return o.seen, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	platform := k.source.Platform()
	if err := r.List(ctx, list, engine.MatchingFunc(func(ns client.Object) bool { return platform.Enabled(ns) })); err != nil {
		return o.seen, err
	}
	slices.SortFunc(list.Items, func(a, b metav1.PartialObjectMetadata) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		if enabled, err := k.source.Enabled(ctx, r, &list.Items[i], o.seen.Current); err != nil {
			return o.seen, err
		} else if !enabled {
			continue
		}
		taken, err := o.taken(ctx, list.Items[i].Name)
		if err != nil {
			return o.seen, err
		}
		if taken {
			continue
		}
		if err := o.place(ctx, list.Items[i].Name); err != nil {
			return o.seen, err
		}
	}
	return o.seen, nil
}

// taken tells whether a runtime of a namespace takes the place of one of the cluster that has its name. One that goes gives it
// back.
func (o *observer) taken(ctx context.Context, namespace string) (bool, error) {
	own := &v1alpha1.ServingRuntime{}
	err := o.Get(ctx, types.NamespacedName{Namespace: namespace, Name: o.runtime.name}, own)
	if err != nil || own.DeletionTimestamp != nil {
		return false, client.IgnoreNotFound(err)
	}
	if Runs(&own.Spec) {
		o.seen.Places = append(o.seen.Places, Place{Namespace: namespace, Taken: true, Scaled: autoscaled(own.Annotations)})
	}
	return true, nil
}

// observer looks at one runtime.
type observer struct {
	engine.Reader
	runtime *view
	labels  []string
	seen    Seen
}

func (d *Domain) begin(ctx context.Context, r engine.Reader, rt *view) (*observer, error) {
	o := &observer{Reader: r, runtime: rt, seen: Seen{Now: d.now()}}
	var err error
	if o.seen.Current, err = d.source.Observe(ctx, r); err != nil {
		return o, err
	}
	o.seen.EtcdSecret, o.seen.Home = d.source.Platform().EtcdSecretName(o.seen.Settings), d.source.Platform().Namespace
	o.labels = model.Labels(rt.name, rt.spec, o.seen.RESTProxy.Enabled)
	o.seen.Etcd, err = o.exists(ctx, "Secret", o.seen.Home, o.seen.EtcdSecret)
	return o, err
}

func (o *observer) exists(ctx context.Context, kind, namespace, name string) (bool, error) {
	err := o.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, head(kind))
	return err == nil, client.IgnoreNotFound(err)
}

// place looks at a namespace.
func (o *observer) place(ctx context.Context, namespace string) error {
	p := Place{Namespace: namespace}
	claims := map[string]bool{}
	if err := o.stored(ctx, namespace, claims); err != nil {
		return err
	}
	if err := o.models(ctx, &p, claims); err != nil {
		return err
	}
	p.Claims = slices.Sorted(maps.Keys(claims))
	if name := o.seen.TLS.SecretName; name != "" {
		secret := &corev1.Secret{}
		err := o.GetUncached(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		p.TLS, p.CA = err == nil, len(secret.Data["ca.crt"]) > 0
	}
	if err := o.workload(ctx, &p); err != nil {
		return err
	}
	if !o.seen.Etcd {
		var err error
		if p.Etcd, err = o.exists(ctx, "Secret", namespace, o.seen.EtcdSecret); err != nil {
			return err
		}
	}
	o.seen.Places = append(o.seen.Places, p)
	return nil
}

// stored finds the claims that the storage Secret lists. Nothing else of it is kept.
func (o *observer) stored(ctx context.Context, namespace string, claims map[string]bool) error {
	secret := &corev1.Secret{}
	err := o.GetUncached(ctx, types.NamespacedName{Namespace: namespace, Name: o.seen.StorageSecretName}, secret)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	for _, entry := range secret.Data {
		var store struct{ Type, Name string }
		if json.Unmarshal(entry, &store) == nil && store.Type == "pvc" && store.Name != "" {
			claims[store.Name] = true
		}
	}
	return nil
}

// models finds out whether there is a model that the runtime can serve, and which claims such models are read from.
func (o *observer) models(ctx context.Context, p *Place, claims map[string]bool) error {
	in, concerned := client.InNamespace(p.Namespace), engine.MatchingFunc(supportedBy(o.labels))
	predictors, services := &v1alpha1.PredictorList{}, &v1beta1.InferenceServiceList{}
	if err := o.List(ctx, predictors, in, concerned); err != nil {
		return err
	}
	if err := o.List(ctx, services, in, concerned); err != nil {
		return err
	}
	var found []model.Model
	for i := range predictors.Items {
		found = append(found, modelsOf(&predictors.Items[i])...)
	}
	for i := range services.Items {
		found = append(found, modelsOf(&services.Items[i])...)
	}
	for _, m := range found {
		if !model.Supports(o.labels, m.Type) {
			continue
		}
		p.Needed = true
		claim := m.Claim()
		if claim == "" || claims[claim] || !o.seen.AllowAnyPVC {
			continue
		}
		there, err := o.exists(ctx, "PersistentVolumeClaim", p.Namespace, claim)
		if err != nil {
			return err
		}
		if there { // pods would wait for one that is not
			claims[claim] = true
		}
	}
	return nil
}

// supportedBy tells which models concern a runtime with these labels.
func supportedBy(labels []string) func(client.Object) bool {
	return func(obj client.Object) bool {
		return slices.ContainsFunc(modelsOf(obj), func(m model.Model) bool { return model.Supports(labels, m.Type) })
	}
}

// modelsOf is the model that an object asks for, if it does and does not go.
func modelsOf(obj client.Object) []model.Model {
	if obj.GetDeletionTimestamp() != nil {
		return nil
	}
	var m model.Model
	switch o := obj.(type) {
	case *v1alpha1.Predictor:
		m, _ = model.OfPredictor(o)
	case *v1beta1.InferenceService:
		if !model.InMesh(o) {
			return nil
		}
		m, _ = model.OfService(o)
	}
	if m.Type == "" {
		return nil
	}
	return []model.Model{m}
}

// workload reads the Deployment as a child, which is what our own writes are compared with, and as an input, which has the
// pods' template.
func (o *observer) workload(ctx context.Context, p *Place) error {
	child, whole := &appsv1.Deployment{}, &appsv1.Deployment{}
	child.Namespace, child.Name = p.Namespace, o.seen.InferenceServiceName+"-"+o.runtime.name
	key := client.ObjectKeyFromObject(child)
	err := o.Child(ctx, child)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil {
		p.Child = child
	}
	err = o.Get(ctx, key, whole)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil && (p.Child == nil || p.Child.UID == whole.UID) {
		p.Whole = whole
	}
	return nil
}

func head(kind string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return m
}
