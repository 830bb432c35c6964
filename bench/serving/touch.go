// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// change is one field of a service that users change.
type change struct {
	name  string
	patch func(service string) string
	// followed tells whether the children have followed the change of a service.
	followed func(before, now *children) error
}

// changes from the smallest to the one that replaces the model.
var changes = []change{
	{
		name:  "maxReplicas",
		patch: func(string) string { return `{"spec":{"predictor":{"maxReplicas":3}}}` },
		followed: func(_, now *children) error {
			if now.scaler.Spec.MaxReplicas != 3 {
				return fmt.Errorf("the HorizontalPodAutoscaler %s has not followed", now.scaler.Name)
			}
			return nil
		},
	},
	{
		name: "an environment variable",
		patch: func(string) string {
			return `{"spec":{"predictor":{"model":{"env":[{"name":"CHANGED","value":"1"}]}}}}`
		},
		followed: rolledOut,
	},
	{
		name: "storageUri",
		patch: func(name string) string {
			return fmt.Sprintf(`{"spec":{"predictor":{"model":{"storageUri":"s3://models/%s/v2"}}}}`, name)
		},
		followed: rolledOut,
	},
}

// children of a service that changes show in.
type children struct {
	deployment appsv1.Deployment
	scaler     autoscalingv2.HorizontalPodAutoscaler
}

// rolledOut tells whether there is a new template and all pods are of it.
func rolledOut(before, now *children) error {
	d := &now.deployment
	n, s := ptr.Deref(d.Spec.Replicas, 1), &d.Status
	if d.Generation <= before.deployment.Generation || s.ObservedGeneration < d.Generation ||
		s.UpdatedReplicas != n || s.Replicas != n || s.AvailableReplicas != n {
		return fmt.Errorf("the Deployment %s has not followed", d.Name)
	}
	return nil
}

// touch changes a field of n services and waits until their children have followed.
func (b *bed) touch(ctx context.Context, c change, n, clients int, patience time.Duration) {
	b.t.Helper()
	before, err := b.childrenByService(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	err = parallel(n, clients, func(i int) error {
		isvc := &v1beta1.InferenceService{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: nameOf(i)}}
		return b.client.Patch(ctx, isvc, client.RawPatch(types.MergePatchType, []byte(c.patch(nameOf(i)))))
	})
	if err != nil {
		b.t.Fatalf("change services: %v", err)
	}
	b.until(ctx, patience, "the children of the changed services to follow", func() error {
		now, err := b.childrenByService(ctx)
		if err != nil {
			return err
		}
		for i := 1; i <= n; i++ {
			if err := c.followed(before[nameOf(i)], now[nameOf(i)]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bed) childrenByService(ctx context.Context) (map[string]*children, error) {
	deployments, scalers := &appsv1.DeploymentList{}, &autoscalingv2.HorizontalPodAutoscalerList{}
	for _, list := range []client.ObjectList{deployments, scalers} {
		if err := b.client.List(ctx, list, client.InNamespace(space)); err != nil {
			return nil, err
		}
	}
	out := map[string]*children{}
	for _, d := range deployments.Items {
		out[d.Labels[v1beta1.LabelInferenceService]] = &children{deployment: d}
	}
	for _, s := range scalers.Items {
		if of := out[s.Labels[v1beta1.LabelInferenceService]]; of != nil {
			of.scaler = s
		}
	}
	return out, nil
}
