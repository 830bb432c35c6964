// SPDX-License-Identifier: Apache-2.0

package modelregistry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry"
	"github.com/modelplane/modelplane/internal/modelregistry/registrytest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

// watched fails the test when a condition lies or flaps on the way.
func watched(t *testing.T, b *registrytest.Bench) {
	t.Helper()
	b.WatchConditions(t, v1beta1.GroupVersion.WithKind("ModelRegistry"), b.NS, registrytest.Lint...)
}

// changed waits until a Deployment has another generation than before.
func changed(t *testing.T, b *registrytest.Bench, name string, before int64) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	testkit.Eventually(t, registrytest.Patience, "a change of "+name, func() error {
		if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: name}, d); err != nil {
			return err
		}
		if d.Generation == before {
			return errors.New("the Deployment is as it was")
		}
		return nil
	})
	return d
}

func deployment(t *testing.T, b *registrytest.Bench, name string) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	b.Exists(t, d, name)
	return d
}

// TestLife: a registry with a database elsewhere comes, waits for its password, answers, gets another password and a proxy, is
// meddled with, costs nothing at rest and after a restart, nor do Secrets of others, and goes without a trace.
func TestLife(t *testing.T) {
	b := registrytest.New(t)
	watched(t, b)
	counter := testkit.NewCounter()
	unread := b.ForeignSecrets(t, counter)
	m := b.Registry("team")
	b.Create(t, m)
	stop := b.Manage(t, counter.Wrap(b.Manager))
	b.Status(t, "team", "Degraded", metav1.ConditionTrue, "InputMissing")
	secret := b.Password("first")
	b.Create(t, secret)
	b.RollOut(t, "team")
	available := b.Status(t, "team", "Available", metav1.ConditionTrue, "DeploymentAvailable")
	testkit.LintConditions(t, available, registrytest.Lint...)
	b.Exists(t, &corev1.ServiceAccount{}, "team")
	b.Exists(t, &rbacv1.Role{}, "registry-user-team")
	b.Exists(t, &networkingv1.NetworkPolicy{}, "team-https-route")

	before := deployment(t, b, "team").Generation
	b.Change(t, secret, func() { secret.StringData = map[string]string{"password": "second"} })
	changed(t, b, "team", before)
	b.RollOut(t, "team")
	b.Status(t, "team", "Progressing", metav1.ConditionFalse, "CreatedDeployment")

	b.Change(t, m, func() { m.Spec.KubeRBACProxy = &v1beta1.KubeRBACProxy{Image: "proxy:1"} })
	b.Status(t, "team", "KubeRBACProxyAvailable", metav1.ConditionTrue, "")
	b.RollOut(t, "team")
	b.Status(t, "team", "Progressing", metav1.ConditionFalse, "CreatedDeployment")
	pair := &corev1.Secret{}
	b.Exists(t, pair, "team-kube-rbac-proxy")
	for _, key := range []string{"tls.crt", "tls.key", "ca.crt"} {
		if len(pair.Data[key]) == 0 {
			t.Errorf("the Secret of the proxy has no %s", key)
		}
	}
	meddle(t, b)
	b.Status(t, "team", "Available", metav1.ConditionTrue, "")
	testkit.NoWrites(t, counter, 2*time.Second, "when nothing changes")
	stop()
	quiet := counter.Snapshot()
	b.Manage(t, counter.Wrap(b.Manager))
	testkit.Quiet(t, 3*time.Second, "the rest after a restart", func() error {
		if since := counter.Since(quiet); since.Writes() > 0 {
			return fmt.Errorf("writes:\n%s", since)
		}
		return nil
	})
	unread()
	b.Delete(t, m)
	testkit.Eventually(t, registrytest.Patience, "the end", func() error { return b.Ended(m) })
	b.Gone(t, &rbacv1.ClusterRoleBinding{}, "team-auth-delegator")
}

