// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	inferencev1alpha1 "github.com/modelplane/modelplane/api/inference/v1alpha1"
	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/testkit"
)

// site is a cluster in which a whole platform runs, with everybody around it played: Kuadrant, the gateways, and what starts pods.
type site struct {
	*bench
	g *guard
	// tenants is the namespace of AITenants.
	tenants string
}

// newSite has two gateways, "one" that the platform has by default and "two".
func newSite(t *testing.T, controller string, apis ...testkit.API) *site {
	t.Helper()
	b := newBench(t, apis...)
	s := &site{bench: b, tenants: b.Namespace(t)}
	s.settings.TenantNamespace, s.settings.InfraNamespace, s.settings.GatewayName = s.tenants, b.NS, "one"
	s.settings.SubscriptionNamespace = b.Namespace(t)
	s.g = &guard{c: b.C, namespace: b.NS}
	s.Manager = charttest.RBAC(t, b.Cluster, s.tenants) // the chart's own account, and nobody with more
	class := gateways.Object(gateways.GatewayClass, metav1.ObjectMeta{Name: b.NS}, map[string]any{"controllerName": controller})
	b.Create(t, class)
	t.Cleanup(func() { b.Delete(t, class) })
	for _, name := range []string{"one", "two"} {
		b.Create(t, gateways.Object(gateways.Gateway, b.meta(name), map[string]any{"gatewayClassName": b.NS}))
	}
	b.Create(t,
		&corev1.Secret{ObjectMeta: b.meta("maas-db-config"), StringData: map[string]string{"DB_CONNECTION_URL": "postgres://x"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "key", Labels: map[string]string{naming.LabelSecret: "true"}}, StringData: map[string]string{"api-key": "x"}},
	)
	if slices.Contains(apis, testkit.Kuadrant) {
		home := kuadrant.New(kuadrant.Kuadrant)
		home.SetNamespace(b.Namespace(t))
		home.SetName("kuadrant")
		b.Create(t, home)
		b.kuadrant(t)
	}
	s.play(t)
	return s
}

func (s *site) run(ctx context.Context, cfg *rest.Config) error {
	d := New().WithSettings(s.settings).WithImage("modelplane:test").WithCertificates()
	return domaintest.Run(ctx, s.g.wrap(cfg), scheme, d.Controllers()...)
}

// config is the cluster's own, which has the first tenant made.
func (s *site) config(t *testing.T) *v1alpha1.Config {
	t.Helper()
	config := &v1alpha1.Config{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ConfigName}}
	t.Cleanup(func() { s.Delete(t, config) })
	return config
}

