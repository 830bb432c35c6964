// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/internal/serving/activation"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
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

// activate plays the activator, to whom the number of pods belongs where it is in the plan: it is that of the file.
func (s *stage) activate(ctx context.Context, p *plan) error {
	for _, u := range p.inside() {
		replicas, said, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		if u.GetKind() != "Deployment" || !said || !p.activated(u.GetName()) {
			continue
		}
		d := &appsv1.Deployment{}
		if err := s.C.Get(ctx, client.ObjectKeyFromObject(u), d); err != nil {
			return client.IgnoreNotFound(err)
		}
		if int64(*d.Spec.Replicas) == replicas {
			continue
		}
		d.Spec.Replicas = ptr.To(int32(replicas))
		if err := s.C.Update(ctx, d, client.FieldOwner("autoscaler")); err != nil {
			return err
		}
	}
	return nil
}

// activated tells whether the plan has the pods of a component behind the activator.
func (p *plan) activated(component string) bool {
	return slices.ContainsFunc(p.decided, func(d decision) bool {
		return slices.ContainsFunc(d.children, func(c *unstructured.Unstructured) bool {
			return c.GetKind() == "Service" && c.GetName() == activation.PodsService(component)
		})
	})
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

// playAll plays everybody else in the namespace once: pods start and answer, revisions come up, routes are taken.
func (h *house) playAll(ctx context.Context) error {
	return errors.Join(h.rollAllOut(ctx), h.reviseAll(ctx), h.acceptAll(ctx))
}

func (h *house) rollAllOut(ctx context.Context) error {
	list := &appsv1.DeploymentList{}
	if err := h.C.List(ctx, list, client.InNamespace(h.NS)); err != nil {
		return err
	}
	for i := range list.Items {
		d := &list.Items[i]
		if d.Status.ObservedGeneration == d.Generation {
			continue
		}
		n := ptr.Deref(d.Spec.Replicas, 1)
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
			Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}}}
		if err := h.C.Status().Update(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func (h *house) reviseAll(ctx context.Context) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(knativeService().GroupVersionKind())
	if err := h.C.List(ctx, list, client.InNamespace(h.NS)); err != nil {
		return err
	}
	for i := range list.Items {
		service := &list.Items[i]
		if seen, _, _ := unstructured.NestedInt64(service.Object, "status", "observedGeneration"); seen == service.GetGeneration() {
			continue
		}
		h.reviseStatus(service)
		if err := h.C.Status().Update(ctx, service); err != nil {
			return err
		}
	}
	return nil
}

func (h *house) acceptAll(ctx context.Context) error {
	list := &gatewayv1.HTTPRouteList{}
	if err := h.C.List(ctx, list, client.InNamespace(h.NS)); err != nil {
		return err
	}
	for i := range list.Items {
		route := &list.Items[i]
		if p := route.Status.Parents; len(p) > 0 && p[0].Conditions[0].ObservedGeneration == route.Generation {
			continue
		}
		parent := route.Spec.ParentRefs[0]
		if err := servingtest.Gate(ctx, h.C, string(*parent.Namespace), string(parent.Name)); err != nil {
			return err
		}
		route.Status.Parents = []gatewayv1.RouteParentStatus{{
			ParentRef: route.Spec.ParentRefs[0], ControllerName: "test.dev/gateway",
			Conditions: []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted",
				ObservedGeneration: route.Generation, LastTransitionTime: metav1.Now()}},
		}}
		if err := h.C.Status().Update(ctx, route); err != nil {
			return err
		}
	}
	return nil
}
