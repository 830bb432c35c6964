// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestStillLeads(t *testing.T) {
	const accepted = gatewayv1.RouteConditionAccepted
	toOld := func(r *gatewayv1.HTTPRoute) { r.Spec.Rules[0].BackendRefs[0].Name = "iris-v1-predictor" }
	for name, test := range map[string]struct {
		conditions []metav1.Condition
		change     func(*gatewayv1.HTTPRoute)
		door       Door
		want       bool
	}{
		"a route names it":           {conditions: []metav1.Condition{condition(accepted, "True", 2, "Accepted", "")}, change: toOld, want: true},
		"the change is not answered": {conditions: []metav1.Condition{condition(accepted, "True", 1, "Accepted", "")}, want: true},
		"the change is answered":     {conditions: []metav1.Condition{condition(accepted, "True", 2, "Accepted", "")}},
		"the change is refused":      {conditions: []metav1.Condition{condition(accepted, "False", 2, "NotAllowedByListeners", "")}},
		"generation not told":        {conditions: []metav1.Condition{condition(accepted, "True", 0, "Accepted", "")}},
		"the gateway is gone":        {conditions: []metav1.Condition{condition(accepted, "True", 1, "Accepted", "")}, change: toOld, door: Door{Known: true}},
		"the gateway is there": {conditions: []metav1.Condition{condition(accepted, "True", 1, "Accepted", "")},
			door: Door{Known: true, Gateway: &gatewayv1.Gateway{}}, want: true},
		"one that is no longer asked": {conditions: []metav1.Condition{condition(accepted, "True", 1, "Accepted", "")},
			change: func(r *gatewayv1.HTTPRoute) { r.Spec.ParentRefs[0].Name = "another" }},
		"no gateway ever answered": {change: func(r *gatewayv1.HTTPRoute) { r.Status.Parents = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			wanted := irisRoutes(t)
			live := answered(wanted, 2, test.conditions...)
			if test.change != nil {
				for _, route := range live {
					test.change(route.(*gatewayv1.HTTPRoute))
				}
			}
			if got := StillLeads(wanted, live, test.door, "iris-v1-predictor"); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if StillLeads(irisRoutes(t), map[string]client.Object{}, Door{}, "iris-v1-predictor") {
		t.Error("routes that are not there lead nowhere")
	}
}
