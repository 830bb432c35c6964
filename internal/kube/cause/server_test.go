// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// What real controllers write is what this package reads: a quota that is used up, and pods on their way.
func TestRealControllers(t *testing.T) {
	cluster := testkit.Start(t)
	cluster.ControllerManager(t)
	c, ns, ctx := cluster.Client(), cluster.Namespace(t), context.Background()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cpus"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("1")}},
	}
	if err := c.Create(ctx, quota); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, "the quota in force", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if len(quota.Status.Hard) == 0 {
			return fmt.Errorf("not counted yet")
		}
		return nil
	})
	app := map[string]string{"app": "iris"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "iris"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "server", Image: "registry.example/server:1",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
				}}},
			},
		},
	}
	if err := c.Create(ctx, d); err != nil {
		t.Fatal(err)
	}
	becomes := func(want Finding) {
		t.Helper()
		testkit.Eventually(t, time.Minute, want.Reason, func() error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
				return err
			}
			var pods corev1.PodList
			if err := c.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels(app)); err != nil {
				return err
			}
			got, _ := Of(d, pods.Items)
			ignored := cmpopts.IgnoreFields(Finding{}, "Time", "Pod")
			if diff := cmp.Diff(want, got, ignored, cmpopts.IgnoreUnexported(Finding{})); diff != "" {
				return fmt.Errorf("finding (-want +got):\n%s", diff)
			}
			return nil
		})
	}
	becomes(Finding{
		Reason: QuotaExceeded, Blocking: true,
		Message: `Pods cannot be created: they ask for requests.cpu=2, but the quota "cpus" of the namespace ends at requests.cpu=1. ` +
			`Ask for less, or raise the quota.`,
	})
	raised := quota.DeepCopy()
	raised.Spec.Hard[corev1.ResourceRequestsCPU] = resource.MustParse("4")
	if err := c.Patch(ctx, raised, client.MergeFrom(quota)); err != nil {
		t.Fatal(err)
	}
	becomes(Finding{Reason: Waiting, Message: "Waiting until the pod is ready."})
}
