// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	inferencev1alpha1 "github.com/modelplane/modelplane/api/inference/v1alpha1"
	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/maas/authpolicies"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/maas/subscriptions"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m, testkit.Parallel(1)) // all tests install and remove the same APIs
}

const (
	patience = domaintest.Patience
	quietFor = 700 * time.Millisecond
)

// bench is a cluster with a gateway, and one namespace for everything.
type bench struct {
	*domaintest.Bench
	settings settings.Settings
}

func newBench(t *testing.T, apis ...testkit.API) *bench {
	t.Helper()
	cluster := testkit.Start(t)
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		switch crd.Spec.Group {
		case v1alpha1.GroupVersion.Group, inferencev1alpha1.GroupVersion.Group:
			cluster.InstallCRDs(t, crd)
		}
	}
	cluster.Install(t, apis...)
	b := &bench{Bench: domaintest.New(t, cluster, scheme)}
	b.Manager = charttest.RBAC(t, cluster, b.NS)
	b.settings = settings.Default(b.NS)
	b.settings.GatewayNamespace, b.settings.SubscriptionNamespace, b.settings.TenantNamespace = b.NS, b.NS, b.NS
	return b
}

// Run is a manager with all controllers of the domain.
func (b *bench) Run(ctx context.Context, cfg *rest.Config) error {
	return domaintest.Run(ctx, cfg, scheme, policies(New().WithSettings(b.settings))...)
}

func (b *bench) manage(t testing.TB, cfg *rest.Config) (stop func()) {
	t.Helper()
	return testkit.Manage(t, func(ctx context.Context) error { return b.Run(ctx, cfg) })
}

func (b *bench) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: b.NS, Name: name}
}

func (b *bench) gateway(t testing.TB) *gatewayv1.Gateway {
	t.Helper()
	g := &gatewayv1.Gateway{ObjectMeta: b.meta(b.settings.GatewayName)}
	g.Spec.GatewayClassName = "tests"
	g.Spec.Listeners = []gatewayv1.Listener{{Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType, Hostname: ptr.To(gatewayv1.Hostname("models.example.com"))}}
	b.Create(t, g)
	return g
}

// external is a model outside of the cluster, with the route that leads there, which the gateway has accepted.
func (b *bench) external(t testing.TB, name string) {
	t.Helper()
	e := &inferencev1alpha1.ExternalModel{ObjectMeta: b.meta(name)}
	e.Spec.ExternalProviderRefs = []inferencev1alpha1.ExternalProviderRef{{Ref: inferencev1alpha1.NameRef{Name: "openai"}, TargetModel: "gpt", APIFormat: "openai-chat", Path: "/v1/chat/completions"}}
	b.Create(t, e)
	e.Status.HTTPRouteName = name
	if err := b.C.Status().Update(context.Background(), e); err != nil {
		t.Fatal(err)
	}
	parent := gatewayv1.ParentReference{Name: gatewayv1.ObjectName(b.settings.GatewayName)}
	route := &gatewayv1.HTTPRoute{ObjectMeta: b.meta(name)}
	route.Spec.ParentRefs = []gatewayv1.ParentReference{parent}
	b.Create(t, route)
	route.Status.Parents = []gatewayv1.RouteParentStatus{{ParentRef: parent, ControllerName: "example.com/tests", Conditions: []metav1.Condition{
		{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", ObservedGeneration: route.Generation, LastTransitionTime: metav1.Now()},
	}}}
	if err := b.C.Status().Update(context.Background(), route); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) model(name string) *v1alpha1.MaaSModelRef {
	m := &v1alpha1.MaaSModelRef{ObjectMeta: b.meta(name)}
	m.Spec.ModelRef = v1alpha1.BackendRef{Kind: v1alpha1.ExternalModelModel, Name: name}
	return m
}

func (b *bench) subscription(name string, limit int64, models ...string) *v1alpha1.MaaSSubscription {
	s := &v1alpha1.MaaSSubscription{ObjectMeta: b.meta(name)}
	s.Spec.Owner.Groups = []v1alpha1.GroupRef{{Name: "users"}}
	for _, m := range models {
		s.Spec.ModelRefs = append(s.Spec.ModelRefs, v1alpha1.SubscribedModel{
			ModelRef: v1alpha1.ModelRef{Namespace: b.NS, Name: m}, TokenRateLimits: []v1alpha1.TokenRateLimit{{Limit: limit, Window: "1m"}},
		})
	}
	return s
}

func (b *bench) policy(name string, models ...string) *v1alpha1.MaaSAuthPolicy {
	p := &v1alpha1.MaaSAuthPolicy{ObjectMeta: b.meta(name)}
	p.Spec.Subjects.Groups = []v1alpha1.GroupRef{{Name: "users"}}
	for _, m := range models {
		p.Spec.ModelRefs = append(p.Spec.ModelRefs, v1alpha1.ModelRef{Namespace: b.NS, Name: m})
	}
	return p
}

// kuadrant accepts and enforces every policy as it is now, until the test ends.
func (b *bench) kuadrant(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(20 * time.Millisecond); ; { //nolint:mnd // often
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				for _, gvk := range kuadrant.Kinds() {
					list := kuadrant.List(gvk)
					if b.C.List(ctx, list, client.InNamespace(b.NS)) == nil {
						for i := range list.Items {
							b.enforce(ctx, &list.Items[i])
						}
					}
				}
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// enforce says so in the status of a policy, where it is not said yet. A conflict is tried again with the next look.
func (b *bench) enforce(ctx context.Context, policy *unstructured.Unstructured) {
	if v := kuadrant.VerdictOn(policy); v.Accepted && v.Enforced {
		return
	}
	var conditions []any
	for _, name := range []string{"Accepted", "Enforced"} {
		conditions = append(conditions, map[string]any{
			"type": name, "status": "True", "reason": name, "message": "", "observedGeneration": policy.GetGeneration(), "lastTransitionTime": "2026-01-01T00:00:00Z",
		})
	}
	policy.Object["status"] = map[string]any{"conditions": conditions}
	_ = b.C.Status().Update(ctx, policy)
}

func (b *bench) phase(obj client.Object, want string) error {
	if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); err != nil {
		return err
	}
	var have string
	var conditions []metav1.Condition
	switch o := obj.(type) {
	case *v1alpha1.MaaSModelRef:
		have, conditions = string(o.Status.Phase), o.Status.Conditions
	case *v1alpha1.MaaSSubscription:
		have, conditions = string(o.Status.Phase), o.Status.Conditions
	case *v1alpha1.MaaSAuthPolicy:
		have, conditions = string(o.Status.Phase), o.Status.Conditions
	}
	if have != want {
		return fmt.Errorf("%T %s is %q, not %q: %+v", obj, obj.GetName(), have, want, conditions)
	}
	return nil
}

func (b *bench) wait(t testing.TB, obj client.Object, phase string) {
	t.Helper()
	testkit.Eventually(t, patience, obj.GetName()+" to be "+phase, func() error { return b.phase(obj, phase) })
}

func (b *bench) get(policy *unstructured.Unstructured, name string) error {
	return b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: name}, policy)
}

