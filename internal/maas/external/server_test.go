// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/inference/v1alpha1"
	maasv1alpha1 "github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/maas/external"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

// bench is a cluster with the kinds, whose gateway is in the test's own namespace.
type bench struct{ *domaintest.Bench }

func newBench(t testing.TB) *bench {
	t.Helper()
	cluster := testkit.Start(t)
	all, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	var needed []*apiextensionsv1.CustomResourceDefinition
	for _, crd := range all {
		if g := crd.Spec.Group; g == v1alpha1.GroupVersion.Group || g == maasv1alpha1.GroupVersion.Group {
			needed = append(needed, crd)
		}
	}
	cluster.InstallCRDs(t, needed...)
	b := &bench{domaintest.New(t, cluster, scheme)}
	rules, err := engine.Rules(scheme, b.controllers()...)
	if err != nil {
		t.Fatal(err)
	}
	b.Manager = charttest.RBAC(t, cluster, b.NS, rules...)
	return b
}

func (b *bench) controllers() []engine.Controller {
	return external.Controllers(&external.Settings{Gateway: client.ObjectKey{Namespace: b.NS, Name: "door"}, TenantsNamespace: b.NS})
}

func (b *bench) run(ctx context.Context, cfg *rest.Config) error {
	return domaintest.Run(ctx, cfg, scheme, b.controllers()...)
}

func (b *bench) provider(name string) *v1alpha1.ExternalProvider {
	return &v1alpha1.ExternalProvider{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}, Spec: v1alpha1.ExternalProviderSpec{
		Provider: "openai", Endpoint: "api.example.com",
		Auth: v1alpha1.Auth{Type: v1alpha1.AuthAPIKey, SecretRef: v1alpha1.NameRef{Name: "key"}},
	}}
}

func (b *bench) model(name string, providers ...string) *v1alpha1.ExternalModel {
	m := &v1alpha1.ExternalModel{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}}
	for _, p := range providers {
		m.Spec.ExternalProviderRefs = append(m.Spec.ExternalProviderRefs, v1alpha1.ExternalProviderRef{
			Ref: v1alpha1.NameRef{Name: p}, TargetModel: "gpt", APIFormat: "openai-chat", Path: "/v1/chat/completions"})
	}
	return m
}

func (b *bench) former(name string) *maasv1alpha1.ExternalModel {
	return &maasv1alpha1.ExternalModel{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}, Spec: maasv1alpha1.ExternalModelSpec{
		Provider: "openai", TargetModel: "gpt", Endpoint: "api.example.com", CredentialRef: maasv1alpha1.CredentialRef{Name: "key"}}}
}

func (b *bench) key() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "key", Labels: map[string]string{"inference.llm-d.ai/ipp-managed": "true"}}, StringData: map[string]string{"api-key": "x"}}
}

// gateway is one of a class that Envoy Gateway looks after. The class goes with the test.
func (b *bench) gateway(t testing.TB, controller string) []client.Object {
	t.Helper()
	class := gateways.Object(gateways.GatewayClass, metav1.ObjectMeta{Name: b.NS}, map[string]any{"controllerName": controller})
	gateway := gateways.Object(gateways.Gateway, metav1.ObjectMeta{Namespace: b.NS, Name: "door"}, map[string]any{"gatewayClassName": b.NS})
	return []client.Object{class, gateway}
}

// take plays the gateway: it takes a route as it is now.
func (b *bench) take(t testing.TB, name string) {
	t.Helper()
	testkit.Eventually(t, domaintest.Patience, "the route "+name, func() error { return b.accept(name) })
}

func (b *bench) accept(name string) error {
	route := gateways.Foreign(gateways.HTTPRoute)
	if err := b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: name}, route); err != nil {
		return err
	}
	route.Object["status"] = map[string]any{"parents": []any{map[string]any{
		"parentRef": map[string]any{"namespace": b.NS, "name": "door"}, "controllerName": "example.com/x",
		"conditions": []any{map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
			"observedGeneration": route.GetGeneration(), "lastTransitionTime": "2026-01-01T00:00:00Z"}},
	}}}
	return b.C.Status().Update(context.Background(), route)
}

