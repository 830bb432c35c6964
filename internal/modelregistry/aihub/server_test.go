// SPDX-License-Identifier: Apache-2.0

package aihub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/modelplane/modelplane/api/aihub/v1alpha1"
	componentsv1alpha1 "github.com/modelplane/modelplane/api/components/v1alpha1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/modelregistry/aihub"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

// bench is a cluster with the kind, in which the manager and the catalog share a namespace.
type bench struct {
	*domaintest.Bench
	settings aihub.Settings
}

func newBench(t *testing.T) *bench {
	t.Helper()
	cluster := testkit.Start(t)
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	cluster.InstallCRDs(t, slices.DeleteFunc(slices.Clone(crds), func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Group != v1alpha1.GroupVersion.Group && crd.Spec.Names.Kind != "AIHub"
	})...)
	b := &bench{Bench: domaintest.New(t, cluster, scheme), settings: aihub.Settings{OwnImage: "modelplane:test", Version: "1.2.3"}}
	on := map[string]any{"enabled": true}
	b.Manager = charttest.RBACWith(t, cluster, b.NS, map[string]any{"modelregistry": map[string]any{"aihub": on, "catalog": on}})
	return b
}

func (b *bench) run(ctx context.Context, cfg *rest.Config) error {
	settings := b.settings
	settings.Namespace = b.NS
	return domaintest.Run(ctx, cfg, scheme, aihub.New().WithPlatform(settings).Controllers()...)
}

func (b *bench) manage(t *testing.T, cfg *rest.Config) (stop func()) {
	t.Helper()
	return testkit.Manage(t, func(ctx context.Context) error { return b.run(ctx, cfg) })
}

func (b *bench) catalog() *v1alpha1.Catalog {
	return &v1alpha1.Catalog{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: v1alpha1.CatalogName}}
}

// rollOut plays the controllers of Deployments and EndpointSlices.
func (b *bench) rollOut(t *testing.T) {
	t.Helper()
	b.RollOut(t, "model-catalog")
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "model-catalog-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: "model-catalog", "component": "model-catalog"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
	if err := b.C.Create(t.Context(), slice); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
}

func (b *bench) available(t *testing.T, status metav1.ConditionStatus, reason string) {
	t.Helper()
	testkit.Eventually(t, domaintest.Patience, "the catalog to be "+reason, func() error {
		c := b.catalog()
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		for _, said := range c.Status.Conditions {
			if said.Type == "Available" && said.Status == status && said.Reason == reason && said.ObservedGeneration == c.Generation && c.Status.ObservedGeneration == c.Generation {
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", c.Status.Conditions)
	})
}

// left is a Deployment as another operator leaves it, which finds its pods by other labels.
func (b *bench) left() *appsv1.Deployment {
	labels := map[string]string{"app": "model-catalog"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "model-catalog", Labels: map[string]string{"app.kubernetes.io/created-by": "model-registry-operator"}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "catalog", Image: "old"}, {Name: "kube-rbac-proxy", Image: "old"}}}},
		},
	}
}

