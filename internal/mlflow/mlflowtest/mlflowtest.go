// SPDX-License-Identifier: Apache-2.0

// Package mlflowtest runs the MLflow controllers against a real API server, as the chart's own service account. It is
// for tests and benchmarks only.
package mlflowtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/mlflow"
	"github.com/modelplane/modelplane/internal/testkit"
)

// Scheme knows the MLflow kinds and Kubernetes.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), admission.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

// Patience is how long a test waits for the cluster.
const Patience = 60 * time.Second

// Lint is how the conditions of an MLflow are meant. A rollout makes it unavailable until it is through, within a
// generation if what the server reads changes.
var Lint = []testkit.LintOption{
	testkit.SummaryType("Available"), testkit.AllowUnready("Progressing"), testkit.AllowFlap("DeploymentNotReady", "DeploymentProgressing"),
}

// Bench is a cluster with the MLflow kinds and a namespace for the server.
type Bench struct {
	*testkit.Cluster
	C client.Client
	// NS is where the manager and the server are.
	NS string
	// Manager is the chart's service account with what the chart grants, no more.
	Manager *rest.Config
	// Settings of the manager; its namespace is NS.
	Settings mlflow.Settings
}

// New prepares a Bench. There is one MLflow in a cluster, so that tests do not run side by side.
func New(t testing.TB) *Bench {
	t.Helper()
	return With(t, map[string]any{}) // Helm takes nil for a wish to have none
}

// With is New where the chart was installed with other values of mlflow.
func With(t testing.TB, values map[string]any) *Bench {
	t.Helper()
	cluster := testkit.Start(t)
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	var ours []*apiextensionsv1.CustomResourceDefinition
	for _, crd := range crds {
		if crd.Spec.Group == mlflowv1.GroupVersion.Group || crd.Spec.Group == "mlflow.kubeflow.org" || crd.Spec.Names.Kind == "MLflowOperator" {
			ours = append(ours, crd)
		}
	}
	cluster.InstallCRDs(t, ours...)
	c, err := client.New(cluster.Config(), client.Options{Scheme: Scheme})
	if err != nil {
		t.Fatal(err)
	}
	b := &Bench{Cluster: cluster, C: c, NS: cluster.Namespace(t), Settings: mlflow.Settings{Image: "mlflow:test"}}
	if values == nil {
		values = map[string]any{} // null would take the defaults away
	}
	b.Manager = charttest.RBACWith(t, cluster, b.NS, map[string]any{"mlflow": values})
	return b
}

// Server is an MLflow on a database elsewhere.
func Server() *mlflowv1.MLflow {
	m := &mlflowv1.MLflow{ObjectMeta: metav1.ObjectMeta{Name: mlflowv1.MLflowName}}
	m.Spec.BackendStoreURI = ptr.To("postgresql://database/mlflow")
	m.Spec.ServeArtifacts, m.Spec.ArtifactsDestination = ptr.To(true), ptr.To("s3://artifacts")
	return m
}

// OnFiles is an MLflow that keeps everything on a volume.
func OnFiles() *mlflowv1.MLflow {
	m := Server()
	m.Spec.BackendStoreURI, m.Spec.ArtifactsDestination = ptr.To("sqlite:////mlflow/mlflow.db"), nil
	m.Spec.Storage = &corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}
	return m
}

// Run is a whole manager with the MLflow controllers, until ctx ends.
func (b *Bench) Run(ctx context.Context, cfg *rest.Config) error {
	settings := b.Settings
	settings.Namespace = b.NS
	return RunWith(ctx, cfg, mlflow.New().In(settings).Controllers()...)
}

// RunWith is a whole manager with other controllers.
func RunWith(ctx context.Context, cfg *rest.Config, controllers ...engine.Controller) error {
	const shutdown = time.Second
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: Scheme, Cache: engine.CacheOptions(),
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		Controller:              config.Controller{SkipNameValidation: ptr.To(true)},
		GracefulShutdownTimeout: ptr.To(shutdown),
	})
	if err != nil {
		return err
	}
	e, err := engine.New(mgr)
	if err != nil {
		return err
	}
	if err := e.Add(ctx, controllers...); err != nil {
		return err
	}
	return engine.Start(ctx, mgr, shutdown)
}

// Manage runs a manager for the rest of the test; stop ends it earlier.
func (b *Bench) Manage(t testing.TB, cfg *rest.Config) (stop func()) {
	t.Helper()
	return testkit.Manage(t, func(ctx context.Context) error { return b.Run(ctx, cfg) })
}