// TestLife: a model is opened, limited, shared, and closed again, and at rest nothing is written.
func TestLife(t *testing.T) {
	b := newBench(t, testkit.GatewayAPI, testkit.Kuadrant)
	b.kuadrant(t)
	counter := testkit.NewCounter()
	b.manage(t, counter.Wrap(b.Manager))
	b.gateway(t)
	b.external(t, "gpt")
	model, sub, policy := b.model("gpt"), b.subscription("gold", 1000, "gpt"), b.policy("gold", "gpt")
	b.Create(t, model)
	b.wait(t, model, "Pending")
	b.Create(t, sub, policy)
	b.wait(t, sub, "Active")
	b.wait(t, policy, "Active")
	b.wait(t, model, "Ready")
	if model.Status.Endpoint != "https://models.example.com" {
		t.Errorf("the model is at %q", model.Status.Endpoint)
	}
	testkit.LintConditions(t, model)
	testkit.LintConditions(t, sub, testkit.AllowUnready(subscriptions.ConditionDuplicate)) // known to be False when all is well
	testkit.LintConditions(t, policy, testkit.AllowUnready(authpolicies.ConditionConflict))
	testkit.NoWrites(t, counter, quietFor, "at rest")

	limits := kuadrant.New(kuadrant.TokenRateLimitPolicy)
	b.drift(t, limits, naming.RateLimitPolicy("gpt"))
	b.drift(t, kuadrant.New(kuadrant.AuthPolicy), naming.GatewayAuthPolicy("", true))
	b.drift(t, kuadrant.New(kuadrant.TokenRateLimitPolicy), naming.GatewayDeny(""))

	b.Delete(t, sub)
	testkit.Eventually(t, patience, "the limits to go", func() error {
		err := b.get(limits, naming.RateLimitPolicy("gpt"))
		if err == nil {
			return errors.New("they are still there")
		}
		return client.IgnoreNotFound(err)
	})
	b.wait(t, model, "Pending")
	b.Delete(t, policy)
	b.Gone(t, policy, policy.Name)
	if err := b.get(kuadrant.New(kuadrant.AuthPolicy), naming.GatewayAuthPolicy("", true)); err != nil {
		t.Errorf("the gateway is open without a policy: %v", err)
	}
}

