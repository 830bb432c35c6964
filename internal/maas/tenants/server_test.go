// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/maas/tenants"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

// bench is a cluster in which services and gateways are in the test's own namespace, and tenants in another.
type bench struct {
	*domaintest.Bench
	platform *tenants.Platform
	id       string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	cluster := testkit.Start(t)
	all, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	var needed []*apiextensionsv1.CustomResourceDefinition
	for _, crd := range all {
		if crd.Spec.Group == v1alpha1.GroupVersion.Group {
			needed = append(needed, crd)
		}
	}
	cluster.InstallCRDs(t, needed...)
	b := &bench{Bench: domaintest.New(t, cluster, scheme)}
	b.id = b.NS[strings.LastIndex(b.NS, "-")+1:]
	s := settings.Settings{Namespace: b.NS, GatewayNamespace: b.NS, TenantNamespace: cluster.Namespace(t), SubscriptionNamespace: "sub-" + b.id, GatewayName: "door"}
	b.platform = &tenants.Platform{Settings: s.WithDefaults(), Image: "modelplane:test", DeletionTimeout: time.Hour, Now: time.Now}
	rules, err := engine.Rules(scheme, b.controllers()...)
	if err != nil {
		t.Fatal(err)
	}
	rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"}})
	b.Manager = charttest.RBAC(t, cluster, b.NS, rules...)
	return b
}

func (b *bench) controllers() []engine.Controller { return tenants.Controllers(b.platform) }

func (b *bench) run(ctx context.Context, cfg *rest.Config) error {
	return domaintest.Run(ctx, cfg, scheme, b.controllers()...)
}

func (b *bench) tenant(name string) *v1alpha1.AITenant {
	return &v1alpha1.AITenant{ObjectMeta: metav1.ObjectMeta{Namespace: b.platform.TenantNamespace, Name: name}}
}

func (b *bench) gateway(name string) client.Object {
	return gateways.Object(gateways.Gateway, metav1.ObjectMeta{Namespace: b.NS, Name: name}, map[string]any{"gatewayClassName": "none"})
}

// says waits until Ready of a tenant gives a reason.
func (b *bench) says(t testing.TB, obj *v1alpha1.AITenant, reason string) {
	t.Helper()
	testkit.Eventually(t, domaintest.Patience, obj.Name+" to say "+reason, func() error { return b.said(obj, reason) })
}

func (b *bench) said(obj *v1alpha1.AITenant, reason string) error {
	if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); err != nil {
		return err
	}
	if c := meta.FindStatusCondition(obj.Status.Conditions, "Ready"); c == nil || c.Reason != reason {
		return fmt.Errorf("conditions %+v", obj.Status.Conditions)
	}
	if lies := testkit.Lies(obj); len(lies) > 0 {
		return fmt.Errorf("the conditions lie: %v", lies)
	}
	return nil
}

// settle plays the controller of a tenant's settings.
func (b *bench) settle(namespace string) error {
	config := &v1alpha1.MaasTenantConfig{}
	if err := b.C.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.MaasTenantConfigName}, config); err != nil {
		return err
	}
	if meta.IsStatusConditionTrue(config.Status.Conditions, "Ready") {
		return nil
	}
	meta.SetStatusCondition(&config.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Reconciled", Message: "It runs."})
	return b.C.Status().Update(context.Background(), config)
}

// finish plays the Job controller.
func (b *bench) finish(tenant string) error {
	job := &batchv1.Job{}
	if err := b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: "maas-api-revoke-keys-" + tenant}, job); err != nil {
		return err
	}
	if job.Status.CompletionTime != nil {
		return nil
	}
	now := metav1.Now()
	job.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1, Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, Reason: "CompletionsReached", LastTransitionTime: now, LastProbeTime: now},
		{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, Reason: "CompletionsReached", LastTransitionTime: now, LastProbeTime: now},
	}}
	return b.C.Status().Update(context.Background(), job)
}

// TestLife: the Config makes the first tenant, once. It gets its namespace and settings, waits for its gateway, which comes with
// its API while the manager runs, costs nothing at rest and after a restart, and goes in order: keys, services, marks, claim.
func TestLife(t *testing.T) {
	b := newBench(t)
	counter := testkit.NewCounter()
	config := &v1alpha1.Config{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ConfigName}}
	former := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: b.platform.SubscriptionNamespace, Name: v1alpha1.TenantName,
		Finalizers: []string{"maas.opendatahub.io/tenant-finalizer"}}}
	days := int32(30)
	former.Spec.APIKeys = &v1alpha1.APIKeysConfig{MaxExpirationDays: &days}
	b.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.platform.SubscriptionNamespace}}, former, config)
	t.Cleanup(func() { b.Delete(t, config) })
	stop := testkit.Manage(t, func(ctx context.Context) error { return b.run(ctx, counter.Wrap(b.Manager)) })
	first := b.tenant(naming.DefaultTenant)
	b.says(t, first, "GatewayCheckFailed")
	settled := &v1alpha1.MaasTenantConfig{}
	testkit.Eventually(t, domaintest.Patience, "the settings", func() error { return b.settle(b.platform.SubscriptionNamespace) })
	if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.platform.SubscriptionNamespace, Name: v1alpha1.MaasTenantConfigName}, settled); err != nil {
		t.Fatal(err)
	}
	if k := settled.Spec.APIKeys; k == nil || k.MaxExpirationDays == nil || *k.MaxExpirationDays != days {
		t.Errorf("the settings of the former Tenant are lost: %+v", settled.Spec)
	}
	testkit.Eventually(t, domaintest.Patience, "the end of the former Tenant", func() error {
		return gone(b.C.Get(t.Context(), client.ObjectKeyFromObject(former), former))
	})
	b.Install(t, testkit.GatewayAPI)
	b.Create(t, b.gateway("door"))
	b.says(t, first, "Reconciled")
	if first.Status.Phase != v1alpha1.AITenantActive || first.Status.TenantNamespace != b.platform.SubscriptionNamespace || first.Status.GatewayRef.Name != "door" {
		t.Errorf("the status is %+v", first.Status)
	}
	b.Change(t, settled, func() { settled.Spec.APIKeys.MaxExpirationDays = nil })
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
	b.ends(t, first)
	testkit.Quiet(t, 2*time.Second, "no second first tenant", func() error {
		return gone(b.C.Get(t.Context(), client.ObjectKeyFromObject(first), first))
	})
}

