// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	inferencev1alpha1 "github.com/modelplane/modelplane/api/inference/v1alpha1"
	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestTakeOver: a tenant as the known controller leaves it is taken over, and after no write could its model be reached unchecked or
// without its limits. Also not when the manager is ended in the middle and another one goes on.
func TestTakeOver(t *testing.T) {
	s := newSite(t, "istio.io/gateway-controller", testkit.GatewayAPI, testkit.Istio, testkit.Kuadrant)
	s.g.limited = []string{naming.RateLimitPolicy("gpt"), naming.GatewayDeny("")}
	s.left(t)
	if open := s.g.open(); open != "" {
		t.Fatalf("what is to be taken over does not check: %s", open)
	}
	s.g.watch()
	counter := testkit.NewCounter()
	stop := testkit.Manage(t, func(ctx context.Context) error { return s.run(ctx, counter.Wrap(s.Manager)) })
	testkit.Eventually(t, patience, "the first policy to be taken over", func() error {
		return s.taken(kuadrant.New(kuadrant.AuthPolicy), naming.GatewayAuthPolicy("one", true))
	})
	stop()
	testkit.Manage(t, func(ctx context.Context) error { return s.run(ctx, counter.Wrap(s.Manager)) })
	s.reached(t, "one")
	for name, gvk := range map[string]client.Object{
		naming.GatewayAuthPolicy("one", true): kuadrant.New(kuadrant.AuthPolicy),
		naming.GatewayDeny(""):                kuadrant.New(kuadrant.TokenRateLimitPolicy),
		naming.RateLimitPolicy("gpt"):         kuadrant.New(kuadrant.TokenRateLimitPolicy),
		"payload-processing":                  gateways.Foreign(gateways.EnvoyFilter),
		"maas-api":                            &appsv1.Deployment{},
		"maas-api-route":                      gateways.Foreign(gateways.HTTPRoute),
	} {
		testkit.Eventually(t, patience, name+" to be taken over", func() error { return s.taken(gvk, name) })
	}
	s.wait(t, s.model("gpt"), "Ready")
	config := &v1alpha1.MaasTenantConfig{ObjectMeta: metav1.ObjectMeta{Namespace: s.settings.SubscriptionNamespace, Name: v1alpha1.MaasTenantConfigName}}
	testkit.Eventually(t, patience, "Kuadrant to be named", func() error {
		if err := s.C.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(config.Status.Conditions, tenancy.ConditionEnforcedBy); c == nil || c.Reason != tenancy.ByKuadrant {
			return fmt.Errorf("it says %+v", config.Status.Conditions)
		}
		return nil
	})
	testkit.Rest(t, quietFor, "the last write", counter.Writes)
	s.g.done(t, 30)
}

// taken is nil when an object is there, is ours, and has no owner of before.
func (s *site) taken(obj client.Object, name string) error {
	if err := s.C.Get(context.Background(), client.ObjectKey{Namespace: s.NS, Name: name}, obj); err != nil {
		return err
	}
	if obj.GetLabels()["modelplane.dev/owner-uid"] == "" || obj.GetLabels()["modelplane.dev/taking-over"] != "" {
		return fmt.Errorf("its labels are %v", obj.GetLabels())
	}
	return nil
}