// drift changes and deletes a policy by hand, and waits until it is as it was.
func (b *bench) drift(t testing.TB, policy *unstructured.Unstructured, name string) {
	t.Helper()
	if err := b.get(policy, name); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(policy.Object["spec"])
	as := func() error {
		if err := b.get(policy, name); err != nil {
			return err
		}
		if have := fmt.Sprint(policy.Object["spec"]); have != want {
			return fmt.Errorf("it is %s", have)
		}
		return nil
	}
	b.Change(t, policy, func() { _ = unstructured.SetNestedField(policy.Object, "elsewhere", "spec", "targetRef", "name") })
	testkit.Eventually(t, patience, name+" to be set back", as)
	uid := policy.GetUID()
	b.Delete(t, policy)
	testkit.Eventually(t, patience, name+" to be made anew", func() error {
		if err := as(); err != nil {
			return err
		}
		if policy.GetUID() == uid {
			return errors.New("it is the old one")
		}
		return nil
	})
}

// TestKuadrantComesLater: without it the payload processor enforces, and when it comes, it does, with nothing written anew by hand.
func TestKuadrantComesLater(t *testing.T) {
	b := newBench(t, testkit.GatewayAPI)
	b.manage(t, b.Manager)
	b.gateway(t)
	b.external(t, "gpt")
	model, sub, policy := b.model("gpt"), b.subscription("gold", 1000, "gpt"), b.policy("gold", "gpt")
	b.Create(t, model, sub, policy)
	b.wait(t, model, "Ready")
	b.enforcedBy(t, sub, "BuiltIn")
	b.Install(t, testkit.Kuadrant)
	b.enforcedBy(t, sub, "Kuadrant")
	b.kuadrant(t)
	b.Exists(t, kuadrant.New(kuadrant.AuthPolicy), naming.GatewayAuthPolicy("", true))
	b.Exists(t, kuadrant.New(kuadrant.TokenRateLimitPolicy), naming.RateLimitPolicy("gpt"))
	b.wait(t, model, "Ready")
	b.wait(t, sub, "Active")

	config := &v1alpha1.MaasTenantConfig{ObjectMeta: b.meta(v1alpha1.MaasTenantConfigName)}
	config.Annotations = map[string]string{naming.AnnotationEnforcement: "built-in"}
	b.Create(t, config)
	b.enforcedBy(t, sub, "BuiltIn")
	testkit.Quiet(t, quietFor, "what Kuadrant enforces until the payload processor does", func() error {
		return errors.Join(
			b.get(kuadrant.New(kuadrant.AuthPolicy), naming.GatewayAuthPolicy("", true)),
			b.get(kuadrant.New(kuadrant.TokenRateLimitPolicy), naming.RateLimitPolicy("gpt")),
			b.get(kuadrant.New(kuadrant.TokenRateLimitPolicy), naming.GatewayDeny("")),
		)
	})
	b.checkedBy(t, config, "BuiltIn")
	b.Gone(t, kuadrant.New(kuadrant.AuthPolicy), naming.GatewayAuthPolicy("", true))
	b.Gone(t, kuadrant.New(kuadrant.TokenRateLimitPolicy), naming.RateLimitPolicy("gpt"))
	b.Gone(t, kuadrant.New(kuadrant.TokenRateLimitPolicy), naming.GatewayDeny(""))
	b.wait(t, sub, "Active")
	b.Change(t, config, func() { config.Annotations = nil })
	b.Exists(t, kuadrant.New(kuadrant.TokenRateLimitPolicy), naming.GatewayDeny(""))
	b.enforcedBy(t, sub, "BuiltIn") // until Kuadrant says that it does
	b.checkedBy(t, config, "Kuadrant")
	b.enforcedBy(t, sub, "Kuadrant")
	b.Exists(t, kuadrant.New(kuadrant.AuthPolicy), naming.GatewayAuthPolicy("", true))
	b.wait(t, model, "Ready")
}

// checkedBy has the settings of the tenant say who checks requests.
func (b *bench) checkedBy(t testing.TB, config *v1alpha1.MaasTenantConfig, who string) {
	t.Helper()
	if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(config), config); err != nil {
		t.Fatal(err)
	}
	config.Status.Conditions = []metav1.Condition{{Type: "EnforcedBy", Status: metav1.ConditionTrue, Reason: who, LastTransitionTime: metav1.Now()}}
	if err := b.C.Status().Update(context.Background(), config); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) enforcedBy(t testing.TB, s *v1alpha1.MaaSSubscription, want string) {
	t.Helper()
	testkit.Eventually(t, patience, s.Name+" to be enforced by "+want, func() error {
		if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		for _, c := range s.Status.Conditions {
			if c.Type == "EnforcedBy" && c.Reason == want {
				return nil
			}
		}
		return fmt.Errorf("it says %+v", s.Status.Conditions)
	})
}