// play has pods run, routes taken and extension policies accepted, until the test ends.
func (s *site) play(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(100 * time.Millisecond); ; { //nolint:mnd // often
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				s.turn(ctx)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// turn does once what everybody does. What fails is done with the next turn.
func (s *site) turn(ctx context.Context) {
	deployments := &appsv1.DeploymentList{}
	_ = s.C.List(ctx, deployments, client.InNamespace(s.NS))
	for i := range deployments.Items {
		if d := &deployments.Items[i]; d.Status.ObservedGeneration < d.Generation {
			n := ptr.Deref(d.Spec.Replicas, 1)
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n, TerminatingReplicas: ptr.To[int32](0),
				Conditions: []appsv1.DeploymentCondition{
					{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"},
					{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
				}}
			_ = s.C.Status().Update(ctx, d)
		}
	}
	routes := &unstructured.UnstructuredList{}
	routes.SetGroupVersionKind(gateways.HTTPRoute.GroupVersion().WithKind("HTTPRouteList"))
	_ = s.C.List(ctx, routes, client.InNamespace(s.NS))
	for i := range routes.Items {
		s.answers(ctx, &routes.Items[i], "parentRefs", "parents", "parentRef")
	}
	policies := &unstructured.UnstructuredList{}
	policies.SetGroupVersionKind(gateways.EnvoyExtensionPolicy.GroupVersion().WithKind("EnvoyExtensionPolicyList"))
	_ = s.C.List(ctx, policies, client.InNamespace(s.NS))
	for i := range policies.Items {
		s.answers(ctx, &policies.Items[i], "targetRefs", "ancestors", "ancestorRef")
	}
}

// answers says of an object that all that it refers to have taken it as it is now.
func (s *site) answers(ctx context.Context, obj *unstructured.Unstructured, refs, field, ref string) {
	all, _, _ := unstructured.NestedSlice(obj.Object, "spec", refs)
	var want []any
	for _, item := range all {
		named, _ := item.(map[string]any)
		want = append(want, map[string]any{ref: map[string]any{"namespace": s.NS, "name": named["name"]}, "controllerName": "example.com/x", "conditions": []any{map[string]any{
			"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": obj.GetGeneration(), "lastTransitionTime": "2026-01-01T00:00:00Z"}}})
	}
	have, _, _ := unstructured.NestedSlice(obj.Object, "status", field)
	if fmt.Sprint(have) != fmt.Sprint(want) {
		obj.Object["status"] = map[string]any{field: want}
		_ = s.C.Status().Update(ctx, obj)
	}
}

// provided is an external model with its provider.
func (s *site) provided() []client.Object {
	p := &inferencev1alpha1.ExternalProvider{ObjectMeta: s.meta("openai"), Spec: inferencev1alpha1.ExternalProviderSpec{
		Provider: "openai", Endpoint: "api.example.com", Auth: inferencev1alpha1.Auth{Type: inferencev1alpha1.AuthAPIKey, SecretRef: inferencev1alpha1.NameRef{Name: "key"}}}}
	m := &inferencev1alpha1.ExternalModel{ObjectMeta: s.meta("gpt")}
	m.Spec.ExternalProviderRefs = []inferencev1alpha1.ExternalProviderRef{{Ref: inferencev1alpha1.NameRef{Name: "openai"}, TargetModel: "gpt", APIFormat: "openai-chat", Path: "/v1/chat/completions"}}
	return []client.Object{p, m}
}

// foreign is a route to a model that another controller looks after.
func (s *site) foreign(gateway string) *gatewayv1.HTTPRoute {
	r := &gatewayv1.HTTPRoute{ObjectMeta: s.meta("iris")}
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "serving.kserve.io/v1beta1", Kind: "InferenceService", Name: "iris", UID: "44444444-4444-4444-4444-444444444444", Controller: ptr.To(true)}}
	r.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: gatewayv1.ObjectName(gateway)}}
	return r
}

// reached waits until the first tenant is reached through a gateway, and its model with it.
func (s *site) reached(t testing.TB, gateway string) {
	t.Helper()
	testkit.Eventually(t, 2*patience, "the tenant to be reached through "+gateway, func() error {
		tenant := &v1alpha1.AITenant{}
		if err := s.C.Get(context.Background(), client.ObjectKey{Namespace: s.tenants, Name: naming.DefaultTenant}, tenant); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(tenant.Status.Conditions, "Ready") || tenant.Status.GatewayRef.Name != gateway {
			return fmt.Errorf("it says %+v", tenant.Status)
		}
		route, model := &gatewayv1.HTTPRoute{}, &inferencev1alpha1.ExternalModel{}
		if err := errors.Join(s.C.Get(context.Background(), client.ObjectKey{Namespace: s.NS, Name: "gpt"}, route), s.C.Get(context.Background(), client.ObjectKey{Namespace: s.NS, Name: "gpt"}, model)); err != nil {
			return err
		}
		if refs := route.Spec.ParentRefs; len(refs) != 1 || string(refs[0].Name) != gateway || !meta.IsStatusConditionTrue(model.Status.Conditions, "Ready") {
			return fmt.Errorf("the model is at %+v, and says %+v", refs, model.Status)
		}
		return nil
	})
}

// guard looks after every write of a manager whether a model can be reached at a gateway that nobody checks requests at.
type guard struct {
	c         client.Client
	namespace string
	// limited are policies that must be there all the time.
	limited []string

	mu     sync.Mutex
	on     bool
	looks  int
	opened []string
}

func (g *guard) wrap(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if req.Method != http.MethodGet && !strings.Contains(req.URL.Path, "/events") {
				g.look(req.Method + " " + req.URL.Path)
			}
			return resp, err
		})
	})
	return cfg
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// watch begins to look.
func (g *guard) watch() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on = true
}

func (g *guard) look(after string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.on {
		return
	}
	g.looks++
	if open := g.open(); open != "" && len(g.opened) < 10 {
		g.opened = append(g.opened, fmt.Sprintf("look %d, after %s: %s", g.looks, after, open))
	}
}

// done ends the looks and fails the test if a model was open at any of them.
func (g *guard) done(t testing.TB, least int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on = false
	for _, text := range g.opened {
		t.Error(text)
	}
	if g.looks < least {
		t.Errorf("it was looked only %d times", g.looks)
	}
	t.Logf("looked after %d writes", g.looks)
}

// open says which model could be reached unchecked just now; empty if none. The routes are read first: a check that comes after
// its route is too late, and one that goes before its route is too early.
func (g *guard) open() string {
	ctx := context.Background()
	routes := &gatewayv1.HTTPRouteList{}
	if err := g.c.List(ctx, routes, client.InNamespace(g.namespace)); err != nil {
		return err.Error()
	}
	for i := range routes.Items {
		route := &routes.Items[i]
		owner := metav1.GetControllerOf(route)
		if owner == nil || owner.Kind != "ExternalModel" && owner.Kind != "InferenceService" {
			continue
		}
		for _, ref := range route.Spec.ParentRefs {
			if by := errors.Join(g.byKuadrant(ctx, string(ref.Name)), g.byProcessor(ctx, string(ref.Name))); by != nil && !g.checked(ctx, string(ref.Name)) && g.hangs(ctx, route, ref) {
				return fmt.Sprintf("HTTPRoute %s is open at Gateway %s: %v", route.Name, ref.Name, by)
			}
		}
	}
	for _, name := range g.limited {
		if err := g.c.Get(ctx, client.ObjectKey{Namespace: g.namespace, Name: name}, kuadrant.New(kuadrant.TokenRateLimitPolicy)); err != nil {
			return err.Error()
		}
	}
	return ""
}

// hangs looks once more whether a route asks for a gateway: it may have left it since.
func (g *guard) hangs(ctx context.Context, route *gatewayv1.HTTPRoute, ref gatewayv1.ParentReference) bool {
	now := &gatewayv1.HTTPRoute{}
	err := g.c.Get(ctx, client.ObjectKeyFromObject(route), now)
	return err == nil && slices.ContainsFunc(now.Spec.ParentRefs, func(r gatewayv1.ParentReference) bool { return r.Name == ref.Name })
}

func (g *guard) checked(ctx context.Context, gateway string) bool {
	return g.byKuadrant(ctx, gateway) == nil || g.byProcessor(ctx, gateway) == nil
}

// byKuadrant is nil where Kuadrant checks requests at a gateway.
func (g *guard) byKuadrant(ctx context.Context, gateway string) error {
	found := 0
	for _, gvk := range kuadrant.Kinds() {
		list := kuadrant.List(gvk)
		if err := g.c.List(ctx, list, client.InNamespace(g.namespace)); err != nil {
			return err
		}
		if slices.ContainsFunc(list.Items, func(p unstructured.Unstructured) bool {
			v, target := kuadrant.VerdictOn(&p), kuadrant.TargetOf(&p)
			rules, _, _ := unstructured.NestedMap(p.Object, "spec", "defaults", "rules", "authorization")
			limits, _, _ := unstructured.NestedMap(p.Object, "spec", "defaults", "limits")
			asks := rules["subscription-valid"] != nil && rules["require-group-membership"] != nil || limits["deny-all-by-default"] != nil
			return asks && target.Kind == "Gateway" && target.Name == gateway && p.GetDeletionTimestamp() == nil && (v.Accepted && v.Enforced || v.Before)
		}) {
			found++
		}
	}
	if found < len(kuadrant.Kinds()) {
		return fmt.Errorf("%d policies of Kuadrant are enforced there", found)
	}
	return nil
}