// says waits until Ready of an object gives a reason, for the present generation.
func (b *bench) says(t testing.TB, obj client.Object, reason string) {
	t.Helper()
	testkit.Eventually(t, domaintest.Patience, fmt.Sprintf("%T %s to say %s", obj, obj.GetName(), reason), func() error {
		return b.said(obj, reason)
	})
}

func (b *bench) said(obj client.Object, reason string) error {
	if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); err != nil {
		return err
	}
	var conditions []metav1.Condition
	switch o := obj.(type) {
	case *v1alpha1.ExternalProvider:
		conditions = o.Status.Conditions
	case *v1alpha1.ExternalModel:
		conditions = o.Status.Conditions
	case *maasv1alpha1.ExternalModel:
		conditions = o.Status.Conditions
	}
	c := meta.FindStatusCondition(conditions, "Ready")
	if c == nil || c.Reason != reason || c.ObservedGeneration != obj.GetGeneration() {
		return fmt.Errorf("generation %d, conditions %+v", obj.GetGeneration(), conditions)
	}
	if lies := testkit.Lies(obj); len(lies) > 0 && reason != "APIMissing" { // in the engine's words
		return fmt.Errorf("the conditions lie: %v", lies)
	}
	return nil
}

// TestLife: models wait for what is missing, one after the other, and for APIs that are installed while the manager runs; they
// are repaired, cost nothing at rest and after a restart, and go.
func TestLife(t *testing.T) {
	b := newBench(t)
	counter := testkit.NewCounter()
	provider, model, former := b.provider("openai"), b.model("gpt", "openai"), b.former("old")
	b.Create(t, model, former)
	stop := testkit.Manage(t, func(ctx context.Context) error { return b.run(ctx, counter.Wrap(b.Manager)) })
	b.says(t, model, "ProviderMissing")
	b.says(t, former, "GatewayAPIMissing")
	b.Create(t, provider)
	b.says(t, provider, "APIMissing") // the policy for TLS
	b.Install(t, testkit.GatewayAPI)
	b.says(t, provider, "SecretMissing")
	b.Create(t, b.key())
	b.says(t, provider, "Reconciled")
	b.says(t, model, "GatewayMissing")
	b.Exists(t, gateways.Foreign(gateways.BackendTLSPolicy), "openai")

	b.Install(t, testkit.EnvoyGateway)
	b.Create(t, b.gateway(t, "gateway.envoyproxy.io/gatewayclass-controller")...)
	t.Cleanup(func() { b.Delete(t, gateways.Object(gateways.GatewayClass, metav1.ObjectMeta{Name: b.NS}, nil)) })
	b.says(t, model, "RoutePending")
	b.Exists(t, gateways.Foreign(gateways.Backend), "openai")
	b.Gone(t, gateways.Foreign(gateways.BackendTLSPolicy), "openai")
	b.Gone(t, &corev1.Service{}, "openai")
	b.take(t, "gpt")
	b.take(t, "maas-old")
	b.says(t, model, "Reconciled")
	b.says(t, former, "Reconciled")
	if model.Status.Phase != v1alpha1.PhaseReady || model.Status.HTTPRouteName != "gpt" || former.Status.Phase != maasv1alpha1.ExternalModelReady {
		t.Errorf("the statuses are %+v and %+v", model.Status, former.Status)
	}
	b.meddle(t)
	b.take(t, "gpt")
	b.says(t, model, "Reconciled")
	testkit.NoWrites(t, counter, 2*time.Second, "when nothing changes")
	stop()
	quiet := counter.Snapshot()
	testkit.Manage(t, func(ctx context.Context) error { return b.run(ctx, counter.Wrap(b.Manager)) })
	testkit.Quiet(t, 3*time.Second, "the rest after a restart", func() error {
		if since := counter.Since(quiet); since.Writes() > 0 {
			return fmt.Errorf("writes:\n%s", since)
		}
		return nil
	})
	b.Delete(t, model, former, provider)
	testkit.Eventually(t, domaintest.Patience, "the end", func() error {
		return b.Ended([]client.Object{model, former, provider}, b.controllers())
	})
}

