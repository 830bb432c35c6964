// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestControllerManager(t *testing.T) {
	cluster := Start(t)
	namespace, ctx := cluster.Namespace(t), t.Context()
	owner := deployment(namespace, "owner")
	if err := cluster.Client().Create(ctx, owner); err != nil {
		t.Fatal(err)
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "child",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: owner.Name, UID: owner.UID}},
	}}
	if err := cluster.Client().Create(ctx, child); err != nil {
		t.Fatal(err)
	}
	pods := func() (int, error) {
		var list corev1.PodList
		err := cluster.Client().List(ctx, &list, inNamespace(namespace))
		return len(list.Items), err
	}
	if n, err := pods(); err != nil || n != 0 {
		t.Fatalf("without controllers: %d pods, %v", n, err)
	}

	t.Run("runs", func(t *testing.T) {
		cluster.ControllerManager(t)
		Eventually(t, time.Minute, "a pod of the Deployment", func() error {
			n, err := pods()
			if err == nil && n != 1 {
				err = fmt.Errorf("%d pods", n)
			}
			return err
		})
		if err := cluster.Client().Delete(ctx, owner); err != nil {
			t.Fatal(err)
		}
		Eventually(t, time.Minute, "the child of the deleted owner to be collected", func() error {
			if err := cluster.Client().Get(ctx, clientKey(namespace, "child"), child); !apierrors.IsNotFound(err) {
				return errors.Join(errors.New("still there"), err)
			}
			return nil
		})
	})

	after := cluster.Namespace(t)
	Quiet(t, time.Second, "the absence of controllers after the test that asked for them", func() error {
		if err := cluster.Client().Get(ctx, clientKey(after, "default"), &corev1.ServiceAccount{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("a service account appeared"), err)
		}
		return nil
	})
}
