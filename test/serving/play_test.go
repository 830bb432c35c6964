// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// played are the kinds whose controllers are not there: what a file says of their status holds for what becomes of the
// objects too.
var played = []string{"Deployment", "HTTPRoute", "Service"}

// act sets the status of an object of a file again after the manager changed its spec. A status that was up to date in
// the file is up to date, and one that lagged behind lags behind.
func (s *stage) act(ctx context.Context, want *unstructured.Unstructured) error {
	status, _, _ := unstructured.NestedMap(want.Object, "status")
	if status == nil || !slices.Contains(played, want.GetKind()) {
		return nil
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(want.GroupVersionKind())
	if err := s.C.Get(ctx, client.ObjectKeyFromObject(want), live); err != nil {
		return client.IgnoreNotFound(err)
	}
	shift(status, live.GetGeneration()-want.GetGeneration())
	if len(missing("status", status, live.Object["status"])) == 0 {
		return nil
	}
	live.Object["status"] = status
	return s.C.Status().Update(ctx, live)
}

// scale plays the autoscaler, to whom the number of pods belongs once a Deployment is there: it keeps to the bounds.
func (s *stage) scale(ctx context.Context, namespace string) error {
	scalers := &autoscalingv2.HorizontalPodAutoscalerList{}
	if err := s.C.List(ctx, scalers, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range scalers.Items {
		spec, d := &scalers.Items[i].Spec, &appsv1.Deployment{}
		if err := s.C.Get(ctx, client.ObjectKey{Namespace: namespace, Name: spec.ScaleTargetRef.Name}, d); err != nil {
			return client.IgnoreNotFound(err)
		}
		before := *d.Spec.Replicas
		*d.Spec.Replicas = min(max(before, ptr.Deref(spec.MinReplicas, 1)), spec.MaxReplicas)
		if *d.Spec.Replicas != before {
			return s.C.Update(ctx, d, client.FieldOwner("autoscaler"))
		}
	}
	return nil
}

// shift moves observed generations, wherever they are.
func shift(value any, by int64) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if generation, ok := field.(int64); ok && name == "observedGeneration" {
				value[name] = generation + by
			}
			shift(field, by)
		}
	case []any:
		for _, item := range value {
			shift(item, by)
		}
	}
}

// conditionsOf reads conditions in their order.
func conditionsOf(u *unstructured.Unstructured) []condition {
	var out []condition
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range list {
		c, _ := item.(map[string]any)
		text := func(field string) string { s, _ := c[field].(string); return s }
		out = append(out, condition{text("type"), text("status"), text("reason"), text("message")})
	}
	return out
}

func notServed(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }
