// SPDX-License-Identifier: Apache-2.0

// Package aihub turns a Catalog into a running catalog server, reachable from inside and outside of the cluster, that shows
// what the platform ships, what people list in ConfigMaps, and nothing else. It decides; reading and writing the cluster is
// the engine's. The server is package catalog.
//
// ConfigMaps that belong to people are made once, empty, and never touched again.
package aihub

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/aihub/v1alpha1"
	componentsv1alpha1 "github.com/modelplane/modelplane/api/components/v1alpha1"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// auth is an API of the platform that says who administers it.
var auth = schema.GroupVersionKind{Group: "services.platform.opendatahub.io", Version: "v1alpha1", Kind: "Auth"}

// What the roles say that are made for users and for the server must be permitted to whoever makes them.
//
// +kubebuilder:rbac:groups="",resources=services;endpoints,verbs=get
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=system:auth-delegator,verbs=bind
// +kubebuilder:rbac:groups=route.openshift.io,resources=routes/custom-host,verbs=create

// Domain looks after Catalogs.
type Domain struct {
	settings  Settings
	pairs     *certs.Pairs
	passwords *passwords
	now       func() time.Time
	// module: an AIHub says where things are.
	module bool
}

// New prepares it as it is without a cluster: nothing secret is made.
func New() *Domain {
	return &Domain{now: time.Now, settings: Settings{Namespace: "default", OwnImage: "modelplane:dev", NotOpenShift: true}.withDefaults()}
}

// WithSettings takes other settings.
func (d *Domain) WithSettings(settings Settings) *Domain {
	d.settings = settings.withDefaults()
	return d
}

// WithPlatform takes the settings of a platform, and makes passwords and certificates from now on.
func (d *Domain) WithPlatform(settings Settings) *Domain {
	d.pairs, d.passwords = &certs.Pairs{}, &passwords{}
	return d.WithSettings(settings)
}

// AsModule lets the AIHub of a platform say where things are.
func (d *Domain) AsModule() { d.module = true }

// catalogs is the kind Catalog.
type catalogs struct{ *Domain }

var _ engine.Kind[*v1alpha1.Catalog, Seen] = catalogs{}

// Names by which other operators and tools know these objects.
const (
	finalizer  = "catalog.aihub.opendatahub.io/finalizer"
	oldManager = "manager"
)

// Controllers of the room.
func (d *Domain) Controllers() []engine.Controller {
	return []engine.Controller{engine.For[*v1alpha1.Catalog, Seen](catalogs{d}, engine.Spec{
		Name:          "catalog",
		Ready:         conditionAvailable,
		ReadyEvent:    "CatalogAvailable",
		NotReadyEvent: "CatalogUnavailable",
		Finalizer:     finalizer,
		OldManagers:   []string{oldManager},
		FormerOwners:  formerOwners,
		FarReaching:   true,
		Workers:       1,
		Children: []engine.ChildKind{
			{Object: &appsv1.Deployment{}, Trim: kube.TrimDeployment},
			{Object: &corev1.Service{}, Trim: kube.TrimService},
			{Object: &corev1.ServiceAccount{}, MetadataOnly: true},
			{Object: &corev1.Secret{}, MetadataOnly: true},
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &corev1.PersistentVolumeClaim{}}, // of a database of before
			{Object: &networkingv1.NetworkPolicy{}, MetadataOnly: true},
			{Object: &networkingv1.Ingress{}, MetadataOnly: true},
			{Object: &rbacv1.Role{}},
			{Object: &rbacv1.RoleBinding{}},
			{Object: &rbacv1.ClusterRoleBinding{}, MetadataOnly: true},
			{Object: platform.Foreign(platform.Route), Optional: true},
			{Object: platform.Foreign(platform.HTTPRoute), Optional: true, MetadataOnly: true},
			{Object: platform.Foreign(platform.ReferenceGrant), Optional: true, MetadataOnly: true},
			{Object: platform.Foreign(platform.ServiceMonitor), Optional: true, MetadataOnly: true},
		},
		Inputs: []engine.Input{
			{Object: &corev1.Secret{}, MetadataOnly: true},
			{Object: &corev1.ConfigMap{}, Select: labelled, Trim: trimSource},
			{Object: &appsv1.Deployment{}, Select: ofApp},
			{Object: &corev1.Pod{}, Select: ofCatalogs, Trim: kube.TrimPod},
			{Object: &discoveryv1.EndpointSlice{}, Select: ofCatalogs, Trim: platform.TrimSlice},
			{Object: &componentsv1alpha1.AIHub{}},
			{Object: platform.Foreign(platform.HTTPRoute), Optional: true, Select: ofCatalogs},
			{Object: platform.Foreign(platform.ClusterIngress), Optional: true},
			{Object: platform.Foreign(auth), Optional: true},
		},
	})}
}

// labelled selects the ConfigMaps that people want to have in the catalog.
var labelled = labels.SelectorFromSet(labels.Set{labelSource: "true"})

// ofApp selects Deployments of catalogs, also those of earlier operators.
var ofApp = labels.SelectorFromSet(labels.Set{labelApp: name})

// ofCatalogs selects what belongs to catalogs and their databases, among everything of a kind in the cluster.
var ofCatalogs = platform.AnyOf(labelComponent, name, databaseName)

// trimSource keeps of a ConfigMap which keys it has: the server reads and follows the rest by itself.
func trimSource(obj client.Object) {
	cm, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return
	}
	for key := range cm.Data {
		cm.Data[key] = ""
	}
	cm.BinaryData, cm.Annotations = nil, nil
}

// Observe implements engine.Kind.
func (c catalogs) Observe(ctx context.Context, r engine.Reader, obj *v1alpha1.Catalog) (Seen, error) {
	o := &observer{Domain: c.Domain, Reader: r, catalog: obj}
	return o.observe(ctx)
}

// Plan implements engine.Kind.
func (c catalogs) Plan(obj *v1alpha1.Catalog, seen Seen) engine.Plan {
	return newPlanner(obj, &seen).plan()
}