// meddle edits and deletes children, also what the proxy goes by, and waits until they are as they were.
func meddle(t *testing.T, b *registrytest.Bench) {
	t.Helper()
	config, service := &corev1.ConfigMap{}, &corev1.Service{}
	b.Exists(t, config, "team-kube-rbac-proxy-config")
	b.Exists(t, service, "team")
	b.Change(t, config, func() { config.Data["config-file.yaml"] = "authorization: {}" })
	b.Change(t, service, func() { service.Spec.Ports[0].TargetPort = intstr.FromInt32(8080) })
	binding := &rbacv1.ClusterRoleBinding{}
	b.Exists(t, binding, "team-auth-delegator")
	uid := binding.UID
	b.Delete(t, binding)
	testkit.Eventually(t, registrytest.Patience, "everything to be as it was", func() error {
		if err := errors.Join(b.C.Get(t.Context(), client.ObjectKeyFromObject(config), config), b.C.Get(t.Context(), client.ObjectKeyFromObject(service), service),
			b.C.Get(t.Context(), client.ObjectKeyFromObject(binding), binding)); err != nil {
			return err
		}
		if config.Data["config-file.yaml"] == "authorization: {}" || service.Spec.Ports[0].TargetPort.IntValue() != 8443 || binding.UID == uid {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestGeneratedDatabase: password and data outlive the registry, a new one finds them again, the claim grows, another
// password reaches both pods, and everything goes where that was asked for.
func TestGeneratedDatabase(t *testing.T) {
	b := registrytest.New(t)
	watched(t, b)
	growing := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: b.NS}, Provisioner: "example.com/none", AllowVolumeExpansion: ptr.To(true)}
	t.Cleanup(func() { b.Delete(t, growing) })
	m := b.Generated("own")
	m.Annotations = map[string]string{modelregistry.AnnotationStorageClass: b.NS}
	b.Create(t, growing, m)
	b.Manage(t, b.Manager)
	b.RollOut(t, "own-postgres")
	b.RollOut(t, "own")
	b.Status(t, "own", "Available", metav1.ConditionTrue, "")
	secret, claim := &corev1.Secret{}, &corev1.PersistentVolumeClaim{}
	b.Exists(t, secret, "own-postgres-credentials")
	b.Exists(t, claim, "own-postgres-storage")
	password, server, database := string(secret.Data["password"]), deployment(t, b, "own").Generation, deployment(t, b, "own-postgres").Generation
	if len(password) < 20 || server != 1 || database != 1 {
		t.Errorf("the password has %d characters, and pods were made %d and %d times", len(password), server, database)
	}
	claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.Resources.Requests
	if err := b.C.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	b.Delete(t, m)
	testkit.Eventually(t, registrytest.Patience, "the end of the first", func() error { return b.Ended(m) })
	for _, name := range []string{"own", "own-postgres"} { // there is no garbage collector here
		b.Delete(t, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}})
	}

	again := b.Generated("own")
	again.Annotations = map[string]string{modelregistry.AnnotationStorageSize: "8Gi"}
	b.Create(t, again)
	b.RollOut(t, "own-postgres")
	b.RollOut(t, "own")
	b.Status(t, "own", "Available", metav1.ConditionTrue, "")
	b.Exists(t, secret, "own-postgres-credentials")
	b.Exists(t, claim, "own-postgres-storage")
	if string(secret.Data["password"]) != password || len(secret.OwnerReferences)+len(claim.OwnerReferences) > 0 {
		t.Error("the password is another one, or the data would go with the registry")
	}
	testkit.Eventually(t, registrytest.Patience, "the claim to grow", func() error {
		b.Exists(t, claim, "own-postgres-storage")
		if got := claim.Spec.Resources.Requests.Storage().String(); got != "8Gi" {
			return fmt.Errorf("it asks for %s", got)
		}
		return nil
	})

	server, database = deployment(t, b, "own").Generation, deployment(t, b, "own-postgres").Generation
	b.Change(t, secret, func() { secret.Data["password"] = []byte("chosen by a person: /@:%") })
	changed(t, b, "own", server)
	changed(t, b, "own-postgres", database)
	b.Delete(t, secret)
	testkit.Eventually(t, registrytest.Patience, "a new password", func() error {
		return b.C.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)
	})
	if secret.Annotations[engine.AnnotationRetained] == "" || string(secret.Data["password"]) == password {
		t.Error("the new password would go with the registry, or is the old one")
	}

	b.Change(t, again, func() { again.Annotations[modelregistry.AnnotationDeleteData] = "true" })
	testkit.Eventually(t, registrytest.Patience, "the data to go with the registry", func() error {
		b.Exists(t, secret, "own-postgres-credentials")
		b.Exists(t, claim, "own-postgres-storage")
		if !metav1.IsControlledBy(secret, again) || !metav1.IsControlledBy(claim, again) || len(secret.Data["password"]) == 0 {
			return fmt.Errorf("the registry is %s; the Secret has %v %v %v, the claim %v", again.UID, secret.OwnerReferences, secret.Annotations, secret.Labels[engine.LabelOwner], claim.OwnerReferences)
		}
		return nil
	})
}

