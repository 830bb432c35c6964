// SPDX-License-Identifier: Apache-2.0

// Package platform is what the servers of registries and of the catalog have in common on a cluster: which APIs of OpenShift and
// of gateways lead to them, what they prove their names with, what keeps others out, and which pods of another operator run on.
// It plans no server, and knows neither kind.
package platform

import (
	"cmp"
	"context"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
)

// Optional APIs.
var (
	Route          = schema.GroupVersionKind{Group: "route.openshift.io", Version: "v1", Kind: "Route"}
	ClusterIngress = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "Ingress"}
	HTTPRoute      = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}
	ReferenceGrant = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1beta1", Kind: "ReferenceGrant"}
)

// Foreign is an empty object of a kind that has no Go type here.
func Foreign(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// ForeignObject is one with a spec.
func ForeignObject(gvk schema.GroupVersionKind, meta metav1.ObjectMeta, spec map[string]any) *unstructured.Unstructured {
	u := Foreign(gvk)
	u.SetNamespace(meta.Namespace)
	u.SetName(meta.Name)
	u.SetLabels(meta.Labels)
	u.Object["spec"] = spec
	return u
}

// Exists takes NotFound for an answer.
func Exists(err error) (bool, error) { return err == nil, client.IgnoreNotFound(err) }

// AnyOf selects objects whose label has one of the values, among everything of a kind in the cluster.
func AnyOf(label string, values ...string) labels.Selector {
	in, err := labels.NewRequirement(label, selection.In, values)
	if err != nil {
		panic(err) // constants
	}
	return labels.NewSelector().Add(*in)
}

// ClusterDomain asks OpenShift for the domain of its Routes; empty if nobody says it.
func ClusterDomain(ctx context.Context, r engine.Reader) (string, error) {
	if !r.HasAPI(ClusterIngress.GroupKind()) {
		return "", nil
	}
	ingress := Foreign(ClusterIngress)
	found, err := Exists(r.Get(ctx, client.ObjectKey{Name: "cluster"}, ingress))
	if !found {
		return "", err
	}
	apps, _, _ := unstructured.NestedString(ingress.Object, "spec", "appsDomain")
	domain, _, _ := unstructured.NestedString(ingress.Object, "spec", "domain")
	return cmp.Or(apps, domain), nil
}

// TrimSlice keeps of an EndpointSlice which of its endpoints take requests.
func TrimSlice(obj client.Object) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	slice.Ports, slice.Annotations = nil, nil
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		*e = discoveryv1.Endpoint{Addresses: e.Addresses[:min(1, len(e.Addresses))], Conditions: e.Conditions}
	}
}

// Endpoints is how many pods take requests through a Service.
func Endpoints(ctx context.Context, r engine.Reader, service client.ObjectKey) (int, error) {
	found, name := &discoveryv1.EndpointSliceList{}, service.Name
	its := engine.MatchingFunc(func(obj client.Object) bool { return obj.GetLabels()[discoveryv1.LabelServiceName] == name })
	err := r.List(ctx, found, client.InNamespace(service.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: name}, its)
	n := 0
	for _, slice := range found.Items {
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				n++
			}
		}
	}
	return n, err
}