// byProcessor is nil where the payload processor checks requests at a gateway of Envoy Gateway.
func (g *guard) byProcessor(ctx context.Context, gateway string) error {
	d, policy := &appsv1.Deployment{}, gateways.Foreign(gateways.EnvoyExtensionPolicy)
	key := client.ObjectKey{Namespace: g.namespace, Name: "payload-processing"}
	if err := errors.Join(g.c.Get(ctx, key, d), g.c.Get(ctx, key, policy)); err != nil {
		return err
	}
	if d.Annotations[naming.AnnotationEnforcement] != "built-in" || d.DeletionTimestamp != nil || policy.GetDeletionTimestamp() != nil {
		return errors.New("the payload processor does not check")
	}
	targets, _, _ := unstructured.NestedSlice(policy.Object, "spec", "targetRefs")
	stages, _, _ := unstructured.NestedSlice(policy.Object, "spec", "extProc")
	answers := fmt.Sprint(policy.Object["status"])
	asked := slices.ContainsFunc(targets, func(item any) bool { ref, _ := item.(map[string]any); return ref["name"] == gateway })
	if !asked || len(stages) == 0 || !strings.Contains(answers, "name:"+gateway+" ") {
		return fmt.Errorf("the payload processor is asked at %v, as %s", targets, answers)
	}
	return nil
}

// TestMove: a tenant that asks for another gateway is reached through the former one until requests are checked at the other, and
// at the former one they are checked until no model is reached through it any more, be it by a route of somebody else.
func TestMove(t *testing.T) {
	t.Run("kuadrant", func(t *testing.T) {
		s := newSite(t, "gateway.envoyproxy.io/gatewayclass-controller", testkit.GatewayAPI, testkit.EnvoyGateway, testkit.Kuadrant)
		s.move(t, func(gateway string) error { return s.g.byKuadrant(context.Background(), gateway) })
		auth := kuadrant.New(kuadrant.AuthPolicy)
		s.Gone(t, auth, naming.GatewayAuthPolicy("one", true))
		testkit.Eventually(t, patience, "the known name for what denies", func() error {
			deny := kuadrant.New(kuadrant.TokenRateLimitPolicy)
			if err := s.get(deny, naming.GatewayDeny("")); err != nil || kuadrant.TargetOf(deny).Name != "two" {
				return errors.Join(err, errors.New("it is for the former gateway"))
			}
			return nil
		})
	})
	t.Run("built-in", func(t *testing.T) {
		s := newSite(t, "gateway.envoyproxy.io/gatewayclass-controller", testkit.GatewayAPI, testkit.EnvoyGateway)
		s.move(t, func(gateway string) error { return s.g.byProcessor(context.Background(), gateway) })
	})
}

// move takes the first tenant from gateway one to two, where requests are checked as the function tells.
func (s *site) move(t *testing.T, checked func(gateway string) error) {
	t.Helper()
	s.Create(t, append(s.provided(), s.config(t))...)
	counter := testkit.NewCounter()
	testkit.Manage(t, func(ctx context.Context) error { return s.run(ctx, counter.Wrap(s.Manager)) })
	s.reached(t, "one")
	testkit.Eventually(t, patience, "requests to be checked", func() error { return checked("one") })
	foreign := s.foreign("one")
	s.Create(t, foreign)
	s.g.watch()
	tenant := &v1alpha1.AITenant{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenants, Name: naming.DefaultTenant}}
	s.Change(t, tenant, func() { tenant.Spec.Gateway = &v1alpha1.AITenantGateway{Name: "two"} })
	s.reached(t, "two")
	testkit.Quiet(t, quietFor, "the checks that a route of somebody else needs", func() error { return checked("one") })
	testkit.Rest(t, quietFor, "the last write", counter.Writes)
	s.Change(t, foreign, func() { foreign.Spec.ParentRefs[0].Name = "two" })
	testkit.Eventually(t, patience, "the former gateway to be given back", func() error {
		if checked("one") == nil {
			return errors.New("requests are checked there")
		}
		claims := &corev1.ConfigMapList{}
		if err := s.C.List(context.Background(), claims, client.InNamespace(s.tenants), client.HasLabels{naming.LabelClaim}); err != nil || len(claims.Items) != 1 {
			return errors.Join(err, fmt.Errorf("%d gateways are claimed", len(claims.Items)))
		}
		if err := s.C.Get(context.Background(), client.ObjectKeyFromObject(tenant), tenant); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(tenant.Status.Conditions, "Ready"); c == nil || strings.Contains(c.Message, "as well") {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
	s.reached(t, "two")
	testkit.Rest(t, quietFor, "the last write after the move", counter.Writes)
	s.g.done(t, 5)
	astray := s.foreign("one")
	astray.Name = "astray"
	s.Create(t, astray)
	if s.g.open() == "" {
		t.Error("a route at a gateway without checks is not found out")
	}
}
