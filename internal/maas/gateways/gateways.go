// SPDX-License-Identifier: Apache-2.0

// Package gateways is what the controllers of Models-as-a-Service know of gateways: their kinds, who implements one, and
// whether it took a route. It plans nothing, and imports neither Istio nor Envoy Gateway: their few fields are written as
// they are on the wire.
package gateways

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
)

// Optional APIs.
var (
	Gateway          = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Gateway"}
	GatewayClass     = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "GatewayClass"}
	HTTPRoute        = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}
	BackendTLSPolicy = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "BackendTLSPolicy"}
	ReferenceGrant   = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1beta1", Kind: "ReferenceGrant"}

	ServiceEntry    = schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1", Kind: "ServiceEntry"}
	DestinationRule = schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1", Kind: "DestinationRule"}
	EnvoyFilter     = schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1alpha3", Kind: "EnvoyFilter"}
	Telemetry       = schema.GroupVersionKind{Group: "telemetry.istio.io", Version: "v1", Kind: "Telemetry"}

	Backend              = schema.GroupVersionKind{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "Backend"}
	EnvoyExtensionPolicy = schema.GroupVersionKind{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "EnvoyExtensionPolicy"}
)

// Plurals that cannot be guessed from the kind.
const (
	GatewayResource          = "gateways"
	GatewayClassResource     = "gatewayclasses"
	BackendTLSPolicyResource = "backendtlspolicies"
	ServiceEntryResource     = "serviceentries"
	ExtensionPolicyResource  = "envoyextensionpolicies"
)

// Flavour is who implements a gateway.
type Flavour string

// The implementations that something special is done for.
const (
	Istio        Flavour = "Istio"
	EnvoyGateway Flavour = "EnvoyGateway"
	Other        Flavour = "Other"
)

// Seen is what was found of a Gateway.
type Seen struct {
	Key    client.ObjectKey
	Exists bool
	// Listeners, as the Gateway has them.
	Listeners []any
	Flavour   Flavour
}

// Inputs are what Observe reads.
func Inputs() []engine.Input {
	return []engine.Input{
		{Object: Foreign(Gateway), Resource: GatewayResource, Optional: true, Trim: TrimGateway},
		{Object: Foreign(GatewayClass), Resource: GatewayClassResource, Optional: true, Trim: TrimGatewayClass},
	}
}

// TrimGateway keeps of a Gateway its class and its listeners.
func TrimGateway(obj client.Object) {
	Keep(obj, []string{"spec", "gatewayClassName"}, []string{"spec", "listeners"}, []string{"spec", "addresses"}, []string{"status", "addresses"})
}

// TrimGatewayClass keeps of a GatewayClass who looks after it.
func TrimGatewayClass(obj client.Object) { Keep(obj, []string{"spec", "controllerName"}) }

// Keep leaves of an object what it is called and these fields.
func Keep(obj client.Object, paths ...[]string) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	kept := map[string]any{}
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		kept[name] = u.Object[name]
	}
	for _, path := range paths {
		if value, found, err := unstructured.NestedFieldNoCopy(u.Object, path...); found && err == nil {
			_ = setNoCopy(kept, value, path...)
		}
	}
	u.Object = kept
}

func setNoCopy(into map[string]any, value any, path ...string) error {
	for _, name := range path[:len(path)-1] {
		next, ok := into[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			into[name] = next
		}
		into = next
	}
	into[path[len(path)-1]] = value
	return nil
}

// Observe looks at a Gateway and at who implements it.
func Observe(ctx context.Context, r engine.Reader, key client.ObjectKey) (Seen, error) {
	seen := Seen{Key: key, Flavour: Other}
	gateway := Foreign(Gateway)
	err := r.Get(ctx, key, gateway)
	if absent(err) {
		seen.Flavour = byAPIs(r)
		return seen, nil
	}
	if err != nil {
		return seen, err
	}
	seen.Exists = true
	seen.Listeners, _, _ = unstructured.NestedSlice(gateway.Object, "spec", "listeners")
	name, _, _ := unstructured.NestedString(gateway.Object, "spec", "gatewayClassName")
	class := Foreign(GatewayClass)
	if err := r.Get(ctx, client.ObjectKey{Name: name}, class); err != nil && !absent(err) {
		return seen, err
	}
	controller, _, _ := unstructured.NestedString(class.Object, "spec", "controllerName")
	switch {
	case strings.HasPrefix(controller, "gateway.envoyproxy.io/"):
		seen.Flavour = EnvoyGateway
	case strings.HasPrefix(controller, "istio.io/"), strings.HasPrefix(controller, "openshift.io/gateway-controller"):
		seen.Flavour = Istio
	case controller == "":
		seen.Flavour = byAPIs(r)
	}
	return seen, nil
}

