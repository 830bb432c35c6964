// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/naming"
)

// conditionRevoked says that no key of the tenant is good any more. It is also how a later look knows it.
const conditionRevoked = "APIKeysRevoked"

// Teardown implements engine.Teardown: keys first, so that nobody comes in while the rest goes; then the services of the
// tenant; its roles and the marks of its namespace; and the claim on its gateway last, so that no other tenant gets a gateway
// that still leads here.
func (k Kind) Teardown(obj *v1alpha1.AITenant, seen Seen) engine.Ending {
	if obj.Namespace != k.TenantNamespace {
		return engine.Ending{Finished: true}
	}
	forced, left := k.overdue(obj, seen.Now)
	revoked := meta.IsStatusConditionTrue(obj.Status.Conditions, conditionRevoked) || seen.Revoke != nil && completed(seen.Revoke)
	claim := k.claim(obj, seen)
	place := engine.Child{Object: k.namespace(obj, true), Adopt: true, Retain: true, Stage: stageNamespace}
	switch {
	case !revoked && !forced && (seen.Keys || seen.Revoke != nil):
		children := append([]engine.Child{claim, place, {Object: k.revoke(obj)}}, k.roles(obj)...)
		if seen.Config != nil {
			children = append(children, engine.Child{Object: k.config(obj, seen), Adopt: true, Initial: []string{"spec"}, Stage: stageConfig})
		}
		return k.ending(obj, seen, children, k.revoking(seen), left, false)
	case seen.Config != nil && !forced:
		children := append([]engine.Child{claim, place}, k.roles(obj)...)
		p := engine.WaitFor("DeletionInProgress", "The services of the tenant are being removed: MaasTenantConfig %s in namespace %s is not gone yet.", seen.Config.Name, k.namespaceOf(obj))
		return k.ending(obj, seen, children, p, left, revoked)
	case k.marked(obj, seen):
		place.Object = k.namespace(obj, false)
		p := engine.WaitFor("DeletionInProgress", "Namespace %s is being given back.", k.namespaceOf(obj))
		reason := p
		if forced {
			reason = engine.WaitFor("CleanupForced", "The tenant could not be taken down in time, and goes with what could be removed. Look for what is left in the namespaces %s and %s.", k.namespaceOf(obj), k.InfraNamespace)
		}
		end := k.ending(obj, seen, []engine.Child{claim, place}, reason, 0, revoked)
		if forced {
			end.Events = append(end.Events, engine.Event{Warning: true, Reason: "AITenantCleanupForced", Message: reason.Message})
		}
		return end
	case seen.Claim != nil && seen.Holder == obj.Name && !forced:
		return k.ending(obj, seen, nil, engine.WaitFor("DeletionInProgress", "Gateway %s is being given back.", seen.Gateway.Key), 0, revoked)
	}
	return engine.Ending{Finished: true}
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
		SecurityContext:              &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "keys", Image: image, Args: args,
			Env: []corev1.EnvVar{{Name: "DB_CONNECTION_URL", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: DatabaseSecret}, Key: "DB_CONNECTION_URL"}}}},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
	}
}
