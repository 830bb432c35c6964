// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/naming"
)

// The order in which a tenant gets what it has.
const (
	stageClaim = iota
	stageNamespace
	stageConfig
	stageRoles
)

// Plan implements engine.Kind.
func (k Kind) Plan(obj *v1alpha1.AITenant, seen Seen) engine.Plan {
	if p := k.invalid(obj, seen); p != nil {
		return engine.Plan{KeepChildren: true, Problem: p, Status: k.status(obj, seen, v1alpha1.AITenantFailed)}
	}
	plan := engine.Plan{Children: k.children(obj, seen)}
	if p := pending(seen, k.namespaceOf(obj)); p != nil {
		plan.Problem = p
		plan.KeepChildren = p.Reason != "TenantConfigNotReady" && p.Reason != "GatewayCheckFailed" || p.Reason == "GatewayCheckFailed" && obj.Name != naming.DefaultTenant
		phase := v1alpha1.AITenantPending
		if p.Reason == "GatewayCheckFailed" {
			phase = v1alpha1.AITenantFailed
		}
		plan.Status = k.status(obj, seen, phase)
		return plan
	}
	status := k.status(obj, seen, v1alpha1.AITenantActive)
	status.Conditions = append([]metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Reconciled",
		Message: fmt.Sprintf("The tenant has the namespace %s and the gateway %s.", status.TenantNamespace, seen.Gateway.Key)}}, status.Conditions...)
	plan.Status = status
	return plan
}

// invalid is what only a person mends.
func (k Kind) invalid(obj *v1alpha1.AITenant, seen Seen) *engine.Problem {
	switch {
	case obj.Namespace != k.TenantNamespace:
		return engine.MustChange("InvalidPlacement", "AITenants are looked after in namespace %s only. Create it there, and delete this one.", k.TenantNamespace)
	case k.lost(obj, seen) != "":
		return engine.MustChange("LegacyTenantMigrationFailed", "Tenant %s in namespace %s has %s, which the AITenant does not have. Copy it to the AITenant's spec, or delete the Tenant.",
			v1alpha1.TenantName, k.namespaceOf(obj), k.lost(obj, seen))
	case seen.Holder != "" && seen.Holder != obj.Name:
		return engine.MustChange("GatewayClaimFailed", "Gateway %s belongs to the AITenant %s already. Give this one another in spec.gateway.name.", seen.Gateway.Key, seen.Holder)
	case seen.Owner != "" && seen.Owner != obj.Name:
		return engine.MustChange("TenantNamespaceFailed", "Namespace %s belongs to the AITenant %s already. Rename one of the tenants.", k.namespaceOf(obj), seen.Owner)
	}
	return nil
}

// lost is a setting of the former Tenant that would be lost with it: it has no place but in the AITenant's own spec, which is
// its author's.
func (k Kind) lost(obj *v1alpha1.AITenant, seen Seen) string {
	if seen.Former == nil {
		return ""
	}
	spec := seen.Former.Spec
	if ref := spec.GatewayRef; ref != nil && ref.Name != "" && ref.Name != k.gatewayName(obj) && (obj.Spec.Gateway == nil || obj.Spec.Gateway.Name == "") {
		return "the gateway " + ref.Name
	}
	if spec.ExternalOIDC != nil && obj.Spec.OIDC == nil {
		return "the identity provider " + spec.ExternalOIDC.IssuerURL
	}
	return ""
}

// pending is what the tenant waits for.
func pending(seen Seen, namespace string) *engine.Problem {
	switch {
	case seen.Namespace != nil && seen.Namespace.DeletionTimestamp != nil:
		return engine.WaitFor("TenantNamespacePending", "Namespace %s is being deleted. The tenant gets a new one when it is gone.", namespace)
	case !seen.Gateway.Exists:
		return engine.WaitFor("GatewayCheckFailed", "Gateway %s does not exist. Create it, or name another one in spec.gateway.name.", seen.Gateway.Key)
	case seen.Config == nil:
		return engine.WaitFor("TenantConfigNotReady", "MaasTenantConfig %s in namespace %s is being made. If this stays, look at the events of the AITenant.", v1alpha1.MaasTenantConfigName, namespace)
	}
	c := meta.FindStatusCondition(seen.Config.Status.Conditions, "Ready")
	if c == nil {
		return engine.WaitFor("TenantConfigNotReady", "MaasTenantConfig %s in namespace %s has not said yet how it is.", seen.Config.Name, namespace)
	}
	if c.Status != metav1.ConditionTrue {
		return engine.WaitFor("TenantConfigNotReady", "MaasTenantConfig %s in namespace %s is not ready: %s", seen.Config.Name, namespace, c.Message)
	}
	return nil
}

// status says what the tenant has; the engine adds what is wrong.
func (k Kind) status(obj *v1alpha1.AITenant, seen Seen, phase v1alpha1.AITenantPhase) *v1alpha1.AITenantStatus {
	out := &v1alpha1.AITenantStatus{Phase: phase}
	if obj.Namespace != k.TenantNamespace {
		return out
	}
	out.GatewayRef = &v1alpha1.GatewayRef{Namespace: k.GatewayNamespace, Name: k.gatewayName(obj)}
	if seen.Namespace != nil {
		out.TenantNamespace = k.namespaceOf(obj)
	}
	if d := seen.Disagree; d != nil {
		out.Conditions = append(out.Conditions, metav1.Condition{Type: "Degraded", Status: metav1.ConditionTrue, Reason: "InfraNamespaceLabelFailed",
			Message: fmt.Sprintf("The gateway takes routes of namespaces with %s=%s, but namespace %s has %s=%s for the gateway of the AITenant %s. Change the allowedRoutes of one of the gateways.",
				d.Label, d.Mine, k.InfraNamespace, d.Label, d.Theirs, d.Tenant)})
	}
	return out
}