// TestLife: a catalog comes beside a ConfigMap of its name that somebody wrote and the Deployment of another operator, answers, gets a source, is meddled with, costs
// nothing at rest and after a restart, nor do Secrets of others, and goes without a trace but for what belongs to people.
func TestLife(t *testing.T) {
	b := newBench(t)
	b.InstallCRDs(t, testkit.ThirdParty(testkit.PrometheusOperator)...)
	b.WatchConditions(t, v1alpha1.GroupVersion.WithKind("Catalog"), b.NS, testkit.SummaryType("Available"), testkit.AllowFlap("DeploymentUnavailable"))
	const written = "# of mine\ncatalogs:   [ ]\n"
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "model-catalog-sources"}, Data: map[string]string{"sources.yaml": written}}
	c := b.catalog()
	b.Create(t, theirs, c, b.left())
	counter := testkit.NewCounter()
	unread := b.ForeignSecrets(t, counter)
	stop := b.manage(t, counter.Wrap(b.Manager))
	b.available(t, metav1.ConditionFalse, "DeploymentUnavailable")
	d := &appsv1.Deployment{}
	testkit.Eventually(t, domaintest.Patience, "another Deployment than the one that was left", func() error {
		if b.Exists(t, d, "model-catalog"); len(d.Spec.Selector.MatchLabels) == 1 {
			return errors.New("it is the same")
		}
		return nil
	})
	b.rollOut(t)
	b.available(t, metav1.ConditionTrue, "DeploymentAvailable")
	pair := &corev1.Secret{}
	b.Exists(t, pair, "model-catalog-kube-rbac-proxy")
	if len(pair.Data["tls.crt"]) == 0 || len(pair.Data["tls.key"]) == 0 || len(pair.Data["ca.crt"]) == 0 {
		t.Error("the certificate is not whole")
	}
	b.Gone(t, &corev1.Secret{}, "model-catalog-postgres")
	b.Exists(t, platform.Foreign(platform.ServiceMonitor), "model-catalog-metrics-monitor")

	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: b.NS, Name: "team", Labels: map[string]string{"opendatahub.io/catalog-source": "true"}}, Data: map[string]string{"sources.yaml": "catalogs: []"}}
	b.Create(t, source)
	testkit.Eventually(t, domaintest.Patience, "the source to be mounted", func() error {
		b.Exists(t, d, "model-catalog")
		if !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--catalogs-path=/data/labeled-sources/team/sources.yaml") {
			return errors.New("not yet")
		}
		return nil
	})
	generation := d.Generation
	b.rollOut(t)
	b.available(t, metav1.ConditionTrue, "DeploymentAvailable")
	b.Change(t, source, func() { source.Data["sources.yaml"] = "catalogs: [] # again" })

	defaults, binding, mcp := &corev1.ConfigMap{}, &rbacv1.ClusterRoleBinding{}, &corev1.ConfigMap{}
	b.Exists(t, defaults, "default-catalog-sources")
	b.Change(t, defaults, func() { defaults.Data["sources.yaml"] = "catalogs: []" })
	b.Exists(t, mcp, "mcp-catalog-sources")
	b.Change(t, mcp, func() { mcp.Data["sources.yaml"] = written })
	b.Exists(t, binding, "model-catalog-auth-delegator")
	uid := binding.UID
	b.Delete(t, binding)
	testkit.Eventually(t, domaintest.Patience, "what is ours to be as it was", func() error {
		b.Exists(t, defaults, "default-catalog-sources")
		b.Exists(t, binding, "model-catalog-auth-delegator")
		if defaults.Data["sources.yaml"] == "catalogs: []" || binding.UID == uid {
			return errors.New("not yet")
		}
		return nil
	})
	b.available(t, metav1.ConditionTrue, "DeploymentAvailable")
	testkit.NoWrites(t, counter, 2*time.Second, "when nothing changes")
	stop()
	quiet := counter.Snapshot()
	b.manage(t, counter.Wrap(b.Manager))
	testkit.Quiet(t, 3*time.Second, "the rest after a restart", func() error {
		if since := counter.Since(quiet); since.Writes() > 0 {
			return fmt.Errorf("writes:\n%s", since)
		}
		return nil
	})
	if b.Exists(t, d, "model-catalog"); d.Generation != generation {
		t.Error("the pods were made anew for a change of a file that the server follows by itself")
	}
	unread()
	b.Delete(t, c)
	testkit.Eventually(t, domaintest.Patience, "the end", func() error {
		return b.Ended([]client.Object{c}, aihub.New().Controllers())
	})
	for name, want := range map[string]string{"model-catalog-sources": written, "mcp-catalog-sources": written, "agent-catalog-sources": "agent_catalogs: []\n"} {
		cm := &corev1.ConfigMap{}
		b.Exists(t, cm, name)
		if cm.Data["sources.yaml"] != want || len(cm.OwnerReferences) > 0 {
			t.Errorf("%s is not its owner's any more: %v %v", name, cm.Data, cm.OwnerReferences)
		}
	}
}

// TestRoutes: with a router and a gateway the catalog is available when both lead to it, and says in their words why it is not.
func TestRoutes(t *testing.T) {
	b := newBench(t)
	b.Install(t, testkit.OpenShift, testkit.GatewayAPI)
	routes := b.Namespace(t)
	b.settings.Domain, b.settings.GatewayDomain, b.settings.GatewayName, b.settings.GatewayNamespace, b.settings.RouteNamespace =
		"apps.example.com", "gw.example.com", "main", "ingress", routes
	c := b.catalog()
	b.Create(t, c)
	b.manage(t, b.Manager)
	b.rollOut(t)
	answered := func(version, kind string, key client.ObjectKey, status map[string]any) {
		t.Helper()
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(version)
		u.SetKind(kind)
		testkit.Eventually(t, domaintest.Patience, "a "+kind+" that takes an answer", func() error {
			if err := b.C.Get(t.Context(), key, u); err != nil {
				return err
			}
			u.Object["status"] = status
			return b.C.Status().Update(t.Context(), u)
		})
	}
	gateway := func(state, message string) {
		t.Helper()
		answered("gateway.networking.k8s.io/v1", "HTTPRoute", client.ObjectKey{Namespace: routes, Name: "model-catalog"}, map[string]any{"parents": []any{map[string]any{
			"parentRef": map[string]any{"name": "main", "namespace": "ingress"}, "conditions": []any{map[string]any{"type": "Accepted", "status": state, "message": message}}}}})
	}
	b.says(t, "Available", "ResourcesUnavailable", "no router has answered yet")
	answered("route.openshift.io/v1", "Route", client.ObjectKey{Namespace: b.NS, Name: "model-catalog-https"}, map[string]any{"ingress": []any{map[string]any{
		"conditions": []any{map[string]any{"type": "Admitted", "status": "True"}}}}})
	b.says(t, "Available", "ResourcesUnavailable", "is not accepted by Gateway ingress/main: it has not answered yet")
	gateway("True", "")
	b.available(t, metav1.ConditionTrue, "DeploymentAvailable")
	gateway("False", "no listener takes it")
	b.says(t, "Available", "ResourcesUnavailable", "no listener takes it")
	b.Delete(t, c)
	testkit.Eventually(t, domaintest.Patience, "the end", func() error {
		return b.Ended([]client.Object{c}, aihub.New().Controllers(), routes)
	})
}

