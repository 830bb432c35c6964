// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// HostsOf are the hosts by which routes and Ingresses lead to one Service and to no other, in order. Where a host leads to
// several, by path, it does not tell them apart.
func HostsOf(objects []client.Object, service string) []string {
	leads := map[string]map[string]bool{}
	note := func(host, to string) {
		if leads[host] == nil {
			leads[host] = map[string]bool{}
		}
		leads[host][to] = true
	}
	for _, o := range objects {
		switch route := o.(type) {
		case *networkingv1.Ingress:
			noteIngress(route, note)
		case *gatewayv1.HTTPRoute:
			noteRoute(route, note)
		}
	}
	var out []string
	for host, to := range leads {
		if len(to) == 1 && to[service] {
			out = append(out, host)
		}
	}
	slices.Sort(out)
	return out
}

func noteIngress(i *networkingv1.Ingress, note func(host, to string)) {
	for _, rule := range i.Spec.Rules {
		for _, path := range rule.HTTP.Paths {
			note(rule.Host, path.Backend.Service.Name)
		}
	}
}

// noteRoute takes the first backend of each rule: the others are canaries, which are reached directly. A rule for a path only
// takes a part of the host, which all services share.
func noteRoute(r *gatewayv1.HTTPRoute, note func(host, to string)) {
	for _, host := range r.Spec.Hostnames {
		for _, rule := range r.Spec.Rules {
			to := string(rule.BackendRefs[0].Name)
			for _, m := range rule.Matches {
				if m.Path != nil && m.Path.Type != nil && *m.Path.Type != gatewayv1.PathMatchRegularExpression {
					to = ""
				}
			}
			note(string(host), to)
		}
	}
}
