// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/testkit"
)

// What the real scheduler writes is taken apart without a rest.
func TestRealScheduler(t *testing.T) {
	cluster := testkit.Start(t)
	c, ns, ctx := cluster.Client(), cluster.Namespace(t), context.Background()
	create := func(obj client.Object) {
		t.Helper()
		if err := c.Create(ctx, obj); err != nil {
			t.Fatal(err)
		}
	}
	create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}})
	create(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "volumeless"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(""),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		},
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	create(node)
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), node); err != nil {
			t.Error(err)
		}
	})
	node.Status.Allocatable = corev1.ResourceList{"pods": resource.MustParse("10"), "cpu": resource.MustParse("2")}
	node.Status.Capacity = node.Status.Allocatable
	if err := c.Status().Update(ctx, node); err != nil {
		t.Fatal(err)
	}
	mounts := func(claim string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "m", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}}
		}
	}
	cases := map[string]struct {
		edit func(*corev1.PodSpec)
		want string
	}{
		"greedy": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("64Gi")}
		}, "No node takes the pod: Insufficient cpu (it asks for 8), Insufficient memory (it asks for 64Gi). " +
			"Ask for less, or add nodes that have it; kubectl describe nodes shows what is free."},
		"choosy": {func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"zone": "x"} },
			"No node takes the pod: node(s) didn't match Pod's node affinity/selector. " +
				"Correct node selector, affinity or tolerations, or add nodes that fit."},
		"claims-nothing": {mounts("absent"), `No node takes the pod: persistentvolumeclaim "absent" not found. Create the claim, or correct its name.`},
		"claims-in-vain": {mounts("volumeless"), "No node takes the pod: pod has unbound immediate PersistentVolumeClaims. " +
			"See with kubectl describe pvc why the claim is not bound."},
		"intolerant": {func(s *corev1.PodSpec) { s.Tolerations = nil }, "No node takes the pod: node(s) had untolerated taint(s). " +
			"Correct node selector, affinity or tolerations, or add nodes that fit."},
	}
	for name, test := range cases {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "server", Image: "none"}},
			// Nobody plays the node's kubelet.
			Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists}},
		}}
		test.edit(&p.Spec)
		create(p)
	}
	cluster.Scheduler(t)
	for name, test := range cases {
		testkit.Eventually(t, time.Minute, name, func() error {
			p := &corev1.Pod{}
			if err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, p); err != nil {
				return err
			}
			if f, _ := Pod(p); f.Message != test.want {
				return fmt.Errorf("%q is wanted, not %q", test.want, f.Message)
			}
			return nil
		})
	}
}
