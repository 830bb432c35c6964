// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// conditionRevoked says that no key of the tenant is good any more. It is also how a later look knows it.
const conditionRevoked = "APIKeysRevoked"

// atOnce is when to look again after the status says something that the next step depends on.
const atOnce = 100 * time.Millisecond

// Teardown implements engine.Teardown: keys first, so that nobody comes in while the rest goes; then the routes of models, by those
// who made them, and what checks requests there with the services of the tenant; its roles and the marks of its namespace; and the
// claims on gateways last, so that no other tenant gets a gateway that still leads here.
func (k Kind) Teardown(obj *v1alpha1.AITenant, seen Seen) engine.Ending {
	if obj.Namespace != k.TenantNamespace {
		return engine.Ending{Finished: true}
	}
	forced, left := k.overdue(obj, seen.Now)
	revoked := meta.IsStatusConditionTrue(obj.Status.Conditions, conditionRevoked)
	kept := k.kept(obj, seen)
	gateway, routes := k.leading(obj, seen)
	switch {
	case !revoked && !forced && seen.Keys:
		children := append(append(kept, engine.Child{Object: k.revoke(obj)}), k.settings(obj, seen)...)
		if seen.Revoke != nil && completed(seen.Revoke) {
			// On record first, and the Job goes later: who finds neither would revoke once more.
			return k.ending(obj, seen, children, engine.WaitFor("DeletionInProgress", "The keys of the tenant are revoked, and its services are about to be removed."), atOnce, true)
		}
		return k.ending(obj, seen, children, k.revoking(seen), left, false)
	case len(routes) > 0: // no time-out opens models
		p := engine.WaitFor("DeletionBlocked", "HTTPRoutes lead to models through Gateway %s, and nobody would check requests there without the tenant: %s. Remove them, or take the Gateway out of them.",
			gateway, tenancy.Some(routes))
		return k.ending(obj, seen, append(kept, k.settings(obj, seen)...), p, 0, revoked)
	case seen.Config != nil && !forced:
		p := engine.WaitFor("DeletionInProgress", "The services of the tenant are being removed: MaasTenantConfig %s in namespace %s is not gone yet.", seen.Config.Name, k.namespaceOf(obj))
		return k.ending(obj, seen, kept, p, left, revoked)
	case k.marked(obj, seen):
		return k.givingBack(obj, seen, forced, revoked)
	case k.holds(obj, seen) && !forced:
		return k.ending(obj, seen, nil, engine.WaitFor("DeletionInProgress", "Gateway %s is being given back.", seen.Gateway.Key), 0, revoked)
	}
	return engine.Ending{Finished: true}
}

// kept is what the tenant has until its services are gone: its gateways, and if it ever got one, its namespace with the roles there.
func (k Kind) kept(obj *v1alpha1.AITenant, seen Seen) []engine.Child {
	var out []engine.Child
	if seen.Holder == "" || seen.Holder == obj.Name {
		out = append(out, k.claims(obj, seen)[0])
	}
	for _, c := range seen.Others {
		out = append(out, claim(obj, c.Gateway, c.UID))
	}
	if !k.marked(obj, seen) {
		return out
	}
	return append(append(out, engine.Child{Object: k.namespace(obj, true), Adopt: true, Retain: true, Stage: stageNamespace}), k.roles(obj)...)
}

// settings are those of the tenant, while they are there.
func (k Kind) settings(obj *v1alpha1.AITenant, seen Seen) []engine.Child {
	if seen.Config == nil {
		return nil
	}
	return []engine.Child{{Object: k.config(obj, seen), Adopt: true, Initial: []string{"spec"}, Stage: stageConfig}}
}

// leading is a gateway of the tenant through which models are reached, with the routes.
func (Kind) leading(obj *v1alpha1.AITenant, seen Seen) (client.ObjectKey, []string) {
	if seen.Holder == "" || seen.Holder == obj.Name {
		if len(seen.Routes) > 0 {
			return seen.Gateway.Key, seen.Routes
		}
	}
	for _, c := range seen.Others {
		if len(c.Routes) > 0 {
			return c.Gateway, c.Routes
		}
	}
	return client.ObjectKey{}, nil
}

// holds tells whether the tenant has a gateway still.
func (Kind) holds(obj *v1alpha1.AITenant, seen Seen) bool {
	return seen.Claim != nil && seen.Holder == obj.Name || len(seen.Others) > 0
}

