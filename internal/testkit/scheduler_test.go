// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestScheduler(t *testing.T) {
	cluster := Start(t)
	namespace, ctx := cluster.Namespace(t), t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "waiting"},
		Spec: corev1.PodSpec{
			Containers:  []corev1.Container{{Name: "c", Image: "none"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	if err := cluster.Client().Create(ctx, account); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client().Create(ctx, node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Client().Delete(context.Background(), node); err != nil {
			t.Error(err)
		}
	})
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: quantity.MustParse("10")}
	node.Status.Capacity = node.Status.Allocatable
	if err := cluster.Client().Status().Update(ctx, node); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client().Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	scheduler := cluster.Scheduler(t)
	Eventually(t, time.Minute, "the pod to get a node", func() error {
		select {
		case <-scheduler.Ended():
			t.Fatalf("kube-scheduler ended:\n%s", scheduler.Output())
		default:
		}
		if err := cluster.Client().Get(ctx, clientKey(namespace, "waiting"), pod); err != nil {
			return err
		}
		if pod.Spec.NodeName != node.Name {
			return errors.New("it has none")
		}
		return nil
	})
}

func TestStartOwn(t *testing.T) {
	common := Start(t)
	namespace := common.Namespace(t)
	var own *Cluster
	t.Run("runs", func(t *testing.T) {
		own = StartOwn(t)
		if err := own.Client().Get(t.Context(), clientKey("", namespace), &corev1.Namespace{}); !apierrors.IsNotFound(err) {
			t.Errorf("the namespace of another cluster is answered with %v", err)
		}
	})
	if err := own.Client().Get(t.Context(), clientKey("", "default"), &corev1.Namespace{}); err == nil {
		t.Error("the server outlives the test that started it")
	}
	if err := common.Client().Get(t.Context(), clientKey("", namespace), &corev1.Namespace{}); err != nil {
		t.Errorf("the common server is gone: %v", err)
	}
}
