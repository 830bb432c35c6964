// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	gatewayNamespace = "gateways"
	gatewayName      = gatewayNamespace + "/shared"
	gatewayWorkers   = 4
)

// acceptRoutes plays a gateway that takes every HTTPRoute as soon as it sees it.
func (b *bed) acceptRoutes(ctx context.Context) {
	b.t.Helper()
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: gatewayNamespace}})
	b.create(&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: gatewayNamespace, Name: "shared"}})
	routes, err := cache.New(b.Config(), cache.Options{Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		b.t.Fatal(err)
	}
	informer, err := routes.GetInformer(ctx, &gatewayv1.HTTPRoute{}, cache.BlockUntilSynced(false))
	if err != nil {
		b.t.Fatal(err)
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[client.ObjectKey]())
	see := func(obj any) {
		if route, ok := obj.(*gatewayv1.HTTPRoute); ok && !accepted(route) {
			queue.Add(client.ObjectKeyFromObject(route))
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) }}); err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	b.t.Cleanup(func() { stop(); queue.ShutDown() })
	go func() { _ = routes.Start(ctx) }() // ends with the context only
	for range gatewayWorkers {
		go func() {
			for {
				key, done := queue.Get()
				if done {
					return
				}
				if err := accept(ctx, routes, b.client, key); client.IgnoreNotFound(err) != nil {
					queue.AddRateLimited(key)
				} else {
					queue.Forget(key)
				}
				queue.Done(key)
			}
		}()
	}
}

func accepted(route *gatewayv1.HTTPRoute) bool {
	return !slices.ContainsFunc(route.Spec.ParentRefs, func(ref gatewayv1.ParentReference) bool {
		return !slices.ContainsFunc(route.Status.Parents, func(p gatewayv1.RouteParentStatus) bool {
			c := meta.FindStatusCondition(p.Conditions, string(gatewayv1.RouteConditionAccepted))
			return p.ParentRef.Name == ref.Name && c != nil && c.ObservedGeneration == route.Generation
		})
	})
}

func accept(ctx context.Context, from client.Reader, to client.Client, key client.ObjectKey) error {
	route := &gatewayv1.HTTPRoute{}
	if err := from.Get(ctx, key, route); err != nil {
		return err
	}
	route.Status.Parents = nil
	for _, ref := range route.Spec.ParentRefs {
		parent := gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: "gateway.test/played"}
		for _, typ := range []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted, gatewayv1.RouteConditionResolvedRefs} {
			parent.Conditions = append(parent.Conditions, metav1.Condition{
				Type: string(typ), Status: metav1.ConditionTrue, Reason: string(typ),
				ObservedGeneration: route.Generation, LastTransitionTime: metav1.NewTime(time.Now()),
			})
		}
		route.Status.Parents = append(route.Status.Parents, parent)
	}
	return to.Status().Update(ctx, route)
}