// givingBack takes the marks of the tenant off its namespace.
func (k Kind) givingBack(obj *v1alpha1.AITenant, seen Seen, forced, revoked bool) engine.Ending {
	var children []engine.Child
	for _, c := range k.kept(obj, seen) {
		if c.Stage == stageClaim {
			children = append(children, c)
		}
	}
	children = append(children, engine.Child{Object: k.namespace(obj, false), Adopt: true, Retain: true, Stage: stageNamespace})
	reason := engine.WaitFor("DeletionInProgress", "Namespace %s is being given back.", k.namespaceOf(obj))
	if !forced {
		return k.ending(obj, seen, children, reason, 0, revoked)
	}
	reason = engine.WaitFor("CleanupForced", "The tenant could not be taken down in time, and goes with what could be removed. Look for what is left in the namespaces %s and %s.", k.namespaceOf(obj), k.InfraNamespace)
	end := k.ending(obj, seen, children, reason, 0, revoked)
	end.Events = append(end.Events, engine.Event{Warning: true, Reason: "AITenantCleanupForced", Message: reason.Message})
	return end
}

// overdue tells whether the end has taken too long, and how long it may take still.
func (k Kind) overdue(obj *v1alpha1.AITenant, now time.Time) (forced bool, left time.Duration) {
	if k.DeletionTimeout <= 0 || obj.DeletionTimestamp == nil {
		return false, 0
	}
	left = obj.DeletionTimestamp.Add(k.DeletionTimeout).Sub(now)
	if left <= 0 {
		return true, 0
	}
	return false, left
}

// marked tells whether the namespace still says whose it is.
func (k Kind) marked(obj *v1alpha1.AITenant, seen Seen) bool {
	return seen.Namespace != nil && seen.Namespace.DeletionTimestamp == nil && seen.Namespace.Labels[naming.LabelTenantName] == obj.Name
}

// ending is one step on the way.
func (k Kind) ending(obj *v1alpha1.AITenant, seen Seen, children []engine.Child, p *engine.Problem, again time.Duration, revoked bool) engine.Ending {
	status := k.status(obj, seen, v1alpha1.AITenantTerminating)
	if revoked {
		status.Conditions = append(status.Conditions, metav1.Condition{Type: conditionRevoked, Status: metav1.ConditionTrue, Reason: "RevocationJobCompleted",
			Message: "All keys of the tenant are revoked."})
	} else if !seen.Keys { // a Job would wait for an address that nobody gives it
		status.Conditions = append(status.Conditions, metav1.Condition{Type: conditionRevoked, Status: metav1.ConditionFalse, Reason: "NoDatabase",
			Message: fmt.Sprintf("Secret %s in namespace %s does not exist or has no %s, so that no keys were revoked. If there is a database, revoke them there with \"modelplane maas-keys revoke --tenant %s\", or a later tenant of the name has them.",
				DatabaseSecret, k.InfraNamespace, databaseKey, obj.Name)})
	}
	return engine.Ending{Plan: engine.Plan{Children: children, Problem: p, Status: status, RequeueAfter: again}}
}

// revoking says how far the Job is.
func (k Kind) revoking(seen Seen) *engine.Problem {
	if seen.Revoke != nil {
		for _, c := range seen.Revoke.Status.Conditions {
			if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
				return engine.WaitFor("DeletionBlocked", "The keys of the tenant could not be revoked: Job %s in namespace %s failed. Look at the logs of its pods, mend what they say, and delete the Job to have it tried again.",
					seen.Revoke.Name, seen.Revoke.Namespace)
			}
		}
	}
	return engine.WaitFor("DeletionInProgress", "The keys of the tenant are being revoked.")
}

func completed(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func jobName(tenant string) string { return "maas-api-revoke-keys-" + tenant }

// revoke is the Job that revokes the keys of the tenant, in the database itself: no service need run for it, and nobody else
// can ask for it. Its pods get the address of the database from the Secret and nothing else.
func (k Kind) revoke(obj *v1alpha1.AITenant) *batchv1.Job {
	const attempts, deadline, kept = 2, 120, 300
	labels := map[string]string{naming.LabelManagedBy: naming.ManagedBy, naming.LabelTenantName: obj.Name, naming.LabelComponent: "api-key-revocation"}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: RevokePod(k.Image, []string{"maas-keys", "revoke", "--tenant", obj.Name})}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.InfraNamespace, Name: jobName(obj.Name), Labels: labels},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](attempts), ActiveDeadlineSeconds: ptr.To[int64](deadline), TTLSecondsAfterFinished: ptr.To[int32](kept), Template: pod,
		},
	}
}

// RevokePod is a pod that does one thing with the database of keys.
func RevokePod(image string, args []string) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy:                corev1.RestartPolicyNever,
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		SecurityContext:              &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "keys", Image: image, Args: args,
			Env: []corev1.EnvVar{{Name: "DB_CONNECTION_URL", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: DatabaseSecret}, Key: databaseKey}}}},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
	}
}
