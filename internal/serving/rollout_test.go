// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/serving/status"
	"github.com/modelplane/modelplane/internal/testkit"
)

// waits are the commands of the page about services, in their order.
func waits(t *testing.T) (served, failed []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/inferenceservice.md")
	if err != nil {
		t.Fatal(err)
	}
	var found [][]string
	for line := range strings.Lines(string(page)) {
		if command, ok := strings.CutPrefix(line, "$ kubectl wait "); ok {
			command, _, _ = strings.Cut(command, "#")
			found = append(found, strings.Fields("wait "+strings.ReplaceAll(command, "'", "")))
		}
	}
	if len(found) != 2 {
		t.Fatalf("the page has %d commands that wait: %q", len(found), found)
	}
	return found[0], found[1]
}

// TestWaitingForAGeneration types the commands of the page: who waits for Ready waits for the newest generation, although
// the one before still answers, and a rollout that cannot succeed is told before its deadline.
func TestWaitingForAGeneration(t *testing.T) {
	served, failed := waits(t)
	b := servingtest.New(t)
	b.Manage(t, b.Manager)
	kubectl := func(command []string, timeout string) error {
		t.Helper()
		_, stderr, err := testkit.Start(t).Kubectl(t, "", slices.Concat(command, []string{"-n", b.NS, "--timeout=" + timeout})...)
		if err != nil {
			return fmt.Errorf("kubectl %s: %w: %s", strings.Join(command, " "), err, stderr)
		}
		return nil
	}
	isvc := b.Service("iris", "sklearn")
	b.Create(t, isvc)
	b.RollOut(t, "iris-predictor")
	if err := kubectl(served, "1m"); err != nil {
		t.Fatal(err)
	}

	b.Change(t, isvc, func() { isvc.Spec.Predictor.Model.Args = []string{"--verbose"} })
	refuseNewPods(t, b, "iris-predictor")
	if err := kubectl(failed, "1m"); err != nil {
		t.Fatal(err)
	}
	if err := kubectl(served, "1s"); err == nil {
		t.Error("the old pods answer, and kubectl takes the new generation for served")
	}
	if ready, latest := conditionOf(t, b, isvc, v1beta1.ConditionReady), conditionOf(t, b, isvc, status.LatestReady); ready != corev1.ConditionTrue || latest != corev1.ConditionFalse {
		t.Errorf("Ready is %q and %s is %q while the old pods answer", ready, status.LatestReady, latest)
	}

	b.RollOut(t, "iris-predictor")
	if err := kubectl(served, "1m"); err != nil {
		t.Fatal(err)
	}
	if latest := conditionOf(t, b, isvc, status.LatestReady); latest != "" || isvc.Status.ObservedGeneration != isvc.Generation {
		t.Errorf("the new generation is served, but %s is %q and the status is of generation %d", status.LatestReady, latest, isvc.Status.ObservedGeneration)
	}
}

// TestARefusedChildIsBlocked: what only the API server knows to be wrong is told where GitOps tools look, too.
func TestARefusedChildIsBlocked(t *testing.T) {
	b := servingtest.New(t)
	b.Manage(t, b.Manager)
	isvc := b.Service("iris", "sklearn")
	isvc.Spec.Predictor.Model.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
	}
	b.Create(t, isvc)
	transition := func(want v1beta1.TransitionStatus) {
		t.Helper()
		testkit.Eventually(t, servingtest.Patience, "the status to say "+string(want), func() error {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(isvc), isvc); err != nil {
				return err
			}
			if m := isvc.Status.ModelStatus; m == nil || m.TransitionStatus != want {
				return fmt.Errorf("it says %+v", m)
			}
			return nil
		})
	}
	transition(v1beta1.BlockedByFailedLoad)
	if told := isvc.Status.ModelStatus.LastFailureInfo; told == nil || !strings.Contains(told.Message, "must be less than or equal to cpu limit") {
		t.Errorf("the failure is told as %+v", told)
	}
	b.Change(t, isvc, func() { isvc.Spec.Predictor.Model.Resources.Requests = nil })
	transition(v1beta1.InProgress)
	b.RollOut(t, "iris-predictor")
	transition(v1beta1.UpToDate)
}

// refuseNewPods is what a Deployment says whose change has arrived and whose new pods do not fit into the quota.
func refuseNewPods(t *testing.T, b *servingtest.Bench, name string) {
	t.Helper()
	d := &appsv1.Deployment{}
	testkit.Eventually(t, servingtest.Patience, "the new pods to be refused", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: name}, d); err != nil {
			return err
		}
		if args := d.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--verbose") {
			return fmt.Errorf("%s has the arguments %q", name, args)
		}
		d.Status.ObservedGeneration, d.Status.UpdatedReplicas = d.Generation, 0
		d.Status.Conditions = append(d.Status.Conditions[:1:1], appsv1.DeploymentCondition{
			Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate",
			Message: `pods "iris-predictor-x" is forbidden: exceeded quota: team, requested: pods=1, used: pods=1, limited: pods=1`,
		})
		return b.C.Status().Update(context.Background(), d)
	})
}

// conditionOf reads the service anew; empty if it does not have the condition.
func conditionOf(t *testing.T, b *servingtest.Bench, isvc *v1beta1.InferenceService, typ string) corev1.ConditionStatus {
	t.Helper()
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(isvc), isvc); err != nil {
		t.Fatal(err)
	}
	for _, c := range isvc.Status.Conditions {
		if c.Type == typ {
			return c.Status
		}
	}
	return ""
}
