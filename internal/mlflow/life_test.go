// SPDX-License-Identifier: Apache-2.0

package mlflow_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/mlflow/mlflowtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// available brings a server up.
func available(t *testing.T, b *mlflowtest.Bench, m *mlflowv1.MLflow) {
	t.Helper()
	b.Create(t, m)
	b.Manage(t, b.Manager)
	b.RollOut(t)
	b.Status(t, "Available", metav1.ConditionTrue, "DeploymentReady")
}

// watched fails the test when a condition lies or flaps on the way.
func watched(t *testing.T, b *mlflowtest.Bench) {
	t.Helper()
	b.WatchConditions(t, mlflowv1.GroupVersion.WithKind("MLflow"), "", mlflowtest.Lint...)
}

// remade waits until an object that was deleted is there again.
func remade(t *testing.T, b *mlflowtest.Bench, obj client.Object, name string) {
	t.Helper()
	b.Exists(t, obj, name)
	uid := obj.GetUID()
	if err := b.C.Delete(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, mlflowtest.Patience, fmt.Sprintf("%T %s to be made again", obj, name), func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		if obj.GetUID() == uid {
			return errors.New("it is still the old one")
		}
		return nil
	})
}

func TestChildIsRepaired(t *testing.T) {
	b := mlflowtest.New(t)
	watched(t, b)
	m := mlflowtest.Server()
	m.Spec.GarbageCollection = &mlflowv1.GarbageCollection{Schedule: "0 3 * * 0"}
	available(t, b, m)
	service := &corev1.Service{}
	b.Exists(t, service, "mlflow")
	b.Change(t, service, func() { service.Spec.Ports[0].TargetPort = intstr.FromInt32(9999) })
	role := &rbacv1.ClusterRole{}
	b.Exists(t, role, "mlflow")
	b.Change(t, role, func() { role.Rules = role.Rules[:1] })
	testkit.Eventually(t, mlflowtest.Patience, "the edits to be set back", func() error {
		if err := errors.Join(b.C.Get(t.Context(), client.ObjectKeyFromObject(service), service),
			b.C.Get(t.Context(), client.ObjectKeyFromObject(role), role)); err != nil {
			return err
		}
		if to := service.Spec.Ports[0].TargetPort.String(); to != "https" || len(role.Rules) != 3 {
			return fmt.Errorf("the port leads to %s, %d rules", to, len(role.Rules))
		}
		return nil
	})
	remade(t, b, &networkingv1.NetworkPolicy{}, "mlflow-migration")
	remade(t, b, &corev1.ServiceAccount{}, "mlflow-gc-sa")
	remade(t, b, &rbacv1.ClusterRoleBinding{}, "mlflow-gc")
	remade(t, b, &batchv1.CronJob{}, "mlflow-gc")
}

func TestRefusedChildIsTold(t *testing.T) {
	b := mlflowtest.New(t)
	m := mlflowtest.Server()
	m.Spec.PodAnnotations = map[string]string{"no key": "x"}
	b.Create(t, m)
	b.Manage(t, b.Manager)
	b.Status(t, "Available", metav1.ConditionFalse, "ApplyFailed")
	b.Change(t, m, func() { m.Spec.PodAnnotations = nil })
	b.RollOut(t)
	b.Status(t, "Available", metav1.ConditionTrue, "DeploymentReady")
}

// TestWhatIsNoLongerWantedGoes, and nothing that belongs to somebody else.
func TestWhatIsNoLongerWantedGoes(t *testing.T) {
	b := mlflowtest.New(t)
	m := mlflowtest.Server()
	m.Spec.GarbageCollection = &mlflowv1.GarbageCollection{Schedule: "0 3 * * 0"}
	m.Spec.TraceArchival = &mlflowv1.TraceArchival{Enabled: ptr.To(true), Location: ptr.To("s3://traces"), Retention: ptr.To("30d")}
	available(t, b, m)
	binding := &rbacv1.ClusterRoleBinding{}
	b.Exists(t, binding, "mlflow")
	if n := len(binding.Subjects); n != 2 {
		t.Errorf("%d subjects, want the server and the archival of traces", n)
	}
	testkit.Eventually(t, mlflowtest.Patience, "garbage collection to be permitted to list workspaces", func() error {
		if !permitted(t, b, "mlflow-gc-sa", "list", "namespaces", "") {
			return errors.New("it is not")
		}
		return nil
	})
	for account, want := range map[string]bool{"mlflow-sa": true, "mlflow-trace-archival-sa": true, "mlflow-gc-sa": false} {
		if permitted(t, b, account, "get", "secrets", "mlflow-artifact-connection") != want {
			t.Errorf("%s may read the keys of artifacts: %v", account, !want)
		}
	}
	b.Exists(t, &corev1.ConfigMap{}, "mlflow-trace-archival-config")
	b.Change(t, m, func() { m.Spec.GarbageCollection, m.Spec.TraceArchival = nil, nil })
	for name, obj := range map[string]client.Object{
		"mlflow-trace-archival": &batchv1.CronJob{}, "mlflow-trace-archival-sa": &corev1.ServiceAccount{},
		"mlflow-trace-archival-config": &corev1.ConfigMap{}, "mlflow-gc-sa": &corev1.ServiceAccount{},
	} {
		b.Gone(t, obj, name)
	}
	b.Gone(t, &batchv1.CronJob{}, "mlflow-gc")
	b.Gone(t, &rbacv1.ClusterRole{}, "mlflow-gc")
	b.Gone(t, &rbacv1.ClusterRoleBinding{}, "mlflow-gc")
	theirs := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "mlflow-gc-sa"}}
	b.Create(t, theirs)
	b.Change(t, m, func() { m.Spec.Workers = ptr.To[int32](2) })
	b.Status(t, "Progressing", metav1.ConditionTrue, "DeploymentProgressing")
	b.RollOut(t)
	b.Status(t, "Available", metav1.ConditionTrue, "")
	b.Exists(t, theirs, "mlflow-gc-sa")
}

