// SPDX-License-Identifier: Apache-2.0

package platform_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	inferencev1alpha1 "github.com/modelplane/modelplane/api/inference/v1alpha1"
	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/maas/gatewaypolicies"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/platform"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

// bench is a cluster in which everything of the default tenant is in the test's own namespace.
type bench struct {
	*domaintest.Bench
	// policies says that those of gateways are looked after, too.
	policies bool
}

func newBench(t testing.TB) *bench { t.Helper(); return newBenchWith(t, false) }

func newBenchWith(t testing.TB, policies bool) *bench {
	t.Helper()
	cluster := testkit.Start(t)
	all, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	var needed []*apiextensionsv1.CustomResourceDefinition
	for _, crd := range all {
		if crd.Spec.Group == v1alpha1.GroupVersion.Group || policies && crd.Spec.Group == inferencev1alpha1.GroupVersion.Group {
			needed = append(needed, crd)
		}
	}
	cluster.InstallCRDs(t, needed...)
	b := &bench{domaintest.New(t, cluster, scheme), policies}
	// What the roles of the services say must be permitted to whoever makes them: the chart's own account, and nobody with more.
	b.Manager = charttest.RBAC(t, cluster, b.NS)
	return b
}

func (b *bench) controllers() []engine.Controller {
	s := settings.Settings{Namespace: b.NS, GatewayNamespace: b.NS, GatewayName: "door", SubscriptionNamespace: b.NS, TenantNamespace: b.NS}
	out := []engine.Controller{platform.Controller(&platform.Platform{Settings: s.WithDefaults(), Image: "modelplane:test", Pairs: &certs.Pairs{}, Now: time.Now})}
	if b.policies {
		out = append(out, gatewaypolicies.Controller(s.WithDefaults))
	}
	return out
}

func (b *bench) run(ctx context.Context, cfg *rest.Config) error {
	return domaintest.Run(ctx, cfg, scheme, b.controllers()...)
}

// says waits until Ready gives a reason.
func (b *bench) says(t testing.TB, obj *v1alpha1.MaasTenantConfig, reason string) {
	t.Helper()
	testkit.Eventually(t, domaintest.Patience, "to say "+reason, func() error { return b.said(obj, reason) })
}

func (b *bench) said(obj *v1alpha1.MaasTenantConfig, reason string) error {
	if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); err != nil {
		return err
	}
	if c := meta.FindStatusCondition(obj.Status.Conditions, "Ready"); c == nil || c.Reason != reason {
		return fmt.Errorf("conditions %+v", obj.Status.Conditions)
	}
	if lies := testkit.Lies(obj, testkit.AllowUnready("Degraded")); len(lies) > 0 && reason != "APIMissing" { // in the engine's words
		return fmt.Errorf("the conditions lie: %v", lies)
	}
	return nil
}

func (b *bench) gateway(t testing.TB) {
	t.Helper()
	class := gateways.Object(gateways.GatewayClass, metav1.ObjectMeta{Name: b.NS}, map[string]any{"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"})
	b.Create(t, class, gateways.Object(gateways.Gateway, metav1.ObjectMeta{Namespace: b.NS, Name: "door"}, map[string]any{"gatewayClassName": b.NS}))
	t.Cleanup(func() { b.Delete(t, class) })
}

func (b *bench) database() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "maas-db-config"}, StringData: map[string]string{"DB_CONNECTION_URL": "postgres://x"}}
}