// children are what a tenant has.
func (k Kind) children(obj *v1alpha1.AITenant, seen Seen) []engine.Child {
	out := []engine.Child{
		k.claim(obj, seen),
		{Object: k.namespace(obj, true), Adopt: true, Retain: true, Stage: stageNamespace},
		{Object: k.config(obj, seen), Adopt: true, Initial: []string{"spec"}, Stage: stageConfig},
	}
	out = append(out, k.roles(obj)...)
	if f := seen.Former; f != nil && seen.Config != nil && f.DeletionTimestamp == nil {
		gone := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.Name, UID: f.UID}}
		out = append(out, engine.Child{Object: gone, Delete: true, Stage: stageRoles})
	}
	return out
}

// claimName is the name of what a gateway is claimed with.
func claimName(gateway client.ObjectKey) string {
	const digits = 32
	sum := sha256.Sum256([]byte(gateway.Namespace + "/" + gateway.Name))
	return "gateway-claim-" + hex.EncodeToString(sum[:])[:digits]
}

// claim makes the gateway this tenant's: of two that ask for one gateway, the API server lets only one have the name.
func (k Kind) claim(obj *v1alpha1.AITenant, seen Seen) engine.Child {
	c := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.TenantNamespace, Name: claimName(seen.Gateway.Key), Labels: map[string]string{
			"maas.opendatahub.io/gateway-claim": "true", naming.LabelTenantName: obj.Name, naming.LabelManagedBy: naming.ManagedBy}},
		Data: map[string]string{"gatewayNamespace": seen.Gateway.Key.Namespace, "gatewayName": seen.Gateway.Key.Name, "aiTenantName": obj.Name, "aiTenantNamespace": obj.Namespace},
	}
	out := engine.Child{Object: c, Stage: stageClaim}
	if seen.Claim != nil && (seen.Holder == obj.Name || seen.Holder == "") {
		c.UID, out.Adopt = seen.Claim.UID, true // ours, or of a tenant that is gone
	}
	return out
}

// namespace is the tenant's own. It outlives the tenant, without what marks it as a tenant's.
func (k Kind) namespace(obj *v1alpha1.AITenant, marked bool) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: k.namespaceOf(obj)}}
	if marked {
		ns.Labels = map[string]string{
			naming.LabelTenantName: obj.Name, naming.LabelTenantNamespace: ns.Name, naming.LabelManagedByTenant: "true",
			naming.LabelGatewayAccess: "true", naming.LabelTenant: obj.Name,
		}
		ns.Annotations = ofTenant(obj)
	}
	return ns
}

// ofTenant are the annotations by which tools find the tenant that an object belongs to.
func ofTenant(obj *v1alpha1.AITenant) map[string]string {
	return map[string]string{naming.AnnotationTenantName: obj.Name, naming.AnnotationTenantNamespace: obj.Namespace, naming.AnnotationCreatedBy: "true"}
}

// config is the settings of the tenant, which it may change itself.
func (k Kind) config(obj *v1alpha1.AITenant, seen Seen) *v1alpha1.MaasTenantConfig {
	c := &v1alpha1.MaasTenantConfig{ObjectMeta: metav1.ObjectMeta{
		Namespace: k.namespaceOf(obj), Name: v1alpha1.MaasTenantConfigName, Annotations: ofTenant(obj),
		Labels: map[string]string{naming.LabelTenantName: obj.Name, naming.LabelManagedByTenant: "true"},
	}}
	if seen.Former != nil {
		c.Spec.TenantSettings = *seen.Former.Spec.TenantSettings.DeepCopy()
	}
	return c
}

// roles are what administrators of the tenant may be bound to.
func (k Kind) roles(obj *v1alpha1.AITenant) []engine.Child {
	group := []string{v1alpha1.GroupVersion.Group}
	labels := map[string]string{naming.LabelTenantName: obj.Name, naming.LabelManagedBy: naming.ManagedBy}
	admin := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.namespaceOf(obj), Name: "aitenant-" + obj.Name + "-tenant-admin", Labels: labels},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: group, Resources: []string{"maasauthpolicies", "maassubscriptions"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
			{APIGroups: group, Resources: []string{"maastenantconfigs"}, ResourceNames: []string{v1alpha1.MaasTenantConfigName}, Verbs: []string{"get", "update", "patch"}},
			{APIGroups: group, Resources: []string{"maasmodelrefs"}, Verbs: []string{"get", "list", "watch"}},
		},
	}
	object := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.TenantNamespace, Name: "aitenant-" + obj.Name + "-object-admin", Labels: labels},
		Rules:      []rbacv1.PolicyRule{{APIGroups: group, Resources: []string{"aitenants"}, ResourceNames: []string{obj.Name}, Verbs: []string{"get"}}},
	}
	return []engine.Child{{Object: admin, Adopt: true, Stage: stageRoles}, {Object: object, Adopt: true, Stage: stageRoles}}
}