// permitted asks the API server what an account of the server may do in a workspace.
func permitted(t *testing.T, b *mlflowtest.Bench, account, verb, resource, name string) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + b.NS + ":" + account,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: verb, Resource: resource, Name: name},
	}}
	if err := b.C.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

func TestAccountAndCertificateOfSomebodyElse(t *testing.T) {
	b := mlflowtest.New(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "tracking", Annotations: map[string]string{"example.com/role": "x"}}}
	pair := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mlflow-tls"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": []byte("mine"), "tls.key": []byte("mine")}}
	b.Create(t, account, pair)
	m := mlflowtest.Server()
	m.Spec.ServiceAccountName = "tracking"
	available(t, b, m)
	degraded := b.Status(t, "Degraded", metav1.ConditionTrue, "CertificateUnusable")
	testkit.LintConditions(t, degraded, mlflowtest.Lint...)
	b.Exists(t, account, "tracking")
	b.Exists(t, pair, "mlflow-tls")
	if account.Labels[engine.LabelOwner] != "" || pair.Labels[engine.LabelOwner] != "" || string(pair.Data["tls.crt"]) != "mine" {
		t.Errorf("what is somebody else's was taken: %+v %+v", account.Labels, pair.Labels)
	}
	if err := b.C.Delete(t.Context(), pair); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, mlflowtest.Patience, "a certificate to be made instead", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(pair), pair); err != nil {
			return err
		}
		if pair.Labels[engine.LabelOwner] == "" {
			return errors.New("it is not ours")
		}
		return nil
	})
	testkit.Eventually(t, mlflowtest.Patience, "the server to have taken it", func() error {
		b.RollOut(t)
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			return err
		}
		if meta.FindStatusCondition(m.Status.Conditions, "Degraded") != nil || !meta.IsStatusConditionTrue(m.Status.Conditions, "Available") {
			return fmt.Errorf("conditions: %+v", m.Status.Conditions)
		}
		return nil
	})
}

func TestOptionalAPIsComeLater(t *testing.T) {
	b := mlflowtest.New(t)
	b.Settings.URL = "https://models.example.com/"
	available(t, b, mlflowtest.Server())
	b.Install(t, testkit.GatewayAPI, testkit.PrometheusOperator)
	route, monitor := object("gateway.networking.k8s.io/v1", "HTTPRoute"), object("monitoring.coreos.com/v1", "ServiceMonitor")
	b.Exists(t, route, "mlflow")
	b.Exists(t, monitor, "mlflow-metrics-monitor")
	testkit.Eventually(t, mlflowtest.Patience, "the address for people", func() error {
		m := &mlflowv1.MLflow{}
		if err := b.C.Get(t.Context(), client.ObjectKey{Name: "mlflow"}, m); err != nil {
			return err
		}
		if m.Status.URL != "https://models.example.com/mlflow" {
			return fmt.Errorf("it is %q", m.Status.URL)
		}
		return nil
	})
	b.RollOut(t) // metrics are written to a file since
	b.Status(t, "Available", metav1.ConditionTrue, "")
	b.Remove(t, testkit.PrometheusOperator)
	testkit.Eventually(t, mlflowtest.Patience, "the server to go on without metrics", func() error {
		d := &appsv1.Deployment{}
		if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "mlflow"}, d); err != nil {
			return err
		}
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.Name == "metrics" {
				return errors.New("it still has the volume")
			}
		}
		return nil
	})
}

func TestOpenShift(t *testing.T) {
	b := mlflowtest.New(t)
	b.Settings.URL = "https://models.example.com"
	b.Install(t, testkit.OpenShift)
	b.Create(t, mlflowtest.Server())
	b.Manage(t, b.Manager)
	b.Exists(t, object("console.openshift.io/v1", "ConsoleLink"), "mlflow")
	b.RollOut(t)
	b.Status(t, "Available", metav1.ConditionTrue, "")
	if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "mlflow-tls"}, &corev1.Secret{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the platform makes the certificate, and so did we: %v", err)
	}
}

func object(version, kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	return u
}

