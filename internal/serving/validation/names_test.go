// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/ingress"
)

const pathOn = `{apiVersion: v1, kind: ConfigMap, metadata: {name: inferenceservice-config, namespace: kserve}, data: {ingress: '{"enableGatewayApi": true, ` +
	`"ingressGateway": "a/b", "kserveIngressGateway": "a/b", "ingressDomain": "models.test", "pathTemplate": "/serving/{{ .Namespace }}/{{ .Name }}"}'}}`

func canary(name string) string {
	return `{predictor: {` + iris + `}, canary: [{trafficPercent: 10, predictor: {name: ` + name + `, ` + iris + `}}]}`
}

func router(name string) string {
	return graphNamed(name+", namespace: a", "root: {routerType: Sequence, steps: [{serviceName: iris}]}")
}

func given(objects ...string) string { return strings.Join(objects, "\n---\n") }

var nameExamples = []example{
	rejected("name of another's route", named("iris-path", standard, plain)).with(given(pathOn, isvc(standard, plain))),
	rejected("whose route is another's name", isvc(standard, plain)).with(given(pathOn, named("iris-path", standard, plain))),
	accepted("no routes by path", named("iris-path", standard, plain)).with(given(gatewayOn, isvc(standard, plain))),
	accepted("no routes at all", named("iris-predictor", standard, plain)).with(isvc(standard, plain)),
	rejected("name of another's route for its predictor", named("iris-predictor", standard, plain)).with(given(gatewayOn, isvc(standard, plain))),
	rejected("name of another's canary", named("iris-new", standard, plain)).with(isvc(standard, canary("new"))),
	rejected("canary with the name of another", isvc(standard, canary("new"))).with(named("iris-new", standard, plain)),
	rejected("canary that is added", isvc(standard, canary("new"))).over(isvc(standard, plain)).with(named("iris-new", standard, plain)),
	accepted("canary that clashed before", isvc(standard, strings.Replace(canary("new"), "{predictor: {", "{predictor: {minReplicas: 3, ", 1))).
		over(isvc(standard, canary("new"))).with(named("iris-new", standard, plain)),
	rejected("graph with the name of a predictor", router("iris-predictor")).with(isvc(standard, plain)),
	accepted("graph with the name of a service", router("iris")).with(isvc(standard, plain)),
	rejected("transformer with the name of a graph", isvc(standard, transformer(""))).with(router("iris-transformer")),
	accepted("the same in another namespace", named("iris-new", standard, plain)).with(strings.Replace(isvc(standard, canary("new")), "namespace: a", "namespace: b", 1)),
	accepted("one that is being deleted", named("iris-new", standard, plain)).
		with(strings.Replace(isvc(standard, canary("new")), "metadata: {", "metadata: {deletionTimestamp: '2026-01-01T00:00:00Z', ", 1)),
	accepted("predictor of the mesh", named("iris-new", mesh, plain)).with(isvc(standard, canary("new"))),
}

// What is checked at admission is what is made.
func TestRouteNamesAreThoseOfTheRoutes(t *testing.T) {
	cfg := config.Default()
	cfg.Ingress.EnableGatewayAPI, cfg.Ingress.KServeIngressGateway, cfg.Ingress.PathTemplate = true, "a/b", "/{{ .Namespace }}/{{ .Name }}"
	backend := ingress.Backend{Service: &corev1.Service{}}
	s := ingress.Service{Name: "iris", Namespace: "a", Predictor: backend, Transformer: &backend, Explainer: &backend}
	objects, err := ingress.Objects(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, name := range ingress.RouteNames(s, cfg) {
		names[name] = true
	}
	for _, o := range objects {
		if !names[o.GetName()] {
			t.Errorf("%s is not among %v", o.GetName(), names)
		}
	}
	if len(names) != len(objects) {
		t.Errorf("%d names for %d routes", len(names), len(objects))
	}
}
