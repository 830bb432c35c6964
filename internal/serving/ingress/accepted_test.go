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
		"a Service without the port": {conditions: []metav1.Condition{yes, condition(resolved, "False", 2, "PortNotFound", "TCP Port 80 not found on Service flowers/iris-predictor")},
			reason: "PortNotFound", message: "…Check that the Services of this service exist in namespace flowers."},
		"no pods": {conditions: []metav1.Condition{yes, condition("BackendsAvailable", "False", 2, "EndpointsNotFound", "no ready endpoints for the related Service flowers/iris-predictor.")},
			reason: "EndpointsNotFound", message: "The gateway kserve/kserve-ingress-gateway knows of no pod to send requests to (EndpointsNotFound: no ready endpoints for " +
				"the related Service flowers/iris-predictor). It is told of pods a moment after they are ready. If this stays, check that its controller may read " +
				"EndpointSlices in namespace flowers."},
		"no pods earlier": {conditions: []metav1.Condition{yes, condition("BackendsAvailable", "False", 1, "EndpointsNotFound", "")}, ok: true},
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
			checkAnswer(t, Accepted(wanted, live, Door{}), test.ok, test.reason, test.message)
		})
	}
}

// checkAnswer compares with a message that is whole, or a part after ….
func checkAnswer(t *testing.T, got *Answer, ok bool, reason, message string) {
	t.Helper()
	if got == nil {
		got = &Answer{}
	}
	part, partial := strings.CutPrefix(message, "…")
	fits := got.Message == message || partial && strings.Contains(got.Message, part)
	if (got.Reason == "") != ok || got.Reason != reason || !fits {
		t.Errorf("got %q, %q\nwant %v, %q, %q", got.Reason, got.Message, ok, reason, message)
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
		waiting := Accepted(wanted, live, Door{})
		for _, key := range keys {
			written := refusals[key].DeepCopyObject().(*gatewayv1.HTTPRoute)
			written.Status = gatewayv1.HTTPRouteStatus{}
			live[key] = written
			if got := Accepted(wanted, live, Door{}); got == nil || *got != *waiting {
				t.Errorf("with %d routes written it says %+v", len(live), got)
			}
		}
		refused := Accepted(wanted, refusals, Door{})
		for _, key := range keys {
			live[key] = refusals[key]
			if got := Accepted(wanted, live, Door{}); got == nil || *got != *refused {
				t.Errorf("after the answer to %s it says %+v", key, got)
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
	checkAnswer(t, Accepted(ingresses, nil, Door{}), false, ReasonNotWritten, "…Ingress flowers/iris is not written yet.")
	if got := Accepted(ingresses, map[string]client.Object{"Ingress/iris": ingresses[0]}, Door{}); got != nil {
		t.Errorf("an Ingress that exists is not accepted: %+v", got)
	}
	if got := Accepted(nil, nil, Door{Known: true}); got != nil {
		t.Errorf("nothing wanted is not accepted: %+v", got)
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
	if got := Accepted(routes, live, Door{}); got != nil {
		t.Errorf("routes without a type: %+v", got)
	}
	live[Key(routes[0])] = &unstructured.Unstructured{Object: map[string]any{"spec": "none"}}
	checkAnswer(t, Accepted(routes, live, Door{}), false, "RouteUnreadable", "…cannot be read")
}