// TestLife: the services of a tenant wait for what is missing, one after the other, also for APIs that are installed while the
// manager runs; they are repaired, cost nothing at rest and after a restart, follow Kuadrant when it comes, and go after the
// tenant's subscriptions.
func TestLife(t *testing.T) {
	b := newBench(t)
	counter := testkit.NewCounter()
	obj := &v1alpha1.MaasTenantConfig{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: v1alpha1.MaasTenantConfigName}}
	config := &v1alpha1.Config{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ConfigName}}
	b.Create(t, obj)
	stop := testkit.Manage(t, func(ctx context.Context) error { return b.run(ctx, counter.Wrap(b.Manager)) })
	b.says(t, obj, "ConfigMissing")
	b.Create(t, config)
	t.Cleanup(func() { b.Delete(t, config) })
	b.says(t, obj, "GatewayNotReady")
	b.stray(t)
	b.Install(t, testkit.GatewayAPI)
	b.gateway(t)
	b.says(t, obj, "PrerequisitesNotMet")
	b.Create(t, b.database())
	b.says(t, obj, "APIMissing") // that of Envoy Gateway
	b.Install(t, testkit.EnvoyGateway)
	b.says(t, obj, "DeploymentsNotReady")
	b.RollOut(t, "maas-api", "payload-processing")
	b.says(t, obj, "Reconciled")
	secret := &corev1.Secret{}
	b.Exists(t, secret, "maas-api-serving-cert")
	if _, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"]); err != nil || len(secret.Data["ca.crt"]) == 0 {
		t.Errorf("the certificate of maas-api: %v", err)
	}
	b.Exists(t, gateways.Foreign(gateways.EnvoyExtensionPolicy), "payload-processing")
	b.Exists(t, gateways.Foreign(gateways.BackendTLSPolicy), "maas-api-backend-tls")
	policy := gateways.Foreign(gateways.EnvoyExtensionPolicy)
	b.Exists(t, policy, "payload-processing")
	uid := policy.GetUID()
	b.Delete(t, policy)
	testkit.Eventually(t, domaintest.Patience, "the policy to come back", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil || policy.GetUID() == uid {
			return errors.Join(err, errors.New("not yet"))
		}
		return nil
	})
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
	b.Install(t, testkit.Kuadrant)
	b.kuadrant(t)
	auth, deny := b.policiesOf()
	b.Create(t, auth, deny)
	b.kuadrantSays(t, "True", auth, deny)
	b.RollOut(t, "payload-pre-processing", "payload-processing", "maas-api")
	b.says(t, obj, "Reconciled")
	b.Remove(t, testkit.Kuadrant)
	b.Gone(t, &appsv1.Deployment{}, "payload-pre-processing")
	b.guarded(t, obj, config)
	b.ends(t, obj)
}

// route leads to a model that somebody else's controller looks after.
func (b *bench) route() *gatewayv1.HTTPRoute {
	r := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "iris", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "serving.kserve.io/v1beta1", Kind: "InferenceService", Name: "iris", UID: "44444444-4444-4444-4444-444444444444", Controller: ptr.To(true)}}}}
	r.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "door"}}
	return r
}

// guarded deletes the Config while a route leads to a model: what checks requests stays until the route is gone, and has no owner
// that would take it along.
func (b *bench) guarded(t testing.TB, obj *v1alpha1.MaasTenantConfig, config *v1alpha1.Config) {
	t.Helper()
	route, checks := b.route(), &appsv1.Deployment{}
	b.Create(t, route)
	for name, owned := range map[string]bool{"payload-processing": false, "maas-api": true} {
		b.Exists(t, checks, name)
		if has := slices.ContainsFunc(checks.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Config" }); has != owned {
			t.Errorf("%s goes with the Config: %t", name, has)
		}
	}
	b.Delete(t, config)
	b.says(t, obj, "ConfigMissing")
	if c := meta.FindStatusCondition(obj.Status.Conditions, "Ready"); !strings.Contains(c.Message, b.NS+"/iris") {
		t.Errorf("the route is not named: %s", c.Message)
	}
	b.Exists(t, checks, "payload-processing")
	b.Exists(t, gateways.Foreign(gateways.EnvoyExtensionPolicy), "payload-processing")
	b.Delete(t, route)
	b.Gone(t, checks, "payload-processing")
	b.Gone(t, gateways.Foreign(gateways.EnvoyExtensionPolicy), "payload-processing")
	config.ObjectMeta = metav1.ObjectMeta{Name: v1alpha1.ConfigName}
	b.Create(t, config)
	b.says(t, obj, "DeploymentsNotReady")
}