// TestFaults: an API server that fails now and then is no reason to end elsewhere.
func TestFaults(t *testing.T) {
	b := newBench(t, testkit.GatewayAPI, testkit.Kuadrant)
	b.kuadrant(t)
	faults := testkit.NewFaults(11).AddEach(0.05)
	testkit.Insist(t, func(ctx context.Context) error { return b.Run(ctx, faults.Wrap(b.Manager)) })
	b.gateway(t)
	var names []string
	for i := range 3 {
		name := fmt.Sprintf("gpt-%d", i)
		names = append(names, name)
		b.external(t, name)
		b.Create(t, b.model(name))
	}
	b.Create(t, b.subscription("gold", 1000, names...), b.policy("gold", names...))
	for _, name := range names {
		b.wait(t, b.model(name), "Ready")
	}
	if faults.Injected() == 0 {
		t.Error("nothing has failed")
	}
}

// TestKilled: killed at any write, the next start comes to the same end, and what must go goes.
func TestKilled(t *testing.T) {
	b := newBench(t, testkit.GatewayAPI, testkit.Kuadrant)
	b.kuadrant(t)
	b.gateway(t)
	b.external(t, "gpt")
	model, sub, policy := b.model("gpt"), b.subscription("gold", 1000, "gpt"), b.policy("gold", "gpt")
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager,
		Run:    b.Run,
		Stride: 4,
		Reset: func(t testing.TB) {
			for _, o := range []client.Object{kuadrant.New(kuadrant.AuthPolicy), kuadrant.New(kuadrant.TokenRateLimitPolicy)} {
				if err := b.C.DeleteAllOf(context.Background(), o, client.InNamespace(b.NS)); err != nil {
					t.Fatal(err)
				}
			}
			model, sub, policy = b.model("gpt"), b.subscription("gold", 1000, "gpt"), b.policy("gold", "gpt")
			b.Create(t, model, sub, policy)
		},
		Converged: func() error {
			return errors.Join(b.phase(model, "Ready"), b.phase(sub, "Active"), b.phase(policy, "Active"))
		},
		Verify: func(t testing.TB) {
			list := kuadrant.List(kuadrant.TokenRateLimitPolicy)
			if err := b.C.List(context.Background(), list, client.InNamespace(b.NS)); err != nil || len(list.Items) != 2 {
				t.Errorf("%d policies, want 2: %v", len(list.Items), err)
			}
		},
		Delete: func(t testing.TB) { b.Delete(t, sub, policy, model) },
		Gone: func() error {
			for _, o := range []client.Object{sub, policy, model} {
				if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(o), o); err == nil {
					return fmt.Errorf("%s is still there", o.GetName())
				}
			}
			return b.get(kuadrant.New(kuadrant.AuthPolicy), naming.GatewayAuthPolicy("", true))
		},
	})
}

// TestManySubscriptions: hundreds of subscriptions over many models cost a few writes each, and none at rest.
func TestManySubscriptions(t *testing.T) {
	const models, subscriptions, most = 100, 300, 3
	b := newBench(t, testkit.GatewayAPI, testkit.Kuadrant)
	b.gateway(t)
	for i := range models {
		name := fmt.Sprintf("gpt-%d", i)
		b.external(t, name)
		b.Create(t, b.model(name))
	}
	counter := testkit.NewCounter()
	b.manage(t, counter.Wrap(b.Manager))
	b.kuadrant(t)
	for i := range models {
		b.wait(t, b.model(fmt.Sprintf("gpt-%d", i)), "Pending")
	}
	before, began := counter.Snapshot(), time.Now()
	for i := range subscriptions {
		b.Create(t, b.subscription(fmt.Sprintf("sub-%03d", i), 1000, fmt.Sprintf("gpt-%d", i%models)))
	}
	for i := range subscriptions {
		b.wait(t, b.subscription(fmt.Sprintf("sub-%03d", i), 0), "Active")
	}
	took := time.Since(began)
	testkit.NoWrites(t, counter, quietFor, "at rest")
	since := counter.Since(before)
	statuses := since.Of("patch", "maas.opendatahub.io/maassubscriptions/status")
	writes, told := statuses+since.Of("apply", "kuadrant.io/tokenratelimitpolicies"), since.Of("create", "events.k8s.io/events")
	t.Logf("%d subscriptions over %d models are active after %s, with %d writes for them and %d events: %s", subscriptions, models, took.Round(time.Millisecond), writes, told, since)
	if writes > most*subscriptions || writes < subscriptions {
		t.Errorf("%d writes for subscriptions, want at most %d", writes, most*subscriptions)
	}
	if told > 2*subscriptions { //nolint:mnd // an event each, and one for each model
		t.Errorf("%d events", told)
	}
}
