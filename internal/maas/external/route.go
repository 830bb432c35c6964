// SPDX-License-Identifier: Apache-2.0

package external

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/maas/gateways"
)

// requestTimeout is how long a provider may take for an answer.
const requestTimeout = "300s"

// mostRules is how many rules a route may have.
const mostRules = 16

// rule leads what matches to a backend, under the backend's own host name.
func rule(b backend, matches ...map[string]any) map[string]any {
	var all []any
	for _, m := range matches {
		all = append(all, m)
	}
	return map[string]any{
		"matches":     all,
		"filters":     []any{map[string]any{"type": "URLRewrite", "urlRewrite": map[string]any{"hostname": b.host}}},
		"backendRefs": []any{b.ref()},
		"timeouts":    map[string]any{"request": requestTimeout},
	}
}

// byPath matches requests that name the model in their path, and byHeaders those of which the payload processor said it.
func byPath(namespace, name string) map[string]any {
	return map[string]any{"path": map[string]any{"type": "PathPrefix", "value": "/" + namespace + "/" + name}}
}

func byHeaders(match map[string]any, pairs ...string) map[string]any {
	headers, _ := match["headers"].([]any)
	out := map[string]any{}
	for k, v := range match {
		out[k] = v
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		headers = append(headers, map[string]any{"type": "Exact", "name": pairs[i], "value": pairs[i+1]})
	}
	out["headers"] = headers
	return out
}

// routes are the HTTPRoutes with these rules: one, or several where one may not have them all.
func routes(meta metav1.ObjectMeta, open []gateways.Seen, rules []any) []client.Object {
	var parents []any
	for _, d := range open {
		parents = append(parents, map[string]any{
			"group": gateways.Gateway.Group, "kind": gateways.Gateway.Kind, "namespace": d.Key.Namespace, "name": d.Key.Name,
		})
	}
	var out []client.Object
	for n := 1; len(rules) > 0; n++ {
		part := rules[:min(len(rules), mostRules)]
		rules = rules[len(part):]
		m := meta
		if n > 1 {
			m.Name = fmt.Sprintf("%s-%d", meta.Name, n)
		}
		out = append(out, gateways.Object(gateways.HTTPRoute, m, map[string]any{"parentRefs": parents, "rules": part}))
	}
	return out
}

func namesOfGateways(open []gateways.Seen) []client.ObjectKey {
	var out []client.ObjectKey
	for _, d := range open {
		out = append(out, d.Key)
	}
	return out
}

// answered asks the gateways about all routes that are wanted.
func answered(wanted []client.Object, live map[string]*unstructured.Unstructured, open []gateways.Seen) *gateways.Answer {
	var first *gateways.Answer
	for _, w := range wanted {
		a := gateways.Accepted(live[w.GetName()], namesOfGateways(open))
		if a != nil && (first == nil || a.Refused && !first.Refused) {
			first = a
		}
	}
	return first
}
