// SPDX-License-Identifier: Apache-2.0

// Package namespaces gives each namespace that is enabled for multi-model serving what its runtimes share: the Service at
// which models are reached, the monitor of their metrics, the constraints that tell the mesh which runtime serves which
// type of model, and the connection to etcd.
//
// It decides about nothing that belongs to one runtime. Nothing of the connection reaches an event or a log.
package namespaces

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/modelmesh/runtimes"
	"github.com/modelplane/modelplane/internal/modelmesh/settings"
)

// oldManager is the field manager of the controller that existing children come from.
const oldManager = "manager"

var serviceMonitor = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}

// Kind is the kind Namespace.
type Kind struct{ source *settings.Source }

var _ engine.Kind[*corev1.Namespace, Seen] = Kind{}

// Controller of namespaces.
func Controller(source *settings.Source) engine.Controller {
	monitor := &unstructured.Unstructured{}
	monitor.SetGroupVersionKind(serviceMonitor)
	return engine.For[*corev1.Namespace, Seen](Kind{source}, engine.Spec{
		Name: "modelmesh-namespace", NoStatus: true, OldManagers: []string{oldManager},
		FormerOwners: []engine.FormerOwner{{Kind: "Service"}}, // of monitors, whatever the Service was called
		Children: []engine.ChildKind{
			{Object: &corev1.Service{}, Trim: kube.TrimService},
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &corev1.Secret{}, MetadataOnly: true},
			{Object: monitor, Optional: true, MetadataOnly: true},
		},
		Inputs: []engine.Input{
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &corev1.Secret{}, MetadataOnly: true},
			{Object: &corev1.Service{}, MetadataOnly: true, Select: ofMesh},
			{Object: &v1alpha1.ServingRuntime{}},
			{Object: &v1alpha1.ClusterServingRuntime{}},
		},
	})
}

// ofMesh selects the Services of the mesh among all of the cluster, whoever made them.
var ofMesh = func() labels.Selector {
	exists, err := labels.NewRequirement(runtimes.LabelService, selection.Exists, nil)
	if err != nil {
		panic(err) // a constant
	}
	return labels.NewSelector().Add(*exists)
}()

// Seen is everything that the decision about a namespace depends on.
type Seen struct {
	settings.Current
	// Enabled tells whether multi-model runtimes run here, and Home whether it is the manager's own namespace.
	Enabled, Home bool
	// HomeName is the manager's own namespace.
	HomeName string
	// Runtimes that run here, by their names.
	Runtimes map[string]*v1alpha1.ServingRuntimeSpec
	// EtcdSecret is the name of the Secret with the connection, Connection what the one of the platform holds, nil without
	// one, and OwnConnection that the namespace has brought a Secret of that name.
	EtcdSecret    string
	Connection    map[string][]byte
	OwnConnection bool
	// Service is the live one, nil without one; Leftovers are those that another controller made under another name.
	Service   *corev1.Service
	Leftovers []metav1.PartialObjectMetadata
	// Monitors tells whether the cluster has a Prometheus operator.
	Monitors bool
}

// Observe implements engine.Kind.
func (k Kind) Observe(ctx context.Context, r engine.Reader, ns *corev1.Namespace) (Seen, error) {
	platform := k.source.Platform()
	seen := Seen{Home: ns.Name == platform.Namespace, HomeName: platform.Namespace}
	if !platform.Enabled(ns) {
		return seen, nil
	}
	var err error
	if seen.Current, err = k.source.Observe(ctx, r); err != nil {
		return seen, err
	}
	if seen.Enabled, err = k.source.Enabled(ctx, r, ns, seen.Current); err != nil || !seen.Enabled {
		return seen, err
	}
	seen.EtcdSecret, seen.Monitors = platform.EtcdSecretName(seen.Settings), r.HasAPI(serviceMonitor.GroupKind())
	if seen.Runtimes, err = runtimesIn(ctx, r, ns.Name); err != nil {
		return seen, err
	}
	if err := seen.connection(ctx, r, ns.Name); err != nil {
		return seen, err
	}
	err = seen.services(ctx, r, ns.Name)
	return seen, err
}

// runtimesIn are those that run in a namespace. One of the namespace takes the place of one of the cluster that has its
// name, also when it does not run.
func runtimesIn(ctx context.Context, r engine.Reader, namespace string) (map[string]*v1alpha1.ServingRuntimeSpec, error) {
	own, shared := &v1alpha1.ServingRuntimeList{}, &v1alpha1.ClusterServingRuntimeList{}
	if err := r.List(ctx, own, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	if err := r.List(ctx, shared, engine.MatchingFunc(multiModel)); err != nil {
		return nil, err
	}
	out := map[string]*v1alpha1.ServingRuntimeSpec{}
	for i := range shared.Items {
		out[shared.Items[i].Name] = &shared.Items[i].Spec
	}
	for i := range own.Items {
		out[own.Items[i].Name] = &own.Items[i].Spec
	}
	maps.DeleteFunc(out, func(_ string, spec *v1alpha1.ServingRuntimeSpec) bool { return !runtimes.Runs(spec) })
	return out, nil
}

func multiModel(obj client.Object) bool {
	rt, ok := obj.(*v1alpha1.ClusterServingRuntime)
	return ok && rt.Spec.MultiModel != nil && *rt.Spec.MultiModel
}

// connection reads how etcd is reached, where runtimes need it.
func (s *Seen) connection(ctx context.Context, r engine.Reader, namespace string) error {
	if len(s.Runtimes) == 0 {
		return nil
	}
	here := &metav1.PartialObjectMetadata{}
	here.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Get(ctx, types.NamespacedName{Namespace: namespace, Name: s.EtcdSecret}, here)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if s.OwnConnection = err == nil && namespace != s.HomeName && settings.OwnConnection(here); s.OwnConnection {
		return nil
	}
	secret := &corev1.Secret{}
	err = r.GetUncached(ctx, types.NamespacedName{Namespace: s.HomeName, Name: s.EtcdSecret}, secret)
	if err == nil {
		s.Connection = secret.Data
	}
	return client.IgnoreNotFound(err)
}

// services looks at the Service, and for those that have had other names.
func (s *Seen) services(ctx context.Context, r engine.Reader, namespace string) error {
	live := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.InferenceServiceName}}
	err := r.Child(ctx, live)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil {
		s.Service = live
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceList"))
	if err := r.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	theirs := runtimes.ServiceLabels("")
	s.Leftovers = slices.DeleteFunc(list.Items, func(o metav1.PartialObjectMetadata) bool {
		owner := metav1.GetControllerOf(&o)
		return o.Name == s.InferenceServiceName || o.Labels[engine.LabelOwner] != "" || o.DeletionTimestamp != nil ||
			o.Labels["app.kubernetes.io/managed-by"] != theirs["app.kubernetes.io/managed-by"] || owner == nil || owner.Kind != "Namespace"
	})
	return nil
}
