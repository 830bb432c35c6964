// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
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
	if p := k.pending(obj, seen); p != nil {
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
		Message: fmt.Sprintf("The tenant has the namespace %s and the gateway %s.", status.TenantNamespace, seen.Gateway.Key) + leaving(seen)}}, status.Conditions...)
	plan.Status = status
	return plan
}

// leaving says at which gateways that the tenant had before requests are checked still, and why.
func leaving(seen Seen) string {
	text := ""
	for _, c := range seen.Others {
		if len(c.Routes) > 0 {
			text += fmt.Sprintf(" Requests at Gateway %s are checked as well, while HTTPRoutes lead to models through it: %s.", c.Gateway, tenancy.Some(c.Routes))
		}
	}
	return text
}

// current is the gateway through which models of the tenant are reached: the one that it asks for, or until requests are checked
// there, the one that it had before. It has none while another tenant has that.
func (k Kind) current(obj *v1alpha1.AITenant, seen Seen) *client.ObjectKey {
	switch {
	case seen.Held != nil && seen.Held.Exists && !arrived(obj, seen):
		return &seen.Held.Key
	case seen.Holder != "" && seen.Holder != obj.Name:
		return nil
	}
	return &seen.Gateway.Key
}

// arrived tells whether requests are checked at the gateway that the tenant asks for.
func arrived(obj *v1alpha1.AITenant, seen Seen) bool {
	return seen.Gateway.Exists && seen.Claim != nil && seen.Holder == obj.Name && seen.Config != nil &&
		seen.Config.Labels[naming.LabelChecked] == string(seen.Claim.UID)
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
	if ref := spec.GatewayRef; ref != nil && ref.Name != "" && ref.Name != k.gatewayKey(obj).Name && (obj.Spec.Gateway == nil || obj.Spec.Gateway.Name == "") {
		return "the gateway " + ref.Name
	}
	if spec.ExternalOIDC != nil && obj.Spec.OIDC == nil {
		return "the identity provider " + spec.ExternalOIDC.IssuerURL
	}
	return ""
}

// pending is what the tenant waits for.
func (k Kind) pending(obj *v1alpha1.AITenant, seen Seen) *engine.Problem {
	namespace := k.namespaceOf(obj)
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
	if at := k.current(obj, seen); at != nil && *at != seen.Gateway.Key {
		return engine.WaitFor("TenantConfigNotReady", "Requests at Gateway %s are not checked yet. Until they are, models of the tenant are reached through Gateway %s.", seen.Gateway.Key, *at)
	}
	return nil
}

// status says what the tenant has; the engine adds what is wrong.
func (k Kind) status(obj *v1alpha1.AITenant, seen Seen, phase v1alpha1.AITenantPhase) *v1alpha1.AITenantStatus {
	out := &v1alpha1.AITenantStatus{Phase: phase}
	if obj.Namespace != k.TenantNamespace {
		return out
	}
	if at := k.current(obj, seen); at != nil {
		out.GatewayRef = &v1alpha1.GatewayRef{Namespace: at.Namespace, Name: at.Name}
	}
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
	out := append(k.claims(obj, seen),
		engine.Child{Object: k.namespace(obj, true), Adopt: true, Retain: true, Stage: stageNamespace},
		engine.Child{Object: k.config(obj, seen), Adopt: true, Initial: []string{"spec"}, Stage: stageConfig},
	)
	out = append(out, k.roles(obj)...)
	if f := seen.Former; f != nil && seen.Config != nil && f.DeletionTimestamp == nil {
		gone := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.Name, UID: f.UID}}
		out = append(out, engine.Child{Object: gone, Delete: true, Stage: stageRoles})
	}
	return out
}

// claims make gateways this tenant's: the one that it asks for, the one through which its models are reached as far as its status
// says, and those through which some still are.
func (k Kind) claims(obj *v1alpha1.AITenant, seen Seen) []engine.Child {
	var out []engine.Child
	if seen.Holder == "" || seen.Holder == obj.Name {
		uid := types.UID("")
		if seen.Claim != nil {
			uid = seen.Claim.UID // ours, or of a tenant that is gone
		}
		out = append(out, claim(obj, seen.Gateway.Key, uid))
	}
	for _, c := range seen.Others {
		if len(c.Routes) > 0 || seen.Held != nil && seen.Held.Key == c.Gateway {
			out = append(out, claim(obj, c.Gateway, c.UID))
		}
	}
	return out
}

// claim makes a gateway this tenant's: of two that ask for one gateway, the API server lets only one have the name.
func claim(obj *v1alpha1.AITenant, gateway client.ObjectKey, uid types.UID) engine.Child {
	c := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, Name: tenancy.ClaimName(gateway), UID: uid, Labels: map[string]string{
			naming.LabelClaim: "true", naming.LabelGateway: gateway.Name, naming.LabelTenantName: obj.Name, naming.LabelManagedBy: naming.ManagedBy}},
		Data: map[string]string{"gatewayNamespace": gateway.Namespace, "gatewayName": gateway.Name, "aiTenantName": obj.Name, "aiTenantNamespace": obj.Namespace},
	}
	return engine.Child{Object: c, Stage: stageClaim, Adopt: uid != ""}
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
