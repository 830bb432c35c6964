// SPDX-License-Identifier: Apache-2.0

// Package platform runs the services of a tenant, as its MaasTenantConfig says: maas-api with its keys, and the payload processor
// behind the gateway, each with its account, certificate, route, network policy and monitor.
//
// It decides neither who may use a model nor who enforces that. Nothing in a plan is secret but certificates, and these only in
// their Secrets.
package platform

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// What the roles say that are made for the services must be permitted to whoever makes them.
//
// +kubebuilder:rbac:groups=maas.opendatahub.io,resources=externalmodels;maasmodelrefs;maassubscriptions;maasauthpolicies;aitenants;maastenantconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=inference.opendatahub.io,resources=externalmodels;externalproviders,verbs=get;list;watch
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=gateways;httproutes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets;configmaps;services,verbs=get;list;watch
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Platform is what the controller must know besides the settings of all rooms. It may be filled until the manager starts.
type Platform struct {
	settings.Settings
	// Image of all services.
	Image string
	// Pairs makes certificates; nil without a cluster, where nothing secret is made.
	Pairs *certs.Pairs
	// Now is the clock.
	Now func() time.Time
}

// Annotations of a MaasTenantConfig.
const (
	AnnotationManagement        = "component.opendatahub.io/management-state"
	AnnotationAPIReplicas       = "maas.opendatahub.io/maas-api-replicas"
	AnnotationProcessorReplicas = "maas.opendatahub.io/payload-processing-replicas"
)

// removed is the state of a tenant whose services are not wanted.
const removed = "Removed"

// Optional APIs of monitoring and of Kuadrant's extensions.
var (
	podMonitor      = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"}
	telemetryPolicy = schema.GroupVersionKind{Group: "extensions.kuadrant.io", Version: "v1alpha1", Kind: "TelemetryPolicy"}
)

// Controller of MaasTenantConfig.
func Controller(p *Platform) engine.Controller {
	foreign := func(gvk schema.GroupVersionKind, plural string) engine.ChildKind {
		return engine.ChildKind{Object: gateways.Foreign(gvk), Resource: plural, Optional: true, MetadataOnly: true}
	}
	return engine.For[*v1alpha1.MaasTenantConfig, Seen](Kind{p}, engine.Spec{
		Name: "maas-platform", Finalizer: naming.FinalizerTenantConfig, OldManagers: []string{naming.OldManager, naming.ManagedBy},
		FarReaching: true, ReadyEvent: "PlatformReady", NotReadyEvent: "PlatformNotReady", OptOut: naming.Managed, Blocked: blocked, SetsLabels: true,
		FormerOwners:       []engine.FormerOwner{{Group: v1alpha1.GroupVersion.Group, Kind: "Config"}},
		ApplyFailedReasons: map[string]string{"": "PlatformReconcileFailed"},
		Children: []engine.ChildKind{
			{Object: &appsv1.Deployment{}, Trim: kube.TrimDeployment},
			{Object: &corev1.Service{}, Trim: kube.TrimService},
			{Object: &corev1.ServiceAccount{}, MetadataOnly: true},
			{Object: &corev1.ConfigMap{}, MetadataOnly: true},
			{Object: &corev1.Secret{}, MetadataOnly: true},
			{Object: &rbacv1.Role{}},
			{Object: &rbacv1.RoleBinding{}},
			{Object: &rbacv1.ClusterRole{}, MetadataOnly: true},
			{Object: &rbacv1.ClusterRoleBinding{}, MetadataOnly: true},
			{Object: &batchv1.CronJob{}, MetadataOnly: true},
			{Object: &networkingv1.NetworkPolicy{}, MetadataOnly: true},
			{Object: &autoscalingv2.HorizontalPodAutoscaler{}, MetadataOnly: true},
			{Object: &v1alpha1.MaaSSubscription{}, MetadataOnly: true},
			{Object: &v1alpha1.MaaSAuthPolicy{}, MetadataOnly: true, Resource: "maasauthpolicies"},
			foreign(gateways.HTTPRoute, ""),
			foreign(gateways.DestinationRule, ""),
			foreign(gateways.EnvoyFilter, ""),
			foreign(gateways.Telemetry, "telemetries"),
			foreign(gateways.BackendTLSPolicy, gateways.BackendTLSPolicyResource),
			foreign(gateways.EnvoyExtensionPolicy, gateways.ExtensionPolicyResource),
			foreign(podMonitor, ""),
			foreign(telemetryPolicy, "telemetrypolicies"),
		},
		Inputs: slices.Concat(gateways.Inputs(), tenancy.RouteInputs(), []engine.Input{
			{Object: &v1alpha1.Config{}},
			{Object: &v1alpha1.AITenant{}},
			{Object: &v1alpha1.MaaSSubscription{}},
			{Object: &v1alpha1.MaaSAuthPolicy{}, Resource: "maasauthpolicies"},
			{Object: &corev1.Secret{}, MetadataOnly: true},
			tenancy.HomeInput(),
			tenancy.ClaimInput(),
			{Object: kuadrant.New(kuadrant.AuthPolicy), Optional: true, Index: kuadrant.ByTarget},
			{Object: kuadrant.New(kuadrant.TokenRateLimitPolicy), Optional: true, Index: kuadrant.ByTarget},
			{Object: gateways.Foreign(gateways.EnvoyExtensionPolicy), Resource: gateways.ExtensionPolicyResource, Optional: true, Trim: trimExtensionPolicy},
		}),
	})
}

// blocked makes the phase say what the condition says, also of what came to light when children were written.
func blocked(status map[string]any, _ *engine.Problem) {
	if status["phase"] == string(v1alpha1.TenantActive) {
		status["phase"] = string(v1alpha1.TenantFailed)
	}
}
