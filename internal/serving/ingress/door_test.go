// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/internal/config"
)

// gate is a Gateway of generation 2 with conditions.
func gate(conditions ...metav1.Condition) *gatewayv1.Gateway {
	g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "kserve", Name: "kserve-ingress-gateway", Generation: 2}}
	g.Status.Conditions = conditions
	return g
}

func said(kind gatewayv1.GatewayConditionType, status metav1.ConditionStatus, observed int64, reason, message string) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: status, ObservedGeneration: observed, Reason: reason, Message: message}
}

// TestDoor takes routes that were accepted once: what they say stays when the gateway goes.
func TestDoor(t *testing.T) {
	const accepted, programmed = gatewayv1.GatewayConditionAccepted, gatewayv1.GatewayConditionProgrammed
	yes := said(accepted, "True", 2, "Accepted", "")
	for name, test := range map[string]struct {
		door    Door
		ok      bool
		reason  string
		refused bool
		message string
	}{
		"not known": {ok: true},
		"gone": {door: Door{Known: true}, reason: ReasonGatewayMissing, refused: true,
			message: "There is no Gateway kserve/kserve-ingress-gateway, so that nothing leads to this service from outside. Create it, or name another one in " +
				"ingress.kserveIngressGateway of inferenceservice-config; nothing needs a restart."},
		"silent":      {door: Door{Known: true, Gateway: gate()}, ok: true},
		"well":        {door: Door{Known: true, Gateway: gate(yes, said(programmed, "True", 2, "Programmed", ""))}, ok: true},
		"in the open": {door: Door{Gateway: gate(yes)}, ok: true},
		"nobody looks after it": {door: Door{Known: true, Gateway: gate(said(accepted, "Unknown", 0, "Pending", "Waiting for controller"))},
			reason: ReasonNotAnswered, message: "…has not answered yet"},
		"refused": {door: Door{Known: true, Gateway: gate(said(accepted, "False", 2, "ListenersNotValid", "No listeners are valid: http"))},
			reason: "ListenersNotValid", refused: true, message: "…does not work (ListenersNotValid: No listeners are valid: http). Look at the conditions of this Gateway"},
		"without a proxy": {door: Door{Known: true, Gateway: gate(yes, said(programmed, "False", 2, "NoResources", "Envoy replicas unavailable"))},
			reason: "NoResources", refused: true, message: "…does not work (NoResources: Envoy replicas unavailable)."},
		"without an address": {door: Door{Known: true, Gateway: gate(yes, said(programmed, "False", 2, "AddressNotAssigned", "No addresses"))}, ok: true},
		"not yet programmed": {door: Door{Known: true, Gateway: gate(yes, said(programmed, "Unknown", 2, "Pending", ""))}, ok: true},
		"an earlier spec":    {door: Door{Known: true, Gateway: gate(yes, said(programmed, "False", 1, "Invalid", ""))}, ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			wanted := irisRoutes(t)
			live := answered(wanted, 2, condition(gatewayv1.RouteConditionAccepted, "True", 2, "Accepted", ""))
			got := Accepted(wanted, live, test.door)
			checkAnswer(t, got, test.ok, test.reason, test.message)
			if got != nil && got.Refused != test.refused {
				t.Errorf("refused is %v", got.Refused)
			}
		})
	}
}

// TestCanaryWithoutPods: of several Services one may be empty, and the others answer.
func TestCanaryWithoutPods(t *testing.T) {
	service := iris()
	service.Predictor.Canaries = []Share{{Service: "iris-v2-predictor", Percent: 20}}
	cfg := config.Default()
	cfg.Ingress.EnableGatewayAPI = true
	wanted, err := Objects(service, cfg)
	if err != nil {
		t.Fatal(err)
	}
	live := answered(wanted, 2, condition(gatewayv1.RouteConditionAccepted, "True", 2, "Accepted", ""),
		condition("BackendsAvailable", "False", 2, "EndpointsNotFound", ""))
	if got := Accepted(wanted, live, Door{}); got != nil {
		t.Errorf("got %+v", got)
	}
}

func TestGatewayKey(t *testing.T) {
	cfg := config.Default()
	if key, ok := GatewayKey(cfg); ok {
		t.Errorf("without routes there is %v", key)
	}
	cfg.Ingress.EnableGatewayAPI = true
	if key, ok := GatewayKey(cfg); !ok || key != (client.ObjectKey{Namespace: "kserve", Name: "kserve-ingress-gateway"}) {
		t.Errorf("got %v, %v", key, ok)
	}
	cfg.Ingress.KServeIngressGateway = "nowhere"
	if key, ok := GatewayKey(cfg); ok {
		t.Errorf("half a name is %v", key)
	}
}

// TestTrimGateway: neither a route that attaches nor a proxy more wakes anybody.
func TestTrimGateway(t *testing.T) {
	busy := func(routes int32, message string) *gatewayv1.Gateway {
		g := gate(said(gatewayv1.GatewayConditionAccepted, "True", 2, "Accepted", ""),
			said(gatewayv1.GatewayConditionProgrammed, "True", 2, "Programmed", message), said("Other", "True", 2, "Other", message))
		g.Spec.Listeners = []gatewayv1.Listener{{Name: "http"}}
		g.Status.Listeners = []gatewayv1.ListenerStatus{{Name: "http", AttachedRoutes: routes}}
		g.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Type: ptr.To(gatewayv1.IPAddressType), Value: message}}
		TrimGateway(g)
		return g
	}
	one, two := busy(1, "1/1 envoy replicas available"), busy(2, "2/2 envoy replicas available")
	if diff := cmp.Diff(one, two); diff != "" {
		t.Error(diff)
	}
	if len(one.Status.Conditions) != 2 || one.Generation != 2 {
		t.Errorf("too little is left: %+v", one)
	}
}