// TestFaultsDelayButDoNotPrevent, with an image that needs a database.
func TestFaultsDelayButDoNotPrevent(t *testing.T) {
	b := newBench(t)
	b.settings.Image = "quay.io/example/model-registry:1"
	faults := testkit.NewFaults(7).Add(
		testkit.Rule{Fault: testkit.Unavailable, Probability: 0.04},
		testkit.Rule{Fault: testkit.Conflict, Probability: 0.03},
		testkit.Rule{Fault: testkit.ClosedAfter, Probability: 0.03},
	)
	c := b.catalog()
	b.Create(t, c)
	testkit.Insist(t, func(ctx context.Context) error { return b.run(ctx, faults.Wrap(b.Manager)) })
	secret := &corev1.Secret{}
	b.Exists(t, secret, "model-catalog-postgres")
	password := string(secret.Data["database-password"])
	for _, size := range []string{"1Gi", "2Gi", "3Gi"} {
		b.Change(t, c, func() {
			c.Spec.Database = &v1alpha1.CatalogDatabase{Volume: &v1alpha1.CatalogDatabaseVolume{SizeLimit: ptr.To(resource.MustParse(size))}}
		})
		testkit.Eventually(t, domaintest.Patience, "the size to arrive", func() error {
			d := &appsv1.Deployment{}
			b.Exists(t, d, "model-catalog-postgres")
			if got := d.Spec.Template.Spec.Volumes[0].EmptyDir.SizeLimit.String(); got != size {
				return fmt.Errorf("it is %s", got)
			}
			return nil
		})
	}
	b.RollOut(t, "model-catalog-postgres")
	b.rollOut(t)
	b.available(t, metav1.ConditionTrue, "DeploymentAvailable")
	if b.Exists(t, secret, "model-catalog-postgres"); len(password) < 20 || string(secret.Data["database-password"]) != password {
		t.Error("the password is another one")
	}
	b.Delete(t, c)
	testkit.Eventually(t, domaintest.Patience, "the end in spite of faults", func() error {
		return b.Ended([]client.Object{c}, aihub.New().Controllers())
	})
	if faults.Injected() == 0 {
		t.Error("no fault was injected")
	}
}

// TestKilled: whenever the manager dies, also on the way of a deletion, the next one brings the same about.
func TestKilled(t *testing.T) {
	b := newBench(t)
	var c *v1alpha1.Catalog
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager,
		Run:    b.run,
		Stride: 7,
		Reset: func(t testing.TB) {
			b.NS = b.Namespace(t)
			c = b.catalog()
			b.Create(t, c)
		},
		Converged: func() error {
			if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(c), c); err != nil {
				return err
			}
			if len(c.Status.Conditions) == 0 {
				return errors.New("the catalog has no status yet")
			}
			for _, child := range []client.Object{
				&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "model-catalog"}}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "model-catalog-kube-rbac-proxy"}},
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "agent-catalog-sources"}}, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "model-catalog-auth-delegator"}},
			} {
				key := client.ObjectKey{Name: child.GetName(), Namespace: b.NS}
				if _, ok := child.(*rbacv1.ClusterRoleBinding); ok {
					key.Namespace = ""
				}
				if err := b.C.Get(context.Background(), key, child); err != nil {
					return err
				}
			}
			return nil
		},
		Verify: func(t testing.TB) {
			secrets := &corev1.SecretList{}
			if err := b.C.List(context.Background(), secrets, client.InNamespace(b.NS)); err != nil || len(secrets.Items) != 1 {
				t.Errorf("%d Secrets (%v), want 1", len(secrets.Items), err)
			}
		},
		Delete: func(t testing.TB) { b.Delete(t, c) },
		Gone:   func() error { return b.Ended([]client.Object{c}, aihub.New().Controllers()) },
	})
}