// TestSameNameElsewhere: registries of one name in two namespaces, as they are where no webhook was asked, each may ask
// Kubernetes who somebody is, and each takes along only what is its own.
func TestSameNameElsewhere(t *testing.T) {
	b := registrytest.New(t)
	other := b.Namespace(t)
	first, second := b.Registry("twin"), b.Registry("twin")
	second.Namespace = other
	for _, m := range []*v1beta1.ModelRegistry{first, second} {
		m.Spec.Postgres.PasswordSecret, m.Spec.KubeRBACProxy = nil, &v1beta1.KubeRBACProxy{}
		b.Create(t, m)
		if m == first {
			b.Manage(t, b.Manager)
			b.Exists(t, &rbacv1.ClusterRoleBinding{}, "twin-auth-delegator")
		}
	}
	b.Exists(t, &rbacv1.ClusterRoleBinding{}, other+"-twin-auth-delegator")
	b.Delete(t, second)
	b.Gone(t, &rbacv1.ClusterRoleBinding{}, other+"-twin-auth-delegator")
	b.Exists(t, &rbacv1.ClusterRoleBinding{}, "twin-auth-delegator")
	b.Delete(t, first)
	b.Gone(t, &rbacv1.ClusterRoleBinding{}, "twin-auth-delegator")
}

func TestFaultsDelayButDoNotPrevent(t *testing.T) {
	b := registrytest.New(t)
	faults := testkit.NewFaults(7).Add(
		testkit.Rule{Fault: testkit.Unavailable, Probability: 0.04},
		testkit.Rule{Fault: testkit.Conflict, Probability: 0.03},
		testkit.Rule{Fault: testkit.ClosedAfter, Probability: 0.03},
	)
	m := b.Generated("faulty")
	m.Spec.KubeRBACProxy = &v1beta1.KubeRBACProxy{}
	b.Create(t, m)
	testkit.Insist(t, func(ctx context.Context) error { return b.Run(ctx, faults.Wrap(b.Manager)) })
	for port := int32(9001); port <= 9004; port++ {
		b.Change(t, m, func() { m.Spec.KubeRBACProxy.Port = ptr.To(port) })
		testkit.Eventually(t, registrytest.Patience, "the port to arrive", func() error {
			d := deployment(t, b, "faulty")
			if got := d.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort; got != port {
				return fmt.Errorf("it is %d", got)
			}
			return nil
		})
	}
	b.RollOut(t, "faulty-postgres")
	b.RollOut(t, "faulty")
	b.Status(t, "faulty", "Available", metav1.ConditionTrue, "")
	b.Change(t, m, func() { m.Spec.Postgres = &v1beta1.Postgres{Host: "elsewhere", Username: "me", Database: "registry"} })
	b.Gone(t, &appsv1.Deployment{}, "faulty-postgres") // its data is another matter
	b.Exists(t, &corev1.PersistentVolumeClaim{}, "faulty-postgres-storage")
	b.Exists(t, &corev1.Secret{}, "faulty-postgres-credentials")
	b.Delete(t, m)
	testkit.Eventually(t, registrytest.Patience, "the end in spite of faults", func() error { return b.Ended(m) })
	if faults.Injected() == 0 {
		t.Error("no fault was injected")
	}
}