// meddle edits a route and waits until it is as it was.
func (b *bench) meddle(t testing.TB) {
	t.Helper()
	route := gateways.Foreign(gateways.HTTPRoute)
	b.Exists(t, route, "gpt")
	b.Change(t, route, func() { _ = unstructured.SetNestedSlice(route.Object, []any{}, "spec", "rules") })
	testkit.Eventually(t, domaintest.Patience, "the route to be as it was", func() error {
		b.Exists(t, route, "gpt")
		if rules, _, _ := unstructured.NestedSlice(route.Object, "spec", "rules"); len(rules) != 2 {
			return errors.New("it has no rules")
		}
		return nil
	})
}

// TestIstio: what Istio must be told comes when Istio does, and goes with it.
func TestIstio(t *testing.T) {
	b := newBench(t)
	b.Install(t, testkit.GatewayAPI)
	b.Create(t, b.gateway(t, "istio.io/gateway-controller")...)
	t.Cleanup(func() { b.Delete(t, gateways.Object(gateways.GatewayClass, metav1.ObjectMeta{Name: b.NS}, nil)) })
	provider := b.provider("openai")
	b.Create(t, provider, b.key())
	testkit.Manage(t, func(ctx context.Context) error { return b.run(ctx, b.Manager) })
	b.says(t, provider, "APIMissing")
	if provider.Status.Phase != v1alpha1.PhasePending {
		t.Errorf("without Istio the phase is %s", provider.Status.Phase)
	}
	b.Install(t, testkit.Istio)
	b.says(t, provider, "Reconciled")
	b.Exists(t, gateways.Foreign(gateways.ServiceEntry), "openai")
	b.Exists(t, gateways.Foreign(gateways.DestinationRule), "openai")
	b.Change(t, provider, func() {
		provider.Annotations = map[string]string{external.AnnotationTLS: "false", external.AnnotationPort: "8080"}
	})
	b.Gone(t, gateways.Foreign(gateways.DestinationRule), "openai")
	entry := gateways.Foreign(gateways.ServiceEntry)
	b.Delete(t, gateways.Object(gateways.ServiceEntry, metav1.ObjectMeta{Namespace: b.NS, Name: "openai"}, nil))
	b.Exists(t, entry, "openai")
	b.Remove(t, testkit.Istio)
	b.says(t, provider, "APIMissing")
	b.Install(t, testkit.Istio)
	b.says(t, provider, "Reconciled")
	b.Exists(t, entry, "openai")
}