// byAPIs guesses who will implement a gateway that is not there yet.
func byAPIs(r engine.Reader) Flavour {
	switch {
	case r.HasAPI(ServiceEntry.GroupKind()):
		return Istio
	case r.HasAPI(Backend.GroupKind()):
		return EnvoyGateway
	}
	return Other
}

// absent tells whether something is not there, be it the object or its kind.
func absent(err error) bool {
	return err != nil && (client.IgnoreNotFound(err) == nil || meta.IsNoMatchError(err))
}

// Absent tells whether a read found nothing, be it for want of the object or of its kind.
func Absent(err error) bool { return absent(err) }

// Foreign is an empty object of a kind that has no Go type here.
func Foreign(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// Object is one with a spec.
func Object(gvk schema.GroupVersionKind, m metav1.ObjectMeta, spec map[string]any) *unstructured.Unstructured {
	u := Foreign(gvk)
	u.SetNamespace(m.Namespace)
	u.SetName(m.Name)
	u.SetLabels(m.Labels)
	u.SetAnnotations(m.Annotations)
	u.Object["spec"] = spec
	return u
}

// Answer is what gateways say of a route: nil when all of them took it as it is now.
type Answer struct {
	// Refused says that waiting alone will not help.
	Refused bool
	Message string
}

// Accepted asks whether the gateways have taken a live route. A route that is not there was taken by nobody.
func Accepted(route *unstructured.Unstructured, gateways []client.ObjectKey) *Answer {
	var waiting *Answer
	for _, key := range gateways {
		a := acceptedBy(route, key)
		if a == nil {
			continue
		}
		if a.Refused {
			return a
		}
		waiting = a
	}
	return waiting
}

func acceptedBy(route *unstructured.Unstructured, key client.ObjectKey) *Answer {
	silent := &Answer{Message: fmt.Sprintf("The gateway %s has not answered for the route yet. Check that its controller runs.", key)}
	if route == nil {
		return silent
	}
	parents, _, _ := unstructured.NestedSlice(route.Object, "status", "parents")
	for _, item := range parents {
		parent, _ := item.(map[string]any)
		ref, _ := parent["parentRef"].(map[string]any)
		name, _ := ref["name"].(string)
		namespace, _ := ref["namespace"].(string)
		if namespace == "" {
			namespace = route.GetNamespace()
		}
		if name != key.Name || namespace != key.Namespace {
			continue
		}
		return verdict(parent, route.GetGeneration(), key, silent)
	}
	return silent
}

// verdict reads the conditions that a gateway gave to a route.
func verdict(parent map[string]any, generation int64, key client.ObjectKey, silent *Answer) *Answer {
	conditions, _ := parent["conditions"].([]any)
	taken := false
	for _, item := range conditions {
		c, _ := item.(map[string]any)
		typ, _ := c["type"].(string)
		status, _ := c["status"].(string)
		about, stamped := c["observedGeneration"].(int64)
		if typ != "Accepted" && typ != "ResolvedRefs" || stamped && generation > 0 && about < generation {
			continue
		}
		if status == "False" {
			message, _ := c["message"].(string)
			reason, _ := c["reason"].(string)
			return &Answer{Refused: true, Message: fmt.Sprintf("The gateway %s did not take the route (%s: %s). Correct what it names.", key, reason, strings.TrimRight(strings.Join(strings.Fields(message), " "), "."))}
		}
		taken = taken || typ == "Accepted" && status == "True"
	}
	if taken {
		return nil
	}
	return silent
}
