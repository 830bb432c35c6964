// SPDX-License-Identifier: Apache-2.0

// Package modelregistry turns a ModelRegistry into a running registry server with its database connection, or with a
// database of its own. It decides; reading and writing the cluster is the engine's. The server itself is package server,
// and never part of the manager's work: nothing here opens a database.
package modelregistry

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// Annotations with which a user asks for what the spec has no field for.
const (
	// AnnotationDeleteData with the value "true" lets the generated database, or the file of an embedded one, go with
	// the registry.
	AnnotationDeleteData = "modelplane.dev/delete-data"
	// AnnotationStorageSize and AnnotationStorageClass are those of the claim that a database of the registry's own has.
	AnnotationStorageSize  = "modelplane.dev/storage-size"
	AnnotationStorageClass = "modelplane.dev/storage-class"
	// AnnotationDatabase with the value "sqlite" keeps the data in a file, where no database is named.
	AnnotationDatabase = "modelplane.dev/database"
	// AnnotationSwitchDatabase names the database that an update may switch to.
	AnnotationSwitchDatabase = "modelplane.dev/switch-database"
	// AnnotationReplicas is the number of pods of the server; one if absent.
	AnnotationReplicas = "modelplane.dev/replicas"
	// AnnotationKeepPods with the value "false" makes pods anew that another operator left.
	AnnotationKeepPods = platform.AnnotationKeepPods
)

// group is an API of OpenShift that only registries use.
var group = schema.GroupVersionKind{Group: "user.openshift.io", Version: "v1", Kind: "Group"}

// What the roles say that are made for users and servers must be permitted to whoever makes them.
//
// +kubebuilder:rbac:groups="",resources=services;endpoints,verbs=get
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=system:auth-delegator,verbs=bind
// +kubebuilder:rbac:groups=route.openshift.io,resources=routes/custom-host,verbs=create
//
// Former versions of the kind are struck off its definition when no object is stored in them any more.
//
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions/status,resourceNames=modelregistries.modelregistry.opendatahub.io,verbs=patch

// Domain is the domain.
type Domain struct {
	settings Settings
	pairs    *certs.Pairs
	secrets  *passwords
	now      func() time.Time
}

// New prepares the domain as it is without a cluster: nothing secret is made.
func New() *Domain {
	return &Domain{now: time.Now, settings: Settings{Namespace: "default", OwnImage: "modelplane:dev", NotOpenShift: true}.withDefaults()}
}

// WithSettings takes other settings.
func (r *Domain) WithSettings(settings Settings) *Domain {
	r.settings = settings.withDefaults()
	return r
}

// WithPlatform takes the settings of a platform, and makes passwords and certificates from now on.
func (r *Domain) WithPlatform(settings Settings) *Domain {
	r.pairs, r.secrets = &certs.Pairs{}, &passwords{}
	return r.WithSettings(settings)
}

// Controllers of the domain.
func (r *Domain) Controllers() []engine.Controller { return []engine.Controller{r.registries()} }

// registries is the kind ModelRegistry.
type registries struct{ *Domain }

var _ engine.Kind[*v1beta1.ModelRegistry, Seen] = registries{}

// finalizer is the one that other operators of these objects know too.
const finalizer = "modelregistry.opendatahub.io/finalizer"

// oldManager is the field manager of the operator that existing children come from.
const oldManager = "manager"

func (r *Domain) registries() engine.Controller {
	return engine.For[*v1beta1.ModelRegistry, Seen](registries{r}, engine.Spec{
		Name:          "modelregistry",
		Ready:         conditionAvailable,
		ReadyEvent:    "RegistryAvailable",
		NotReadyEvent: "RegistryUnavailable",
		Finalizer:     finalizer,
		OldManagers:   []string{oldManager},
		FarReaching:   true,
		Children: []engine.ChildKind{
			{Object: &appsv1.Deployment{}, Trim: kube.TrimDeployment},
			{Object: &corev1.Service{}, Trim: kube.TrimService},
			{Object: &corev1.ServiceAccount{}, MetadataOnly: true},
			{Object: &corev1.PersistentVolumeClaim{}},
			{Object: &corev1.Secret{}, MetadataOnly: true},
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &networkingv1.NetworkPolicy{}, MetadataOnly: true},
			{Object: &networkingv1.Ingress{}, MetadataOnly: true},
			{Object: &rbacv1.Role{}},
			{Object: &rbacv1.RoleBinding{}},
			{Object: &rbacv1.ClusterRoleBinding{}, MetadataOnly: true},
			{Object: platform.Foreign(platform.Route), Optional: true},
			{Object: platform.Foreign(group), Optional: true, MetadataOnly: true},
			{Object: platform.Foreign(platform.HTTPRoute), Optional: true, MetadataOnly: true},
			{Object: platform.Foreign(platform.ReferenceGrant), Optional: true, MetadataOnly: true},
			{Object: platform.Foreign(platform.ServiceMonitor), Optional: true, MetadataOnly: true},
		},
		Inputs: []engine.Input{
			{Object: &corev1.Secret{}, MetadataOnly: true},
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &corev1.PersistentVolumeClaim{}, Select: ofRegistries},
			{Object: &appsv1.Deployment{}, Select: withCatalogs},
			{Object: &corev1.Service{}, MetadataOnly: true, Select: ofCatalogs},
			{Object: &networkingv1.NetworkPolicy{}, MetadataOnly: true, Select: ofCatalogs},
			{Object: platform.Foreign(platform.Route), Optional: true, MetadataOnly: true, Select: ofCatalogs},
			{Object: &corev1.Pod{}, Select: ofRegistries, Trim: kube.TrimPod},
			{Object: &discoveryv1.EndpointSlice{}, Select: ofRegistries, Trim: platform.TrimSlice},
			{Object: &rbacv1.ClusterRoleBinding{}, MetadataOnly: true, Select: ofRegistries},
			{Object: platform.Foreign(group), Optional: true, MetadataOnly: true},
			{Object: platform.Foreign(platform.HTTPRoute), Optional: true, MetadataOnly: true},
			{Object: platform.Foreign(platform.ReferenceGrant), Optional: true, MetadataOnly: true},
			{Object: platform.Foreign(platform.ClusterIngress), Optional: true},
		},
	})
}

// ofRegistries selects what belongs to registries and their databases, among everything of a kind in the cluster.
var ofRegistries = platform.AnyOf(labelComponent, component, databaseComponent)

// ofCatalogs selects what belongs to catalogs, of which each registry once had one, and withCatalogs that besides.
var (
	ofCatalogs   = platform.AnyOf(labelComponent, catalogComponent)
	withCatalogs = platform.AnyOf(labelComponent, component, databaseComponent, catalogComponent)
)

// Observe implements engine.Kind.
func (s registries) Observe(ctx context.Context, r engine.Reader, m *v1beta1.ModelRegistry) (Seen, error) {
	o := &observer{Domain: s.Domain, Reader: r, registry: m}
	return o.observe(ctx)
}

// Plan implements engine.Kind.
func (s registries) Plan(m *v1beta1.ModelRegistry, seen Seen) engine.Plan {
	return newPlanner(m, &seen).plan()
}