func TestRestartAndRestCostNothing(t *testing.T) {
	b := mlflowtest.New(t)
	b.Install(t, testkit.GatewayAPI)
	counter := testkit.NewCounter()
	m := mlflowtest.OnFiles()
	m.Spec.GarbageCollection = &mlflowv1.GarbageCollection{Schedule: "0 3 * * 0"}
	b.Create(t, m)
	stop := b.Manage(t, counter.Wrap(b.Manager))
	b.RollOut(t)
	b.Status(t, "Available", metav1.ConditionTrue, "")
	testkit.NoWrites(t, counter, 3*time.Second, "when nothing changes")
	t.Logf("until then:\n%s", counter)
	stop()
	before := counter.Snapshot()
	b.Manage(t, counter.Wrap(b.Manager))
	testkit.Quiet(t, 5*time.Second, "the rest after a restart", func() error {
		if since := counter.Since(before); since.Writes() > 0 {
			return fmt.Errorf("writes:\n%s", since)
		}
		return nil
	})
}

func TestFaultsDelayButDoNotPrevent(t *testing.T) {
	b := mlflowtest.New(t)
	b.Install(t, testkit.GatewayAPI)
	faults := testkit.NewFaults(7).Add(
		testkit.Rule{Fault: testkit.Unavailable, Probability: 0.04},
		testkit.Rule{Fault: testkit.Conflict, Probability: 0.03},
		testkit.Rule{Fault: testkit.ClosedAfter, Probability: 0.03},
	)
	watched(t, b)
	m := mlflowtest.OnFiles()
	m.Spec.GarbageCollection = &mlflowv1.GarbageCollection{Schedule: "0 3 * * 0"}
	b.Create(t, m)
	testkit.Insist(t, func(ctx context.Context) error { return b.Run(ctx, faults.Wrap(b.Manager)) })
	for workers := int32(1); workers <= 5; workers++ {
		b.Change(t, m, func() { m.Spec.Workers = &workers })
		testkit.Eventually(t, mlflowtest.Patience, "the number of workers to arrive", func() error {
			d := &appsv1.Deployment{}
			if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "mlflow"}, d); err != nil {
				return err
			}
			for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
				if arg == fmt.Sprintf("--workers=%d", workers) {
					return nil
				}
			}
			return errors.New("not yet")
		})
		b.RollOut(t)
		b.Status(t, "Available", metav1.ConditionTrue, "")
	}
	b.Delete(t, m)
	testkit.Eventually(t, mlflowtest.Patience, "the end in spite of faults", func() error { return b.Ended() })
	if faults.Injected() == 0 {
		t.Error("no fault was injected")
	}
	t.Logf("%d faults", faults.Injected())
}

func TestKilledAtEveryCall(t *testing.T) {
	b := mlflowtest.New(t)
	children := map[client.Object]string{
		&appsv1.Deployment{}: "mlflow", &corev1.Service{}: "mlflow", &corev1.Secret{}: "mlflow-tls", &corev1.ServiceAccount{}: "mlflow-sa",
		&corev1.PersistentVolumeClaim{}: "mlflow-pvc", &networkingv1.NetworkPolicy{}: "mlflow", &rbacv1.ClusterRole{}: "mlflow",
		&rbacv1.ClusterRoleBinding{}: "mlflow",
	}
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager,
		Run:    b.Run,
		Reset: func(t testing.TB) {
			for obj, name := range children {
				obj.SetNamespace(b.NS)
				obj.SetName(name)
				// Nobody else here takes off the finalizer that protects claims.
				free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
				err := b.C.Delete(t.Context(), obj)
				if _, claim := obj.(*corev1.PersistentVolumeClaim); claim && err == nil {
					err = b.C.Patch(t.Context(), obj, free)
				}
				if client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
			}
			b.Create(t, mlflowtest.OnFiles())
		},
		Converged: func() error {
			m := &mlflowv1.MLflow{}
			if err := b.C.Get(context.Background(), client.ObjectKey{Name: "mlflow"}, m); err != nil {
				return err
			}
			if len(m.Status.Conditions) == 0 {
				return errors.New("the MLflow has no status yet")
			}
			for obj, name := range children {
				key := client.ObjectKey{Namespace: b.NS, Name: name}
				if err := b.C.Get(context.Background(), key, obj); err != nil {
					return fmt.Errorf("%w; the MLflow says %+v", err, m.Status.Conditions)
				}
				if uid := obj.GetLabels()[engine.LabelOwner]; uid != string(m.UID) {
					return fmt.Errorf("%T belongs to %q", obj, uid)
				}
			}
			return nil
		},
		Verify: func(t testing.TB) {
			secrets := &corev1.SecretList{}
			if err := b.C.List(context.Background(), secrets, client.InNamespace(b.NS)); err != nil {
				t.Fatal(err)
			}
			if len(secrets.Items) != 1 {
				t.Errorf("%d Secrets, want 1", len(secrets.Items))
			}
		},
		Delete: func(t testing.TB) { b.Delete(t, mlflowtest.OnFiles()) },
		Gone:   func() error { return b.Ended() },
	})
}
