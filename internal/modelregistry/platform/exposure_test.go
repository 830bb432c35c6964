// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// TestProblemsOfRoutes: only the answer of the gateway that is meant, to the route as it is now, lets people in.
func TestProblemsOfRoutes(t *testing.T) {
	key, gateway := client.ObjectKey{Namespace: "n", Name: "catalog"}, client.ObjectKey{Namespace: "ingress", Name: "main"}
	for name, tc := range map[string]struct{ status, want string }{
		"admitted":          {"{ingress: [{conditions: [{type: Admitted, status: 'True'}]}]}", ""},
		"by one of several": {"{ingress: [{conditions: [{type: Admitted, status: 'False'}]}, {conditions: [{type: Admitted, status: 'True'}]}]}", ""},
		"refused":           {"{ingress: [{conditions: [{type: Admitted, status: 'False', message: 'The host is taken.'}]}]}", "not admitted: The host is taken. Look"},
		"silent":            {"{}", "not admitted: no router has answered yet."},

		"accepted":              {"{parents: [{parentRef: {name: main, namespace: ingress}, conditions: [{type: Accepted, status: 'True', observedGeneration: 2}]}]}", ""},
		"accepted by another":   {"{parents: [{parentRef: {name: other, namespace: ingress}, conditions: [{type: Accepted, status: 'True'}]}]}", "it has not answered yet"},
		"accepted before":       {"{parents: [{parentRef: {name: main, namespace: ingress}, conditions: [{type: Accepted, status: 'True', observedGeneration: 1}]}]}", "it has not answered yet"},
		"not accepted":          {"{parents: [{parentRef: {name: main, namespace: ingress}, conditions: [{type: Accepted, status: 'False', message: No listener.}]}]}", "Gateway ingress/main: No listener. Look"},
		"leads nowhere":         {"{parents: [{parentRef: {name: main, namespace: ingress}, conditions: [{type: Accepted, status: 'True'}, {type: ResolvedRefs, status: 'False', message: No such Service}]}]}", "No such Service"},
		"nothing that is known": {"{parents: [7, {parentRef: 7, conditions: 7}]}", "it has not answered yet"},
	} {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte("{apiVersion: a/v1, kind: R, metadata: {generation: 2}, status: "+tc.status+"}"), u); err != nil {
				t.Fatal(err)
			}
			got := GatewayProblem(key, gateway, u)
			if !strings.Contains(tc.status, "parents") {
				got = RouteProblem(key, u)
			}
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
		})
	}
	if got := RouteProblem(key, nil) + GatewayProblem(key, gateway, nil); got != "Route n/catalog is being made.HTTPRoute n/catalog is being made." {
		t.Error(got)
	}
}