// Create creates objects; what has a namespace and names none goes into that of the server. The database of an MLflow
// counts as migrated, if there is no manager yet that would begin. An MLflow is removed, with what the missing garbage
// collector would remove, at the end of the test.
func (b *Bench) Create(t testing.TB, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		m, server := o.(*mlflowv1.MLflow)
		if !server && o.GetNamespace() == "" {
			o.SetNamespace(b.NS)
		}
		if err := b.C.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
		if !server {
			continue
		}
		t.Cleanup(func() { b.remove(t, o) })
		m.Status.Version = mlflow.SupportedVersion
		if err := b.C.Status().Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

// remove deletes an MLflow and those of its children that no namespace takes along.
func (b *Bench) remove(t testing.TB, m client.Object) {
	t.Helper()
	ctx := context.Background()
	objs := []client.Object{m}
	for _, name := range []string{"mlflow", "mlflow-gc"} {
		meta := metav1.ObjectMeta{Name: name}
		objs = append(objs, &rbacv1.ClusterRole{ObjectMeta: meta}, &rbacv1.ClusterRoleBinding{ObjectMeta: meta})
	}
	for _, o := range objs {
		testkit.Eventually(t, Patience, fmt.Sprintf("%T %s to go", o, o.GetName()), func() error {
			err := b.C.Delete(ctx, o)
			if err == nil {
				return errors.New("it is still there")
			}
			return client.IgnoreNotFound(err)
		})
	}
}

// Change edits an object until nobody else came in between.
func (b *Bench) Change(t testing.TB, obj client.Object, edit func()) {
	t.Helper()
	testkit.Eventually(t, Patience, "the change", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		edit()
		return b.C.Update(t.Context(), obj, client.FieldOwner("kubectl-edit"))
	})
}

// Exists waits for an object in the server's namespace, or one without, and reads it.
func (b *Bench) Exists(t testing.TB, obj client.Object, name string) {
	t.Helper()
	testkit.Eventually(t, Patience, fmt.Sprintf("%T %s", obj, name), func() error {
		return b.C.Get(t.Context(), b.key(obj, name), obj)
	})
}

// Gone waits until an object is gone.
func (b *Bench) Gone(t testing.TB, obj client.Object, name string) {
	t.Helper()
	testkit.Eventually(t, Patience, fmt.Sprintf("%T %s to go", obj, name), func() error {
		err := b.C.Get(t.Context(), b.key(obj, name), obj)
		if err == nil {
			return errors.New("it is still there")
		}
		return client.IgnoreNotFound(err)
	})
}

func (b *Bench) key(obj client.Object, name string) client.ObjectKey {
	switch obj.(type) {
	case *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding, *mlflowv1.MLflow:
		return client.ObjectKey{Name: name}
	}
	if obj.GetObjectKind().GroupVersionKind().Kind == "ConsoleLink" {
		return client.ObjectKey{Name: name}
	}
	return client.ObjectKey{Namespace: b.NS, Name: name}
}

// RollOut plays the Deployment controller: all pods are there and answer.
func (b *Bench) RollOut(t testing.TB) {
	t.Helper()
	d := &appsv1.Deployment{}
	b.Exists(t, d, mlflowv1.MLflowName)
	testkit.Eventually(t, Patience, "the rollout", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		n := ptr.Deref(d.Spec.Replicas, 1)
		d.Status = appsv1.DeploymentStatus{
			ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
			Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"},
				{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
			},
		}
		return b.C.Status().Update(t.Context(), d)
	})
}

// Status waits until a condition of the MLflow has a status and, if given, a reason, for the present generation.
func (b *Bench) Status(t testing.TB, condition string, status metav1.ConditionStatus, reason string) *mlflowv1.MLflow {
	t.Helper()
	m := &mlflowv1.MLflow{}
	testkit.Eventually(t, Patience, fmt.Sprintf("%s to be %s %s", condition, status, reason), func() error {
		if err := b.C.Get(t.Context(), client.ObjectKey{Name: mlflowv1.MLflowName}, m); err != nil {
			return err
		}
		for _, c := range m.Status.Conditions {
			if c.Type == condition && c.Status == status && (reason == "" || c.Reason == reason) && c.ObservedGeneration == m.Generation {
				return nil
			}
		}
		return fmt.Errorf("generation %d, conditions: %+v", m.Generation, m.Status.Conditions)
	})
	return m
}
