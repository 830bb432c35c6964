// SPDX-License-Identifier: Apache-2.0

package mlflow

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/kube/cause"
	"github.com/modelplane/modelplane/internal/mlflow/migrate"
)

// Conditions of an MLflow besides that of migrations. Degraded is there only while something needs a person.
const (
	conditionAvailable   = "Available"
	conditionProgressing = "Progressing"
	conditionDegraded    = "Degraded"
)

// Reasons that other programs know.
const (
	reasonReady        = "DeploymentReady"
	reasonNotReady     = "DeploymentNotReady"
	reasonProgressing  = "DeploymentProgressing"
	reasonComplete     = "ReconcileComplete"
	reasonCABundle     = "CABundleConfigMapError"
	reasonRenderFailed = "RenderFailed"
)

// status is what is said of a server that was planned.
func (p *planner) status(next migrate.Outcome) *mlflowv1.MLflowStatus {
	s := p.newStatus()
	if next.Version != "" {
		s.Version = next.Version
	}
	var said kube.Conditions
	p.judge(&said)
	if reason, message := p.degraded(); reason != "" {
		said.True(conditionDegraded, reason, message)
	}
	s.Conditions = append(said.Standard(), p.kept()...)
	for _, c := range next.Conditions {
		c.LastTransitionTime = metav1.Time{}
		if i := slices.IndexFunc(s.Conditions, func(have metav1.Condition) bool { return have.Type == c.Type }); i >= 0 {
			s.Conditions[i] = c
			continue
		}
		s.Conditions = append(s.Conditions, c)
	}
	return s
}

// heldStatus is what is said when nothing could be planned.
func (p *planner) heldStatus(problem *engine.Problem) *mlflowv1.MLflowStatus {
	s := p.newStatus()
	var said kube.Conditions
	said.False(conditionAvailable, problem.Reason, problem.Message)
	said.False(conditionProgressing, problem.Reason, problem.Message)
	s.Conditions = append(said.Standard(), p.kept()...)
	return s
}

// kept are conditions of others: of the last migration and of the platform.
func (p *planner) kept() []metav1.Condition {
	var out []metav1.Condition
	for _, typ := range []string{migrate.Condition} {
		if c := meta.FindStatusCondition(p.mlflow.Status.Conditions, typ); c != nil {
			out = append(out, *c)
		}
	}
	return append(out, p.ofPlatform()...)
}

func (p *planner) newStatus() *mlflowv1.MLflowStatus {
	at := p.seen.Settings
	s := &mlflowv1.MLflowStatus{
		Version: p.mlflow.Status.Version,
		Address: &mlflowv1.Address{URL: fmt.Sprintf("https://%s:%d%s", host(at.Namespace), port, prefix)},
	}
	if p.seen.HasRoutes && at.URL != "" {
		s.URL = at.URL + prefix
	}
	return s
}

// judge says whether the newest pods have taken over: all of them, from the newest template, and available; and if not,
// what is known of the cause.
func (p *planner) judge(said *kube.Conditions) {
	d, want := p.seen.Deployment, ptr.Deref(p.spec.Replicas, 1)
	ready := int32(0)
	if d != nil && d.Status.ObservedGeneration >= d.Generation && ptr.Deref(d.Spec.Replicas, 1) == want {
		ready = min(d.Status.UpdatedReplicas, d.Status.AvailableReplicas, want)
		if ready == want && d.Status.Replicas > want {
			ready-- // one of the old ones is still there
		}
	}
	if ready == want {
		said.True(conditionAvailable, reasonReady, "MLflow deployment is ready and available.")
		said.False(conditionProgressing, reasonComplete, "Everything is as the spec asks.")
		return
	}
	text := fmt.Sprintf("MLflow deployment not ready: %d/%d replicas ready.", ready, want)
	if d != nil && ptr.Deref(d.Spec.Replicas, 1) == 0 {
		text = "MLflow deployment scaled to zero replicas."
	}
	_, why := p.degraded()
	if finding, ok := p.cause(); why == "" && ok && finding.Reason != cause.Waiting {
		why = finding.Message
	}
	text = strings.TrimSpace(text + " " + why)
	said.False(conditionAvailable, reasonNotReady, text)
	said.True(conditionProgressing, reasonProgressing, text)
}

// cause is why the pods of the server are not ready.
func (p *planner) cause() (cause.Finding, bool) {
	if p.seen.Deployment == nil {
		return cause.Finding{}, false
	}
	return cause.Of(p.seen.Deployment, podsOf(p.seen.Deployment, p.seen.Pods))
}

// podsOf are those that the Deployment selects.
func podsOf(d *appsv1.Deployment, pods []corev1.Pod) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool {
		return pod.Labels["app"] != name || pod.Namespace != d.Namespace
	})
}

// degraded is what somebody has to do something about, in the order in which it matters; empty if there is nothing.
func (p *planner) degraded() (reason, message string) {
	switch {
	case len(p.seen.Missing) > 0:
		return "InputMissing", fmt.Sprintf("The server needs what does not exist in namespace %s: %s. Create it, or correct the name in the spec.",
			p.seen.Settings.Namespace, strings.Join(p.seen.Missing, "; "))
	case p.seen.TLS.Broken:
		return "CertificateUnusable", fmt.Sprintf("The Secret %s/%s has no certificate with its key in %s and %s. Correct it, or delete it to get one made.",
			p.seen.Settings.Namespace, tlsSecret, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	if finding, ok := p.cause(); ok && finding.Blocking {
		return finding.Reason, finding.Message
	}
	if note := p.claimNote(); note != "" {
		return "StorageNotAsAsked", note
	}
	if risk := p.risk(); risk != "" {
		return "StorageRefused", risk
	}
	return "", ""
}
