// SPDX-License-Identifier: Apache-2.0

package modelregistry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/modelregistry"
	"github.com/modelplane/modelplane/internal/modelregistry/registrytest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func object(version, kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	return u
}

// TestOpenShiftAndGateway: routes, users, the gateway's address and the one that is scraped; the domain of the gateway changes; nothing is left, in other
// namespaces and in none, when the registry goes.
func TestOpenShiftAndGateway(t *testing.T) {
	b := registrytest.New(t)
	b.Install(t, testkit.OpenShift, testkit.GatewayAPI)
	routes := b.Namespace(t)
	b.Settings.GatewayDomain, b.Settings.RouteNamespace, b.Settings.Domain = "one.example.com", routes, "apps.example.com"
	m := b.Registry("team")
	m.Spec.Postgres.PasswordSecret = nil
	b.Create(t, m)
	stop := b.Manage(t, b.Manager)
	b.Exists(t, object("user.openshift.io/v1", "Group"), "team-users")
	b.Exists(t, &rbacv1.RoleBinding{}, "team-users")
	b.Exists(t, object("gateway.networking.k8s.io/v1beta1", "ReferenceGrant"), "allow-gateway-httproutes")
	way := object("gateway.networking.k8s.io/v1", "HTTPRoute")
	testkit.Eventually(t, registrytest.Patience, "the route of the gateway", func() error {
		return b.C.Get(t.Context(), client.ObjectKey{Namespace: routes, Name: "model-registry-team"}, way)
	})
	b.RollOut(t, "team")
	b.Status(t, "team", "KubeRBACProxyAvailable", metav1.ConditionFalse, "ResourcesUnavailable")
	b.Install(t, testkit.PrometheusOperator) // which may come later
	b.Exists(t, object("monitoring.coreos.com/v1", "ServiceMonitor"), "team-metrics-monitor")
	admit(t, b, "team-https")
	b.Status(t, "team", "Available", metav1.ConditionTrue, "DeploymentAvailable")

	stop()
	b.Settings.GatewayDomain = "two.example.com"
	b.Manage(t, b.Manager)
	testkit.Eventually(t, registrytest.Patience, "the other domain", func() error {
		service := &corev1.Service{}
		b.Exists(t, service, "team")
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			return err
		}
		const want = "two.example.com/model-registry/team"
		if got := service.Annotations["routing.opendatahub.io/external-address-rest"]; got != want || m.Status.Hosts[0] != want {
			return fmt.Errorf("the Service says %s, the status %v", got, m.Status.Hosts)
		}
		return nil
	})
	b.Status(t, "team", "Available", metav1.ConditionTrue, "")

	b.Delete(t, m)
	testkit.Eventually(t, registrytest.Patience, "the end", func() error { return b.Ended(m) })
	b.Gone(t, object("user.openshift.io/v1", "Group"), "team-users")
	b.Gone(t, &rbacv1.ClusterRoleBinding{}, "team-auth-delegator")
	b.Gone(t, object("gateway.networking.k8s.io/v1beta1", "ReferenceGrant"), "allow-gateway-httproutes")
	if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(way), way); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the gateway's route is left behind: %v", err)
	}
}

// admit is what OpenShift's router does.
func admit(t *testing.T, b *registrytest.Bench, name string) {
	t.Helper()
	u := object("route.openshift.io/v1", "Route")
	b.Exists(t, u, name)
	u.Object["status"] = map[string]any{"ingress": []any{map[string]any{
		"conditions": []any{map[string]any{"type": "Admitted", "status": "True"}}}}}
	if err := b.C.Status().Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
}

