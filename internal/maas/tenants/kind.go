// SPDX-License-Identifier: Apache-2.0

// Package tenants gives each AITenant its place: a namespace, a gateway that no other tenant has, the settings of its services
// and the roles of its administrators; and takes a tenant down in order, its keys first. The Config of the cluster makes the
// first tenant, once, and labels the namespace of the services as the gateways ask.
//
// What runs for a tenant is planned elsewhere, by its MaasTenantConfig. Nothing here calls another system: keys are revoked by a
// Job.
package tenants

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// What the roles say that are made for tenants must be permitted to whoever makes them.
//
// +kubebuilder:rbac:groups=maas.opendatahub.io,resources=maasauthpolicies;maassubscriptions,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=maas.opendatahub.io,resources=maastenantconfigs,verbs=get;update;patch
// +kubebuilder:rbac:groups=maas.opendatahub.io,resources=maasmodelrefs,verbs=get;list;watch
// +kubebuilder:rbac:groups=maas.opendatahub.io,resources=aitenants,verbs=get

// Platform is what the controllers must know besides the settings of all rooms. It may be filled until the manager starts.
type Platform struct {
	settings.Settings
	// Image of the program that revokes keys.
	Image string
	// DeletionTimeout is how long the end of a tenant waits for what is in its way; zero: for ever.
	DeletionTimeout time.Duration
	// Now is the clock.
	Now func() time.Time
}

// EnvDeletionTimeout is the variable that installations set the timeout with.
const EnvDeletionTimeout = "AITENANT_DELETION_TIMEOUT"

// DefaultDeletionTimeout holds where nobody says anything.
const DefaultDeletionTimeout = 10 * time.Minute

// oldFinalizers are those that earlier controllers left.
var oldFinalizers = []string{"maas.opendatahub.io/tenant-finalizer", "maas.opendatahub.io/cleanup"}

// Controllers of AITenant, of its former kind, and of Config.
func Controllers(p *Platform) []engine.Controller {
	return []engine.Controller{
		engine.For[*v1alpha1.AITenant, Seen](Kind{p}, engine.Spec{
			Name: "maas-tenant", Finalizer: naming.FinalizerAITenant, OldFinalizers: oldFinalizers, OldManagers: oldManagers,
			FarReaching: true, ReadyEvent: "TenantActive", NotReadyEvent: "TenantNotActive", Blocked: blocked,
			ApplyFailedReasons: map[string]string{
				"Namespace": "TenantNamespaceFailed", "MaasTenantConfig": "TenantConfigReconcileFailed", "ConfigMap": "GatewayClaimFailed", "Role": "RBACReconcileFailed",
			},
			Children: []engine.ChildKind{
				{Object: &corev1.Namespace{}, MetadataOnly: true},
				{Object: &corev1.ConfigMap{}, MetadataOnly: true},
				{Object: &v1alpha1.MaasTenantConfig{}},
				{Object: &v1alpha1.Tenant{}, MetadataOnly: true},
				{Object: &rbacv1.Role{}},
				{Object: &batchv1.Job{}},
			},
			Inputs: slices.Concat(gateways.Inputs(), tenancy.RouteInputs(), []engine.Input{
				{Object: &corev1.Namespace{}, MetadataOnly: true},
				{Object: &corev1.ConfigMap{}, MetadataOnly: true},
				{Object: &corev1.Secret{}, MetadataOnly: true},
				{Object: &v1alpha1.AITenant{}},
				{Object: &v1alpha1.Tenant{}},
				{Object: &v1alpha1.MaasTenantConfig{}},
			}),
		}),
		engine.For[*v1alpha1.Tenant, struct{}](formers{}, engine.Spec{Name: "maas-tenant-former", OldFinalizers: append(slices.Clone(oldFinalizers), naming.FinalizerTenantConfig)}),
		engine.For[*v1alpha1.Config, ConfigSeen](Configs{p}, engine.Spec{
			Name: "maas-config", NoStatus: true, OldManagers: oldManagers,
			Children: []engine.ChildKind{
				{Object: &corev1.Namespace{}, MetadataOnly: true},
				{Object: &corev1.ConfigMap{}, MetadataOnly: true},
				{Object: &v1alpha1.AITenant{}},
			},
			Inputs: slices.Concat(gateways.Inputs(), []engine.Input{
				{Object: &corev1.Namespace{}, MetadataOnly: true},
				{Object: &corev1.ConfigMap{}, MetadataOnly: true},
				{Object: &v1alpha1.AITenant{}},
				{Object: &v1alpha1.Tenant{}},
			}),
		}),
	}
}

// oldManagers are the field managers of the controllers that existing objects come from.
var oldManagers = []string{naming.OldManager, naming.ManagedBy}

// blocked makes the phase say what the condition says, also of what came to light when children were written.
func blocked(status map[string]any, p *engine.Problem) {
	switch status["phase"] {
	case string(v1alpha1.AITenantTerminating), string(v1alpha1.AITenantFailed), string(v1alpha1.AITenantPending):
		return
	}
	status["phase"] = string(v1alpha1.AITenantFailed)
	if p.Family == engine.Waiting {
		status["phase"] = string(v1alpha1.AITenantPending)
	}
}