// TestModule: the AIHub of a platform makes the namespace and the catalog, follows the catalog, and takes it along when it goes.
// Where there is no AIHub, a namespace gets its catalog by a switch.
func TestModule(t *testing.T) {
	b := newBench(t)
	domain := aihub.New()
	domain.AsModule()
	settings := b.settings
	settings.Namespace = b.NS
	domain.WithPlatform(settings)
	instances, other := b.NS+"-instances", b.Namespace(t)
	hub := &componentsv1alpha1.AIHub{ObjectMeta: metav1.ObjectMeta{Name: componentsv1alpha1.AIHubName}}
	hub.Spec.ApplicationNamespace, hub.Spec.InstancesNamespace = b.NS, instances
	b.Create(t, hub, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "odh-modelregistry-config"}, Data: map[string]string{"platformVersion": "3.0"}})
	testkit.Manage(t, func(ctx context.Context) error {
		return domaintest.Run(ctx, b.Manager, scheme, append(domain.Controllers(), domain.Module(), domain.Instance(other))...)
	})
	says := func(phase, catalog string) {
		t.Helper()
		testkit.Eventually(t, domaintest.Patience, "the AIHub to be "+phase, func() error {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(hub), hub); err != nil {
				return err
			}
			for _, c := range hub.Status.Conditions {
				if c.Type == "CatalogReady" && c.Reason == catalog && hub.Status.Phase == phase && len(hub.Status.Releases) == 2 {
					return nil
				}
			}
			return fmt.Errorf("%+v", hub.Status)
		})
	}
	says("Not Ready", "ChildDeploymentNotReady")
	b.NS = instances
	b.rollOut(t)
	says("Ready", "AllDeploymentsAvailable")
	b.Delete(t, hub)
	testkit.Eventually(t, domaintest.Patience, "the AIHub and its catalog to go", func() error {
		for _, obj := range []client.Object{hub, b.catalog()} {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err == nil {
				return fmt.Errorf("%T is there", obj)
			} else if client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return b.C.Get(t.Context(), client.ObjectKey{Name: instances}, &corev1.Namespace{})
	})
	b.NS = other
	b.Exists(t, b.catalog(), v1alpha1.CatalogName)
}

// TestRules asks the API server, which asks the webhook at the path that installations know.
func TestRules(t *testing.T) {
	b := newBench(t)
	kinds, err := admission.Kinds(admission.ModelRegistry)
	if err != nil {
		t.Fatal(err)
	}
	settings := b.settings
	settings.CatalogNamespace = b.NS
	kinds = slices.DeleteFunc(aihub.New().WithSettings(settings).Rules(kinds), func(k admission.Kind) bool { return k.GVK.Kind != "Catalog" })
	dir, ca := b.ServingCert(t)
	port := testkit.FreePort(t)
	server := webhook.NewServer(webhook.Options{Host: b.WebhookHost(), Port: port, CertDir: dir})
	if err := admission.Register(server, scheme, kinds...); err != nil {
		t.Fatal(err)
	}
	b.Serve(t, server, port)
	validating, _, err := admission.Webhooks(b.NS, admission.Service{Namespace: "n", Name: "s"}, kinds...)
	if err != nil {
		t.Fatal(err)
	}
	if path := *validating.Webhooks[0].ClientConfig.Service.Path; path != "/validate-aihub-opendatahub-io-catalog" {
		t.Errorf("the webhook is at %s", path)
	}
	b.PointWebhook(&validating.Webhooks[0].ClientConfig, port, ca)
	b.Create(t, validating)
	t.Cleanup(func() { b.Delete(t, validating) })
	made := func(namespace, name string) error {
		c := &v1alpha1.Catalog{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		return b.C.Create(context.Background(), c, client.DryRunAll)
	}
	refused := func(namespace, name, want string) {
		t.Helper()
		testkit.Eventually(t, domaintest.Patience, "the answer: "+want, func() error {
			if err := made(namespace, name); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("the answer is %w", err)
			}
			return nil
		})
	}
	refused(b.NS, "mine", "catalog resource name must be 'catalog'")
	refused(b.Namespace(t), v1alpha1.CatalogName, "namespace must be "+b.NS)
	if err := made(b.NS, v1alpha1.CatalogName); err != nil {
		t.Errorf("the right one is refused: %v", err)
	}
}
