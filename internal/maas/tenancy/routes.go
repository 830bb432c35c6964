// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/routes"
)

// RouteInputs are what ModelRoutes reads.
func RouteInputs() []engine.Input {
	return []engine.Input{{Object: &v1alpha1.MaaSModelRef{}}, {Object: &gatewayv1.HTTPRoute{}, Optional: true}}
}

// models are the kinds whose routes lead to a model, whether or not it is published.
var models = []string{"InferenceService", "LLMInferenceService", "InferenceGraph", "ExternalModel"}

// ModelRoutes are the HTTPRoutes through which models are reached at a gateway, as namespace/name. While there are some, what checks
// requests there must stay: not all routes are ours to remove.
func ModelRoutes(ctx context.Context, r engine.Reader, gateway types.NamespacedName) ([]string, error) {
	list, refs := &gatewayv1.HTTPRouteList{}, &v1alpha1.MaaSModelRefList{}
	err := r.List(ctx, list, engine.MatchingFunc(func(obj client.Object) bool {
		route, ok := obj.(*gatewayv1.HTTPRoute)
		return ok && routes.HangsOn(route, gateway)
	}))
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := r.List(ctx, refs); err != nil {
		return nil, err
	}
	published := map[types.NamespacedName]bool{}
	for i := range refs.Items {
		s := &refs.Items[i].Status
		published[types.NamespacedName{Namespace: s.HTTPRouteNamespace, Name: s.HTTPRouteName}] = true
	}
	var out []string
	for i := range list.Items {
		route := &list.Items[i]
		owner := metav1.GetControllerOf(route)
		if routes.HangsOn(route, gateway) && (published[client.ObjectKeyFromObject(route)] || owner != nil && slices.Contains(models, owner.Kind)) {
			out = append(out, route.Namespace+"/"+route.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Some names the first of many in words.
func Some(names []string) string {
	const enough = 3
	if len(names) > enough {
		return strings.Join(names[:enough], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}