// TestTruth: whatever a model depends on goes, is named with what to do, and comes back.
func TestTruth(t *testing.T) {
	b := newBench(t)
	b.Install(t, testkit.GatewayAPI, testkit.EnvoyGateway)
	b.Create(t, append(b.gateway(t, "gateway.envoyproxy.io/gatewayclass-controller"), b.key())...)
	t.Cleanup(func() { b.Delete(t, gateways.Object(gateways.GatewayClass, metav1.ObjectMeta{Name: b.NS}, nil)) })
	provider, model := b.provider("openai"), b.model("gpt", "openai")
	b.Create(t, provider, model)
	testkit.Manage(t, func(ctx context.Context) error { return b.run(ctx, b.Manager) })
	b.take(t, "gpt")
	b.says(t, model, "Reconciled")

	b.Delete(t, b.key())
	b.says(t, provider, "SecretMissing")
	b.says(t, model, "ProviderNotReady")
	if c := meta.FindStatusCondition(model.Status.Conditions, "Ready"); !strings.Contains(c.Message, "Secret key") || !strings.Contains(c.Message, "Create it.") || model.Status.Phase != v1alpha1.PhasePending {
		t.Errorf("the model is %s and says %s", model.Status.Phase, c.Message)
	}
	plain := b.key()
	plain.Labels = nil
	b.Create(t, plain)
	b.says(t, provider, "SecretNotLabelled")
	b.Change(t, plain, func() { plain.Labels = b.key().Labels; plain.Data = nil })
	b.says(t, provider, "SecretIncomplete")
	b.Change(t, plain, func() { plain.StringData = b.key().StringData })
	b.says(t, provider, "Reconciled")
	b.says(t, model, "Reconciled")

	b.Delete(t, provider)
	b.says(t, model, "ProviderMissing")
	again := b.provider("openai")
	b.Create(t, again)
	b.says(t, model, "Reconciled")

	b.Change(t, model, func() {
		model.Spec.ExternalProviderRefs[0].Auth = &v1alpha1.Auth{Type: v1alpha1.AuthAPIKey, SecretRef: v1alpha1.NameRef{Name: "own"}}
	})
	b.says(t, model, "SecretMissing")
	own := b.key()
	own.Name = "own"
	b.Create(t, own)
	b.says(t, model, "Reconciled")

	backend := gateways.Foreign(gateways.Backend)
	b.Exists(t, backend, "openai")
	b.Delete(t, gateways.Object(gateways.Backend, metav1.ObjectMeta{Namespace: b.NS, Name: "openai"}, nil))
	testkit.Eventually(t, domaintest.Patience, "the backend to be made anew", func() error {
		now := gateways.Foreign(gateways.Backend)
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(backend), now); err != nil || now.GetUID() == backend.GetUID() {
			return errors.Join(err, errors.New("not yet"))
		}
		return nil
	})
	b.says(t, model, "Reconciled")
}

// TestTenants: a model is reached through its tenant's gateway and no other, before the tenant has one, while it has, and when it
// goes; of two models with one name at that gateway the older one is reached, also when it moves to the other group.
func TestTenants(t *testing.T) {
	b := newBench(t)
	b.Install(t, testkit.GatewayAPI, testkit.EnvoyGateway)
	b.Create(t, append(b.gateway(t, "gateway.envoyproxy.io/gatewayclass-controller"), b.key())...)
	t.Cleanup(func() { b.Delete(t, gateways.Object(gateways.GatewayClass, metav1.ObjectMeta{Name: b.NS}, nil)) })
	red := &maasv1alpha1.AITenant{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "red", Finalizers: []string{"example.com/busy"}}}
	ref := &maasv1alpha1.MaaSModelRef{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "old"}}
	ref.Spec = maasv1alpha1.MaaSModelRefSpec{TenantRef: "red", ModelRef: maasv1alpha1.BackendRef{Kind: maasv1alpha1.ExternalModelModel, Name: "old"}}
	second := ref.DeepCopy()
	second.Name, second.Spec.ModelRef.Name = "second", "second"
	former, rival := b.former("old"), b.model("second", "openai")
	rival.Spec.ModelName = "old"
	b.Create(t, ref, second, former)
	testkit.Manage(t, func(ctx context.Context) error { return b.run(ctx, b.Manager) })
	b.says(t, former, "TenantMissing")
	b.Create(t, red)
	red.Status.GatewayRef = &maasv1alpha1.GatewayRef{Namespace: b.NS, Name: "door"}
	if err := b.C.Status().Update(t.Context(), red); err != nil {
		t.Fatal(err)
	}
	b.take(t, "maas-old")
	b.says(t, former, "Reconciled")

	b.Create(t, b.provider("openai"))
	b.younger(t, former)
	b.Create(t, rival)
	b.says(t, rival, "ModelNameConflict")
	b.younger(t, rival)
	successor := b.model("old", "openai")
	b.Create(t, successor)
	b.says(t, former, "Superseded")
	b.Gone(t, gateways.Foreign(gateways.HTTPRoute), "maas-old")
	b.take(t, "old")
	b.says(t, successor, "Reconciled")
	b.says(t, rival, "ModelNameConflict")

	b.Delete(t, red)
	b.says(t, successor, "TenantMissing")
	b.Gone(t, gateways.Foreign(gateways.HTTPRoute), "old")
	b.Change(t, red, func() { red.Finalizers = nil })
}