// stray makes settings in another namespace that name the tenant: they count for nothing, and go without taking anything along.
func (b *bench) stray(t testing.TB) {
	t.Helper()
	obj := &v1alpha1.MaasTenantConfig{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace(t), Name: v1alpha1.MaasTenantConfigName,
		Labels: map[string]string{naming.LabelTenantName: naming.DefaultTenant}, Annotations: map[string]string{naming.AnnotationTenantName: naming.DefaultTenant}}}
	subscription := subscription(obj.Namespace)
	b.Create(t, obj, subscription)
	b.says(t, obj, "InvalidPlacement")
	b.Delete(t, obj)
	testkit.Eventually(t, domaintest.Patience, "the settings that count for nothing to go", func() error {
		if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); client.IgnoreNotFound(err) != nil || err == nil {
			return errors.Join(err, errors.New("they are there"))
		}
		return nil
	})
	if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(subscription), subscription); err != nil || subscription.DeletionTimestamp != nil {
		t.Errorf("a subscription went with them: %v", err)
	}
	b.Change(t, subscription, func() { subscription.Finalizers = nil })
}

// subscription is one that does not go by itself.
func subscription(namespace string) *v1alpha1.MaaSSubscription {
	s := &v1alpha1.MaaSSubscription{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s", Finalizers: []string{"example.com/busy"}}}
	s.Spec.Owner.Users = []string{"me"}
	s.Spec.ModelRefs = []v1alpha1.SubscribedModel{{ModelRef: v1alpha1.ModelRef{Name: "m", Namespace: "models"}, TokenRateLimits: []v1alpha1.TokenRateLimit{{Limit: 1, Window: "1m"}}}}
	return s
}

// ends deletes the settings of the tenant, whose subscription goes first.
func (b *bench) ends(t testing.TB, obj *v1alpha1.MaasTenantConfig) {
	t.Helper()
	subscription := subscription(b.NS)
	route := b.route()
	b.Create(t, subscription, route)
	b.Delete(t, obj)
	b.says(t, obj, "DeletionInProgress")
	b.Exists(t, &appsv1.Deployment{}, "maas-api")
	b.Change(t, subscription, func() { subscription.Finalizers = nil })
	b.says(t, obj, "DeletionBlocked")
	b.Exists(t, gateways.Foreign(gateways.EnvoyExtensionPolicy), "payload-processing")
	b.Delete(t, route)
	testkit.Eventually(t, domaintest.Patience, "the end", func() error { return b.Ended([]client.Object{obj}, b.controllers()) })
}

// TestKilled: killed at any write, also while the tenant goes, the next start comes to the same end.
func TestKilled(t *testing.T) {
	b := newBench(t)
	b.Install(t, testkit.GatewayAPI, testkit.EnvoyGateway)
	b.gateway(t)
	config := &v1alpha1.Config{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ConfigName}}
	b.Create(t, config, b.database())
	t.Cleanup(func() { b.Delete(t, config) })
	var obj *v1alpha1.MaasTenantConfig
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager, Run: b.run, Stride: 12,
		Reset: func(t testing.TB) {
			obj = &v1alpha1.MaasTenantConfig{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: v1alpha1.MaasTenantConfigName}}
			b.Create(t, obj)
		},
		Converged: func() error { return b.said(obj, "DeploymentsNotReady") },
		Verify:    func(t testing.TB) { b.Exists(t, gateways.Foreign(gateways.EnvoyExtensionPolicy), "payload-processing") },
		Delete:    func(t testing.TB) { b.Delete(t, obj) },
		Gone:      func() error { return b.Ended([]client.Object{obj.DeepCopy()}, b.controllers()) },
	})
}