// ends deletes a tenant and plays what it waits for.
func (b *bench) ends(t testing.TB, obj *v1alpha1.AITenant) {
	t.Helper()
	b.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: tenants.DatabaseSecret}, StringData: map[string]string{"DB_CONNECTION_URL": "postgres://x"}})
	b.Delete(t, obj)
	b.says(t, obj, "DeletionInProgress")
	if err := b.settle(obj.Status.TenantNamespace); err != nil {
		t.Errorf("before its keys are revoked, the settings are gone: %v", err)
	}
	testkit.Eventually(t, domaintest.Patience, "the Job", func() error { return b.finish(obj.Name) })
	testkit.Eventually(t, domaintest.Patience, "the end", func() error {
		return gone(b.C.Get(context.Background(), client.ObjectKeyFromObject(obj), &v1alpha1.AITenant{}))
	})
	ns := &corev1.Namespace{}
	b.Exists(t, ns, obj.Status.TenantNamespace)
	for key := range ns.Labels {
		if strings.Contains(key, "opendatahub.io") {
			t.Errorf("the namespace still has the label %s", key)
		}
	}
	for _, o := range []client.Object{
		&v1alpha1.MaasTenantConfig{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: v1alpha1.MaasTenantConfigName}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "aitenant-" + obj.Name + "-tenant-admin"}},
	} {
		if err := gone(b.C.Get(context.Background(), client.ObjectKeyFromObject(o), o)); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
}

// gone is nil for what was not found.
func gone(err error) error {
	if err == nil {
		return fmt.Errorf("it is there")
	}
	return client.IgnoreNotFound(err)
}

// TestClaim: of tenants that ask for one gateway, one gets it, and another when the first is gone. Who never got it goes without it.
func TestClaim(t *testing.T) {
	b := newBench(t)
	b.Install(t, testkit.GatewayAPI)
	b.Create(t, b.gateway("shared"))
	blue, red := b.tenant("blue-"+b.id), b.tenant("red-"+b.id)
	blue.Spec.Gateway, red.Spec.Gateway = &v1alpha1.AITenantGateway{Name: "shared"}, &v1alpha1.AITenantGateway{Name: "shared"}
	b.Create(t, blue)
	testkit.Manage(t, func(ctx context.Context) error { return b.run(ctx, b.Manager) })
	b.says(t, blue, "TenantConfigNotReady")
	b.Create(t, red)
	b.says(t, red, "GatewayClaimFailed")
	if red.Status.Phase != v1alpha1.AITenantFailed {
		t.Errorf("the phase is %s", red.Status.Phase)
	}
	if red.Status.GatewayRef != nil {
		t.Errorf("it is reached through %s, which is another's", red.Status.GatewayRef.Name)
	}
	green := b.tenant("green-" + b.id)
	green.Spec.Gateway = red.Spec.Gateway
	b.Create(t, green)
	b.says(t, green, "GatewayClaimFailed")
	b.Delete(t, green)
	testkit.Eventually(t, domaintest.Patience, "the end of a tenant without a gateway", func() error {
		return gone(b.C.Get(t.Context(), client.ObjectKeyFromObject(green), green))
	})
	b.says(t, blue, "TenantConfigNotReady")
	b.Delete(t, blue)
	b.says(t, red, "TenantConfigNotReady")
}

// TestKilled: killed at any write, also while a tenant is taken down, the next start comes to the same end.
func TestKilled(t *testing.T) {
	b := newBench(t)
	b.Install(t, testkit.GatewayAPI)
	b.Create(t, b.gateway("door"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: tenants.DatabaseSecret}, StringData: map[string]string{"DB_CONNECTION_URL": "postgres://x"}})
	var obj *v1alpha1.AITenant
	round := 0
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager, Run: b.run, Stride: 4,
		Reset: func(t testing.TB) {
			round++
			obj = b.tenant(fmt.Sprintf("t%d-%s", round, b.id))
			obj.Spec.Gateway = &v1alpha1.AITenantGateway{Name: "door"}
			b.Create(t, obj)
		},
		Converged: func() error {
			if err := b.settle("ai-tenant-" + obj.Name); err != nil {
				return err
			}
			return b.said(obj, "Reconciled")
		},
		Verify: func(t testing.TB) {
			role := &rbacv1.Role{}
			if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: "ai-tenant-" + obj.Name, Name: "aitenant-" + obj.Name + "-tenant-admin"}, role); err != nil {
				t.Error(err)
			}
		},
		Delete: func(t testing.TB) { b.Delete(t, obj) },
		Gone: func() error {
			_ = b.finish(obj.Name) // when it is there
			return b.Ended([]client.Object{obj.DeepCopy()}, b.controllers(), "ai-tenant-"+obj.Name, b.platform.TenantNamespace)
		},
	})
}