// younger waits until whatever is made next is younger than an object, as far as the API server tells.
func (b *bench) younger(t testing.TB, than client.Object) {
	t.Helper()
	testkit.Eventually(t, domaintest.Patience, "a second to pass", func() error {
		if time.Since(than.GetCreationTimestamp().Time) < 2*time.Second {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestFaults: an API server that fails now and then costs time, and nothing else, also when objects are deleted.
func TestFaults(t *testing.T) {
	b := newBench(t)
	b.Install(t, testkit.GatewayAPI, testkit.EnvoyGateway)
	b.Create(t, b.gateway(t, "gateway.envoyproxy.io/gatewayclass-controller")...)
	t.Cleanup(func() { b.Delete(t, gateways.Object(gateways.GatewayClass, metav1.ObjectMeta{Name: b.NS}, nil)) })
	faults := testkit.NewFaults(7).AddEach(0.05)
	testkit.Insist(t, func(ctx context.Context) error { return b.run(ctx, faults.Wrap(b.Manager)) })
	b.Create(t, b.key(), b.provider("openai"))
	var all []*v1alpha1.ExternalModel
	for i := range 5 {
		all = append(all, b.model(fmt.Sprintf("gpt-%d", i), "openai"))
		b.Create(t, all[i])
	}
	for _, m := range all {
		b.take(t, m.Name)
		b.says(t, m, "Reconciled")
	}
	objects := []client.Object{b.provider("openai")}
	for _, m := range all {
		objects = append(objects, m)
	}
	b.Delete(t, objects...)
	testkit.Eventually(t, domaintest.Patience, "the end", func() error { return b.Ended(objects, b.controllers()) })
	if faults.Injected() == 0 {
		t.Error("nothing has failed")
	}
}

// TestKilled: killed at any write, also while objects are deleted, the next start comes to the same end.
func TestKilled(t *testing.T) {
	b := newBench(t)
	b.Install(t, testkit.GatewayAPI, testkit.EnvoyGateway)
	b.Create(t, append(b.gateway(t, "gateway.envoyproxy.io/gatewayclass-controller"), b.key())...)
	t.Cleanup(func() { b.Delete(t, gateways.Object(gateways.GatewayClass, metav1.ObjectMeta{Name: b.NS}, nil)) })
	var objects []client.Object
	round := 0
	name := func(base string) string { return fmt.Sprintf("%s-%d", base, round) }
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager,
		Run:    b.run,
		Stride: 3,
		Reset: func(t testing.TB) {
			round++
			objects = []client.Object{b.provider(name("openai")), b.model(name("gpt"), name("openai")), b.former(name("old"))}
			b.Create(t, objects...)
		},
		Converged: func() error {
			for _, route := range []string{name("gpt"), "maas-" + name("old")} {
				if err := b.accept(route); err != nil {
					return err
				}
			}
			for _, o := range objects {
				if err := b.said(o, "Reconciled"); err != nil {
					return err
				}
			}
			return nil
		},
		Verify: func(t testing.TB) {
			b.Exists(t, gateways.Foreign(gateways.Backend), name("openai"))
			b.Exists(t, gateways.Foreign(gateways.Backend), "maas-"+name("old"))
		},
		Delete: func(t testing.TB) { b.Delete(t, objects...) },
		Gone:   func() error { return b.Ended(objects, b.controllers()) },
	})
}