// left makes the default tenant with a model as the known controller leaves them.
func (s *site) left(t *testing.T) {
	t.Helper()
	config := s.config(t)
	config.Annotations = map[string]string{"maas.opendatahub.io/default-aitenant-bootstrapped": "true"}
	tenant := &v1alpha1.AITenant{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenants, Name: naming.DefaultTenant, Finalizers: []string{naming.FinalizerAITenant}}}
	tenant.Spec.Gateway = &v1alpha1.AITenantGateway{Name: "one"}
	claim := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenants, Name: tenancy.ClaimName(client.ObjectKey{Namespace: s.NS, Name: "one"}),
		Labels: map[string]string{naming.LabelClaim: "true", naming.LabelTenantName: naming.DefaultTenant}}, Data: map[string]string{"gatewayNamespace": s.NS, "gatewayName": "one"}}
	settings := &v1alpha1.MaasTenantConfig{ObjectMeta: metav1.ObjectMeta{Namespace: s.settings.SubscriptionNamespace, Name: v1alpha1.MaasTenantConfigName, Finalizers: []string{naming.FinalizerTenantConfig},
		Labels: map[string]string{naming.LabelTenantName: naming.DefaultTenant, naming.LabelManagedByTenant: "true"}}}
	s.old(t, config, tenant, claim, settings)
	settings.Status = v1alpha1.MaasTenantConfigStatus{Phase: v1alpha1.TenantActive, Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Reconciled", LastTransitionTime: metav1.Now()}}}
	tenant.Status = v1alpha1.AITenantStatus{Phase: v1alpha1.AITenantActive, TenantNamespace: s.settings.SubscriptionNamespace, GatewayRef: &v1alpha1.GatewayRef{Namespace: s.NS, Name: "one"},
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Reconciled", LastTransitionTime: metav1.Now()}}}
	for _, o := range []client.Object{settings, tenant} {
		if err := s.C.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	owner := *metav1.NewControllerRef(config, v1alpha1.GroupVersion.WithKind("Config"))
	s.leftServices(t, owner)
	s.leftModel(t)
	testkit.Eventually(t, patience, "Kuadrant and the gateway to have taken all of it", func() error { return s.g.byKuadrant(context.Background(), "one") })
}

// known is an object with a spec, and with its owners.
func known(gvk schema.GroupVersionKind, m metav1.ObjectMeta, spec map[string]any) *unstructured.Unstructured {
	u := gateways.Object(gvk, m, spec)
	u.SetOwnerReferences(m.OwnerReferences)
	return u
}

// old makes objects as the known controller writes them.
func (s *site) old(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := s.C.Create(context.Background(), o, client.FieldOwner(naming.OldManager)); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// leftServices are those of the tenant, and what stands at its gateway.
func (s *site) leftServices(t *testing.T, owner metav1.OwnerReference) {
	t.Helper()
	in := func(name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: s.NS, Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{owner}}
	}
	for _, name := range []string{"maas-api", "payload-processing", "payload-pre-processing"} {
		labels := map[string]string{"app.kubernetes.io/name": "maas-api", "app.kubernetes.io/component": "api", "app": name}
		d := &appsv1.Deployment{ObjectMeta: in(name, labels)}
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels = labels
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: "known:1"}}
		service := &corev1.Service{ObjectMeta: in(name, labels), Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Name: "https", Port: 8443}}}}
		s.old(t, d, service)
	}
	route := known(gateways.HTTPRoute, in("maas-api-route", nil), map[string]any{
		"parentRefs": []any{map[string]any{"name": "one"}},
		"rules":      []any{map[string]any{"matches": []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": "/maas-api"}}}, "backendRefs": []any{map[string]any{"name": "maas-api", "port": int64(8443)}}}},
	})
	filter := known(gateways.EnvoyFilter, in("payload-processing", nil), map[string]any{
		"priority": int64(10), "workloadSelector": map[string]any{"labels": map[string]any{"gateway.networking.k8s.io/gateway-name": "one"}},
		"configPatches": []any{map[string]any{"applyTo": "HTTP_FILTER", "patch": map[string]any{"operation": "INSERT_FIRST"}}},
	})
	generated := func(part, component string) map[string]string {
		return map[string]string{naming.LabelManagedBy: naming.ManagedBy, naming.LabelPartOf: part, naming.LabelComponent: component}
	}
	auth := known(kuadrant.AuthPolicy, metav1.ObjectMeta{Namespace: s.NS, Name: naming.GatewayAuthPolicy("one", true), Labels: generated("maas-gateway-auth", "gateway-auth")}, s.knownRules())
	deny := known(kuadrant.TokenRateLimitPolicy, in(naming.GatewayDeny(""), map[string]string{"app.opendatahub.io/modelsasservice": "true"}), map[string]any{
		"targetRef": map[string]any{"group": gatewayv1.GroupName, "kind": "Gateway", "name": "one"},
		"defaults": map[string]any{"limits": map[string]any{"deny-all-by-default": map[string]any{
			"rates": []any{map[string]any{"limit": int64(0), "window": "1m"}}, "counters": []any{map[string]any{"expression": "auth.identity.userid"}},
			"when": []any{map[string]any{"predicate": `!request.path.startsWith("/maas-api")`}}}}},
	})
	s.old(t, route, filter, auth, deny)
}

// knownRules are those of the known policy, as far as they matter for who takes it over.
func (s *site) knownRules() map[string]any {
	api := "https://maas-api." + s.NS + ".svc.cluster.local:8443/internal/v1/"
	rego := func(text string) map[string]any {
		return map[string]any{"priority": int64(0), "metrics": false, "opa": map[string]any{"rego": text}, "cache": map[string]any{"ttl": int64(60), "key": map[string]any{"selector": "auth.identity"}}}
	}
	return map[string]any{
		"targetRef": map[string]any{"group": gatewayv1.GroupName, "kind": "Gateway", "name": "one"},
		"defaults": map[string]any{
			"when": []any{map[string]any{"predicate": `request.url_path != "/maas-api/health"`}},
			"rules": map[string]any{
				"authentication": map[string]any{
					"api-keys":             map[string]any{"priority": int64(0), "metrics": false, "plain": map[string]any{"selector": "request.headers.authorization"}},
					"openshift-identities": map[string]any{"priority": int64(2), "metrics": false, "kubernetesTokenReview": map[string]any{"audiences": []any{"https://kubernetes.default.svc"}}},
				},
				"metadata": map[string]any{
					"apiKeyValidation":  map[string]any{"priority": int64(0), "metrics": false, "http": map[string]any{"url": api + "api-keys/validate", "method": "POST"}},
					"subscription-info": map[string]any{"priority": int64(1), "metrics": false, "http": map[string]any{"url": api + "subscriptions/select", "method": "POST"}},
				},
				"authorization": map[string]any{
					"auth-valid":               rego("allow { input.auth.metadata.apiKeyValidation.valid == true }"),
					"subscription-valid":       rego(`allow { input.auth.metadata["subscription-info"].name != "" }`),
					"require-group-membership": rego(`allow { input.auth.metadata["subscription-info"].accessAllowed == true }`),
				},
			},
		},
	}
}

// leftModel is an external model with who may use it and how much of it.
func (s *site) leftModel(t *testing.T) {
	t.Helper()
	objects := s.provided()
	s.old(t, objects...)
	external := objects[1].(*inferencev1alpha1.ExternalModel)
	external.Status.HTTPRouteName, external.Status.Phase = "gpt", inferencev1alpha1.PhaseReady
	if err := s.C.Status().Update(t.Context(), external); err != nil {
		t.Fatal(err)
	}
	route := known(gateways.HTTPRoute, metav1.ObjectMeta{Namespace: s.NS, Name: "gpt",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(external, inferencev1alpha1.GroupVersion.WithKind("ExternalModel"))}}, map[string]any{
		"parentRefs": []any{map[string]any{"group": gatewayv1.GroupName, "kind": "Gateway", "namespace": s.NS, "name": "one"}},
		"rules":      []any{map[string]any{"matches": []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": "/" + s.NS + "/gpt"}}}, "backendRefs": []any{map[string]any{"name": "openai", "port": int64(443)}}}},
	})
	s.old(t, route)
	model, gold, policy := s.model("gpt"), s.subscription("gold", 1000, "gpt"), s.policy("gold", "gpt")
	gold.Namespace, policy.Namespace = s.settings.SubscriptionNamespace, s.settings.SubscriptionNamespace
	model.Finalizers, gold.Finalizers, policy.Finalizers = []string{naming.FinalizerModel}, []string{naming.FinalizerSubscription}, []string{naming.FinalizerAuthPolicy}
	limits := known(kuadrant.TokenRateLimitPolicy, metav1.ObjectMeta{Namespace: s.NS, Name: naming.RateLimitPolicy("gpt"), Labels: map[string]string{
		naming.LabelModel: "gpt", naming.LabelModelNamespace: s.NS, naming.LabelManagedBy: naming.ManagedBy, naming.LabelPartOf: "maas-subscription", naming.LabelComponent: "token-rate-limit-policy"},
		Annotations:     map[string]string{naming.AnnotationSubscriptions: gold.Namespace + "/gold"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: gatewayv1.GroupVersion.String(), Kind: "HTTPRoute", Name: "gpt", UID: route.GetUID(), Controller: ptr.To(true)}}}, map[string]any{
		"targetRef": map[string]any{"group": gatewayv1.GroupName, "kind": "HTTPRoute", "name": "gpt"},
		"limits": map[string]any{naming.LimitKey(gold.Namespace, "gold", "gpt"): map[string]any{
			"rates":    []any{map[string]any{"limit": int64(1000), "window": "1m"}},
			"when":     []any{map[string]any{"predicate": fmt.Sprintf("auth.identity.selected_subscription_key == %q", naming.SubscriptionKey(gold.Namespace, "gold", s.NS, "gpt"))}},
			"counters": []any{map[string]any{"expression": "auth.identity.userid"}}}},
	})
	s.old(t, model, gold, policy, limits)
	testkit.Eventually(t, patience, "the limits to be in force", func() error {
		now := kuadrant.New(kuadrant.TokenRateLimitPolicy)
		if err := s.get(now, limits.GetName()); err != nil {
			return err
		}
		if v := kuadrant.VerdictOn(now); !v.Enforced {
			return errors.New("not yet")
		}
		return nil
	})
}