// TestKilled at some of its calls, also on the way of deletion, the manager comes to the same end: everything is there once, and the
// password is the one that was made first.
func TestKilled(t *testing.T) {
	b := registrytest.New(t)
	registry := func() *v1beta1.ModelRegistry {
		m := b.Generated("mortal")
		m.Spec.KubeRBACProxy = &v1beta1.KubeRBACProxy{}
		return m
	}
	children := map[client.Object]string{
		&appsv1.Deployment{}: "mortal", &corev1.Service{}: "mortal", &corev1.Secret{}: "mortal-postgres-credentials", &corev1.ServiceAccount{}: "mortal",
		&corev1.PersistentVolumeClaim{}: "mortal-postgres-storage", &networkingv1.NetworkPolicy{}: "mortal-https-route", &rbacv1.Role{}: "registry-user-mortal",
		&rbacv1.ClusterRoleBinding{}: "mortal-auth-delegator", &appsv1.Deployment{}: "mortal-postgres", &corev1.Secret{}: "mortal-kube-rbac-proxy",
		&corev1.Service{}: "mortal-postgres", &networkingv1.NetworkPolicy{}: "mortal-postgres",
	}
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager,
		Run:    b.Run,
		Stride: 4,
		Reset: func(t testing.TB) {
			for obj, name := range children {
				remove(t, b, obj, name)
			}
			b.Create(t, registry())
		},
		Converged: func() error {
			m := &v1beta1.ModelRegistry{}
			if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(registry()), m); err != nil {
				return err
			}
			if len(m.Status.Conditions) == 0 {
				return errors.New("the registry has no status yet")
			}
			for obj, name := range children {
				if err := b.C.Get(context.Background(), keyOf(b, obj, name), obj); err != nil {
					return fmt.Errorf("%w; the registry says %+v", err, m.Status.Conditions)
				}
				if uid := obj.GetLabels()[engine.LabelOwner]; uid != string(m.UID) {
					return fmt.Errorf("%T %s belongs to %q", obj, name, uid)
				}
			}
			return nil
		},
		Verify: func(t testing.TB) {
			secrets := &corev1.SecretList{}
			if err := b.C.List(context.Background(), secrets, client.InNamespace(b.NS)); err != nil {
				t.Fatal(err)
			}
			if len(secrets.Items) != 2 {
				t.Errorf("%d Secrets, want 2", len(secrets.Items))
			}
		},
		Delete: func(t testing.TB) { b.Delete(t, registry()) },
		Gone:   func() error { return b.Ended(registry()) },
	})
}

func keyOf(b *registrytest.Bench, obj client.Object, name string) client.ObjectKey {
	if _, global := obj.(*rbacv1.ClusterRoleBinding); global {
		return client.ObjectKey{Name: name}
	}
	return client.ObjectKey{Namespace: b.NS, Name: name}
}

// remove deletes what the missing garbage collector leaves, and what outlives a registry.
func remove(t testing.TB, b *registrytest.Bench, obj client.Object, name string) {
	t.Helper()
	key := keyOf(b, obj, name)
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	err := b.C.Delete(context.Background(), obj)
	if _, claim := obj.(*corev1.PersistentVolumeClaim); claim && err == nil {
		// Nobody else here takes off the finalizer that protects claims.
		err = b.C.Patch(context.Background(), obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// TestKeepsNothing: what the engine keeps of a look does not hold the registry.
func TestKeepsNothing(t *testing.T) {
	domain := modelregistry.New()
	domaintest.KeepsNothing(t, domain.Controllers()[0], &engine.World{Scheme: registrytest.Scheme}, func() *v1beta1.ModelRegistry {
		return &v1beta1.ModelRegistry{ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "team"}}
	})
}

func TestExplained(t *testing.T) {
	t.Setenv("LC_ALL", "C")
	b := registrytest.New(t)
	b.Create(t, b.Registry("team"))
	b.Manage(t, b.Manager)
	b.Status(t, "team", "Degraded", metav1.ConditionTrue, "InputMissing")
	text := explained(t, b)
	for _, want := range []string{"ModelRegistry " + b.NS + "/team", "not ready", "team." + b.NS + ".svc.cluster.local", "Deployment team", "key password of Secret database"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not said:\n%s", want, text)
		}
	}
}

func explained(t *testing.T, b *registrytest.Bench) string {
	t.Helper()
	c := cli.NewExplainCommand(func() (*cli.Known, error) {
		return &cli.Known{Scheme: registrytest.Scheme, About: domains.About(), Controllers: modelregistry.New().Controllers()}, nil
	})
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs([]string{"mr/team", "-n", b.NS, "--kubeconfig", b.Kubeconfig()})
	var verdict *cli.Verdict
	if err := c.ExecuteContext(t.Context()); err != nil && !errors.As(err, &verdict) {
		t.Fatal(err)
	}
	return out.String()
}
