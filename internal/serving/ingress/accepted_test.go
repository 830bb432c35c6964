// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/internal/config"
)

func irisRoutes(t *testing.T) []client.Object {
	t.Helper()
	cfg := config.Default()
	cfg.Ingress.EnableGatewayAPI = true
	objects, err := Objects(iris(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func iris() Service {
	return Service{Name: "iris", Namespace: "flowers", Predictor: Backend{
		Service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "iris-predictor"}},
	}}
}

// answered is the wanted routes as they look when a gateway gave the same answer to all.
func answered(wanted []client.Object, generation int64, conditions ...metav1.Condition) map[string]client.Object {
	live := map[string]client.Object{}
	for _, want := range wanted {
		route := want.DeepCopyObject().(*gatewayv1.HTTPRoute)
		route.Generation = generation
		route.Status.Parents = []gatewayv1.RouteParentStatus{{
			ParentRef:      gatewayv1.ParentReference{Namespace: ptr.To[gatewayv1.Namespace]("kserve"), Name: "kserve-ingress-gateway"},
			ControllerName: "example.com/gateway",
			Conditions:     conditions,
		}}
		live[Key(want)] = route
	}
	return live
}

func condition(kind gatewayv1.RouteConditionType, status metav1.ConditionStatus, observed int64, reason, message string) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: status, ObservedGeneration: observed, Reason: reason, Message: message}
}

func TestAccepted(t *testing.T) {
	const accepted, resolved = gatewayv1.RouteConditionAccepted, gatewayv1.RouteConditionResolvedRefs
	yes := condition(accepted, "True", 2, "Accepted", "")
	const waiting = "The gateway kserve/kserve-ingress-gateway has not answered yet. " +
		"Check that a Gateway of that name exists and that its controller runs."
	tests := map[string]struct {
		conditions []metav1.Condition
		change     func(route *gatewayv1.HTTPRoute)
		ok         bool
		reason     string
		message    string // whole, or a part after …
	}{
		"accepted":                  {conditions: []metav1.Condition{yes}, ok: true},
		"accepted and resolved":     {conditions: []metav1.Condition{yes, condition(resolved, "True", 2, "ResolvedRefs", "")}, ok: true},
		"generation not told":       {conditions: []metav1.Condition{condition(accepted, "True", 0, "Accepted", "")}, ok: true},
		"references not yet looked": {conditions: []metav1.Condition{yes, condition(resolved, "Unknown", 2, "Pending", "")}, ok: true},
		"no condition":              {reason: ReasonNotAnswered, message: waiting},
		"unknown":                   {conditions: []metav1.Condition{condition(accepted, "Unknown", 2, "Pending", "")}, reason: ReasonNotAnswered, message: waiting},
		"pending":                   {conditions: []metav1.Condition{condition(accepted, "False", 2, "Pending", "")}, reason: ReasonNotAnswered, message: waiting},
		"an earlier generation":     {conditions: []metav1.Condition{condition(accepted, "True", 1, "Accepted", "")}, reason: ReasonNotAnswered, message: waiting},
		"refused earlier":           {conditions: []metav1.Condition{condition(accepted, "False", 1, "NotAllowedByListeners", "")}, reason: ReasonNotAnswered, message: waiting},
		"references wrong earlier": {conditions: []metav1.Condition{yes, condition(resolved, "False", 1, "BackendNotFound", "")},
			reason: ReasonNotAnswered, message: waiting},
		"no parent": {conditions: []metav1.Condition{yes}, change: func(r *gatewayv1.HTTPRoute) { r.Status.Parents = nil },
			reason: ReasonNotAnswered, message: waiting},
		"another gateway's answer": {conditions: []metav1.Condition{yes}, change: func(r *gatewayv1.HTTPRoute) { r.Status.Parents[0].ParentRef.Name = "other" },
			reason: ReasonNotAnswered, message: waiting},
		"an answer for one listener": {conditions: []metav1.Condition{yes},
			change: func(r *gatewayv1.HTTPRoute) {
				r.Status.Parents[0].ParentRef.SectionName = ptr.To[gatewayv1.SectionName]("http")
			},
			reason: ReasonNotAnswered, message: waiting},
		"other hosts": {conditions: []metav1.Condition{yes}, change: func(r *gatewayv1.HTTPRoute) { r.Spec.Hostnames[0] = "old.example.com" },
			reason: ReasonNotAnswered, message: waiting},
		"another gateway asked": {conditions: []metav1.Condition{yes}, change: func(r *gatewayv1.HTTPRoute) { r.Spec.ParentRefs[0].Name = "old" },
			reason: ReasonNotAnswered, message: waiting},
		"not allowed": {conditions: []metav1.Condition{condition(accepted, "False", 2, "NotAllowedByListeners", "No listener allows it.")},
			reason: "NotAllowedByListeners",
			message: "The gateway kserve/kserve-ingress-gateway does not serve this service (NotAllowedByListeners: No listener allows it). " +
				"Allow HTTPRoutes from namespace flowers in allowedRoutes of the Gateway's listeners."},
		"no hostname": {conditions: []metav1.Condition{condition(accepted, "False", 2, "NoMatchingListenerHostname", "NoMatchingListenerHostname")},
			reason: "NoMatchingListenerHostname", message: "…(NoMatchingListenerHostname). Give the Gateway a listener whose hostname covers"},
		"no parent matches": {conditions: []metav1.Condition{condition(accepted, "False", 2, "NoMatchingParent", "")},
			reason: "NoMatchingParent", message: "…Check kserveIngressGateway"},
		"unsupported": {conditions: []metav1.Condition{condition(accepted, "False", 2, "UnsupportedValue", "timeouts")},
			reason: "UnsupportedValue", message: "…disableHTTPRouteTimeout"},
		"a reason of its own": {conditions: []metav1.Condition{condition(accepted, "False", 2, "Unheard", "100% wrong")},
			reason: "Unheard", message: "…(Unheard: 100% wrong). Look at the status of the HTTPRoutes in namespace flowers"},
		"backend not found": {conditions: []metav1.Condition{yes, condition(resolved, "False", 2, "BackendNotFound", "no Service iris-predictor")},
			reason: "BackendNotFound", message: "…Check that the Services of this service exist in namespace flowers."},
		"reference not permitted": {conditions: []metav1.Condition{yes, condition(resolved, "False", 2, "RefNotPermitted", "")},
			reason: "RefNotPermitted", message: "…Allow the Gateway's controller"},
		"partly invalid": {conditions: []metav1.Condition{yes, condition(gatewayv1.RouteConditionPartiallyInvalid, "True", 2, "UnsupportedValue", "dropped a rule")},
			reason: "UnsupportedValue", message: "…dropped a rule"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			wanted := irisRoutes(t)
			live := answered(wanted, 2, test.conditions...)
			if test.change != nil {
				test.change(live["HTTPRoute/iris"].(*gatewayv1.HTTPRoute))
			}
			ok, reason, message := Accepted(wanted, live)
			part, partial := strings.CutPrefix(test.message, "…")
			fits := message == test.message || partial && strings.Contains(message, part)
			if ok != test.ok || reason != test.reason || !fits {
				t.Errorf("got %v, %q, %q\nwant %v, %q, %q", ok, reason, message, test.ok, test.reason, test.message)
			}
		})
	}
}

