// SPDX-License-Identifier: Apache-2.0

package platform_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/platform"
	"github.com/modelplane/modelplane/internal/maas/settings"
)

// What a tenant that moves from Gateway red to Gateway new has, besides what one of the name that stays has.
const (
	newGateway = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {namespace: openshift-ingress, name: new}
spec: {gatewayClassName: CLASS}`
	istioClass = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: istio}
spec: {controllerName: istio.io/gateway-controller}`
	claimOfRed = `apiVersion: v1
kind: ConfigMap
metadata: {namespace: ai-tenants, name: gateway-claim-705e8f685c92cc3526abd494157d20dd, uid: first, creationTimestamp: "2026-01-01T00:00:00Z", labels: {maas.opendatahub.io/gateway-claim: "true", maas.opendatahub.io/tenant-name: red, modelplane.dev/gateway: red}}`
	claimOfNew = `apiVersion: v1
kind: ConfigMap
metadata: {namespace: ai-tenants, name: gateway-claim-6ff3aa1db386963433db2fdf64fd6da3, uid: second, creationTimestamp: "2026-02-01T00:00:00Z", labels: {maas.opendatahub.io/gateway-claim: "true", maas.opendatahub.io/tenant-name: HOLDER, modelplane.dev/gateway: new}}`
	tenantThatMoves = `apiVersion: maas.opendatahub.io/v1alpha1
kind: AITenant
metadata: {namespace: ai-tenants, name: red}
spec: {gateway: {name: new}}
status: {gatewayRef: {namespace: openshift-ingress, name: red}}`
	tenantThatMoved = `apiVersion: maas.opendatahub.io/v1alpha1
kind: AITenant
metadata: {namespace: ai-tenants, name: red}
spec: {gateway: {name: new}}
status: {gatewayRef: {namespace: openshift-ingress, name: new}}`
	blue = `apiVersion: maas.opendatahub.io/v1alpha1
kind: AITenant
metadata: {namespace: ai-tenants, name: blue}`
	checkedByProcessor = `apiVersion: maas.opendatahub.io/v1alpha1
kind: MaasTenantConfig
metadata: {namespace: ai-tenant-red, name: default-tenant}
status: {conditions: [{type: EnforcedBy, status: "True", reason: BuiltIn, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`
	askedAtNew = `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyExtensionPolicy
metadata: {namespace: openshift-ingress, name: payload-processing-red, generation: 2}
status: {ancestors: [{ancestorRef: {name: new}, conditions: [{type: Accepted, status: "True", reason: Accepted, observedGeneration: GENERATION}]}]}`
	filterAtNew = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {namespace: openshift-ingress, name: payload-processing-red-11507a0e}`
	kuadrantThere = `apiVersion: kuadrant.io/v1beta1
kind: Kuadrant
metadata: {namespace: kuadrant-system, name: kuadrant}`
	firstStage = `apiVersion: apps/v1
kind: Deployment
metadata: {namespace: openshift-ingress, name: payload-pre-processing-red, generation: 1}
status: {observedGeneration: 1, conditions: [{type: Available, status: "True"}]}`
)

// enforced are the policies of a gateway, as Kuadrant says of them.
func enforced(gateway, suffix, status string) []string {
	conditions := fmt.Sprintf(`{conditions: [{type: Accepted, status: "True", reason: Accepted}, {type: Enforced, status: %q, reason: R, message: m}]}`, status)
	return []string{
		"apiVersion: kuadrant.io/v1\nkind: AuthPolicy\nmetadata: {namespace: openshift-ingress, name: " + gateway + "-maas-auth}\nspec: {targetRef: {kind: Gateway, name: " + gateway + "}}\nstatus: " + conditions,
		"apiVersion: kuadrant.io/v1alpha1\nkind: TokenRateLimitPolicy\nmetadata: {namespace: openshift-ingress, name: gateway-default-deny-red" + suffix + "}\nspec: {targetRef: {kind: Gateway, name: " + gateway + "}}\nstatus: " + conditions,
	}
}

// decide plans for the settings of tenant red: in a world as that of a golden case, with other objects, of which the last of a
// name is the one.
func decide(t *testing.T, without []string, more ...string) engine.Plan {
	t.Helper()
	raw, err := os.ReadFile("testdata/plan/tenant/in.yaml")
	if err != nil {
		t.Fatal(err)
	}
	world := &engine.World{Scheme: scheme, Without: without}
	for _, doc := range append(strings.Split(string(raw), "\n---\n"), more...) {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		world.Objects = append(slices.DeleteFunc(world.Objects, func(o *unstructured.Unstructured) bool {
			return o.GroupVersionKind() == u.GroupVersionKind() && client.ObjectKeyFromObject(o) == client.ObjectKeyFromObject(u)
		}), u)
	}
	kind := platform.Kind{Platform: &platform.Platform{Settings: settings.Default("modelplane-system"), Image: "modelplane:v1", Now: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }}}
	obj := &v1alpha1.MaasTenantConfig{}
	if err := world.Get(t.Context(), client.ObjectKey{Namespace: "ai-tenant-red", Name: v1alpha1.MaasTenantConfigName}, obj); err != nil {
		t.Fatal(err)
	}
	seen, err := kind.Observe(t.Context(), world, obj)
	if err != nil {
		t.Fatal(err)
	}
	return kind.Plan(obj, seen)
}

// TestMoving: who moves to another gateway has requests checked at both, and it is on record once they are at the other.
func TestMoving(t *testing.T) {
	kuadrantToo := []string{"networking.istio.io", "telemetry.istio.io"}
	alone := []string{"kuadrant.io", "extensions.kuadrant.io", "networking.istio.io", "telemetry.istio.io"}
	withIstio := []string{"kuadrant.io", "extensions.kuadrant.io"}
	gateway := strings.ReplaceAll(newGateway, "CLASS", "eg")
	claim := strings.ReplaceAll(claimOfNew, "HOLDER", "red")
	asked := strings.ReplaceAll(askedAtNew, "GENERATION", "2")
	moving := []string{gateway, claimOfRed, claim, tenantThatMoves, checkedByProcessor}
	istio := []string{strings.ReplaceAll(newGateway, "CLASS", "istio"), istioClass, claimOfRed, claim, tenantThatMoves, checkedByProcessor}
	byKuadrant := slices.Concat([]string{gateway, claimOfRed, claim, tenantThatMoves, kuadrantThere, firstStage}, enforced("red", "", "True"))
	for _, c := range []struct {
		name    string
		without []string
		objects []string
		// arrived is whether it is on record, at are the gateways of routes and policies, and says a part of the problem.
		arrived bool
		at      []string
		says    string
	}{
		{"a gateway that is not claimed yet", alone, []string{gateway, claimOfRed, tenantThatMoves, checkedByProcessor}, false, []string{"red"}, ""},
		{"a gateway that does not ask yet", alone, moving, false, []string{"new", "red"}, "moves to Gateway openshift-ingress/new when"},
		{"a gateway that asked before it left and came back", alone, append(moving, strings.ReplaceAll(askedAtNew, "GENERATION", "1")), false, []string{"new", "red"}, "moves to"},
		{"a gateway that asks", alone, append(moving, asked), true, []string{"new", "red"}, "moves to"},
		{"a gateway that asks while nobody checks for the first time", alone, append(moving[:4:4], asked), true, []string{"new", "red"}, "moves to"},
		{"a gateway of Istio without a filter", withIstio, istio, false, []string{"red"}, "moves to"},
		{"a gateway of Istio with its filter", withIstio, append(istio, filterAtNew), true, []string{"red"}, "moves to"},
		{"policies that are not there", kuadrantToo, byKuadrant, false, []string{"new", "red"}, "moves to"},
		{"policies that are not in force", kuadrantToo, slices.Concat(byKuadrant, enforced("new", "-11507a0e", "False")), false, []string{"new", "red"}, "requests are checked there: TokenRateLimitPolicy openshift-ingress/gateway-default-deny-red-11507a0e"},
		{"policies of another name", kuadrantToo, slices.Concat(byKuadrant, enforced("new", "-other", "True")), false, []string{"new", "red"}, "moves to"},
		{"policies that are in force", kuadrantToo, slices.Concat(byKuadrant, enforced("new", "-11507a0e", "True")), true, []string{"new", "red"}, "moves to"},
		{"a gateway of another tenant", alone, []string{gateway, claimOfRed, strings.ReplaceAll(claimOfNew, "HOLDER", "blue"), blue, tenantThatMoves, checkedByProcessor}, false, []string{"red"}, ""},
		{"no gateway, and one of another tenant", alone, []string{gateway, strings.ReplaceAll(claimOfNew, "HOLDER", "blue"), blue, tenantThatMoves, checkedByProcessor}, false, nil, "belongs to the AITenant blue"},
		{"a tenant that has moved, with routes left", alone, []string{gateway, claimOfRed, claim, tenantThatMoved, checkedByProcessor}, false, []string{"new", "red"}, ""},
		{"a tenant that has moved", alone, []string{gateway, claim, tenantThatMoved, checkedByProcessor}, false, []string{"new"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := decide(t, c.without, c.objects...)
			record := plan.SetLabels[naming.LabelChecked]
			if c.arrived && record != "second" || !c.arrived && record != "" {
				t.Errorf("on record is %q", record)
			}
			if at := targets(plan); !slices.Equal(at, c.at) {
				t.Errorf("the payload processor is asked at %v, want %v", at, c.at)
			}
			message := ""
			if plan.Problem != nil {
				message = plan.Problem.Message
			}
			if c.says == "" && message != "" || !strings.Contains(message, c.says) {
				t.Errorf("it says %q", message)
			}
		})
	}
}

// targets are the gateways of Envoy Gateway that ask the payload processor.
func targets(plan engine.Plan) []string {
	var out []string
	for _, c := range plan.Children {
		u, ok := c.Object.(*unstructured.Unstructured)
		if !ok || u.GetKind() != "EnvoyExtensionPolicy" || u.GetNamespace() != "openshift-ingress" {
			continue
		}
		refs, _, _ := unstructured.NestedSlice(u.Object, "spec", "targetRefs")
		for _, ref := range refs {
			out = append(out, ref.(map[string]any)["name"].(string))
		}
	}
	return out
}