// TestAcceptedWords proves that the words do not change while routes are written and answered one after the other, in
// whatever order.
func TestAcceptedWords(t *testing.T) {
	wanted := irisRoutes(t)
	refusals := answered(wanted, 1, condition(gatewayv1.RouteConditionAccepted, "False", 1, "NotAllowedByListeners", "no"))
	keys := slices.Sorted(maps.Keys(refusals))
	for range 2 {
		live := map[string]client.Object{}
		_, waitingReason, waitingMessage := Accepted(wanted, live)
		for _, key := range keys {
			written := refusals[key].DeepCopyObject().(*gatewayv1.HTTPRoute)
			written.Status = gatewayv1.HTTPRouteStatus{}
			live[key] = written
			if ok, reason, message := Accepted(wanted, live); ok || reason != waitingReason || message != waitingMessage {
				t.Errorf("with %d routes written it says %v, %s: %s", len(live), ok, reason, message)
			}
		}
		_, refusedReason, refusedMessage := Accepted(wanted, refusals)
		for _, key := range keys {
			live[key] = refusals[key]
			if ok, reason, message := Accepted(wanted, live); ok || reason != refusedReason || message != refusedMessage {
				t.Errorf("after the answer to %s it says %v, %s: %s", key, ok, reason, message)
			}
		}
		slices.Reverse(keys)
	}
}

func TestAcceptedKinds(t *testing.T) {
	ingresses, err := Objects(iris(), config.Default())
	if err != nil {
		t.Fatal(err)
	}
	ok, reason, message := Accepted(ingresses, nil)
	if ok || reason != ReasonNotWritten || !strings.HasPrefix(message, "Ingress flowers/iris is not written yet.") {
		t.Errorf("an Ingress that does not exist: %v, %s: %s", ok, reason, message)
	}
	if ok, reason, _ := Accepted(ingresses, map[string]client.Object{"Ingress/iris": ingresses[0]}); !ok || reason != "" {
		t.Errorf("an Ingress that exists is not accepted: %s", reason)
	}
	if ok, reason, message := Accepted(nil, nil); !ok || reason != "" || message != "" {
		t.Errorf("nothing wanted is not accepted: %s: %s", reason, message)
	}

	routes := irisRoutes(t)
	live := answered(routes, 1, condition(gatewayv1.RouteConditionAccepted, "True", 1, "Accepted", ""))
	for key, route := range live {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(route)
		if err != nil {
			t.Fatal(err)
		}
		live[key] = &unstructured.Unstructured{Object: content}
	}
	if ok, reason, message := Accepted(routes, live); !ok {
		t.Errorf("routes without a type: %s: %s", reason, message)
	}
	live[Key(routes[0])] = &unstructured.Unstructured{Object: map[string]any{"spec": "none"}}
	if ok, reason, _ := Accepted(routes, live); ok || reason != "RouteUnreadable" {
		t.Errorf("a route that cannot be read: %v, %s", ok, reason)
	}
}
