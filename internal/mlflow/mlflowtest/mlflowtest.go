// SPDX-License-Identifier: Apache-2.0

// Package mlflowtest runs the MLflow controllers against a real API server, as the chart's own service account. It is
// for tests and benchmarks only.
package mlflowtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
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
const Patience = domaintest.Patience

// Lint is how the conditions of an MLflow are meant. A rollout makes it unavailable until it is through, within a
// generation if what the server reads changes.
var Lint = []testkit.LintOption{
	testkit.SummaryType("Available"), testkit.AllowUnready("Progressing"), testkit.AllowFlap("DeploymentNotReady", "DeploymentProgressing"),
}

// Bench is a cluster with the MLflow kinds; the manager and the server are in its namespace.
type Bench struct {
	*domaintest.Bench
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
	b := &Bench{Bench: domaintest.New(t, cluster, Scheme), Settings: mlflow.Settings{Image: "mlflow:test"}}
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
	return RunWith(ctx, cfg, mlflow.New().WithPlatform(settings).Controllers()...)
}

// RunWith is a whole manager with other controllers.
func RunWith(ctx context.Context, cfg *rest.Config, controllers ...engine.Controller) error {
	return domaintest.Run(ctx, cfg, Scheme, controllers...)
}

// Manage runs a manager for the rest of the test; stop ends it earlier.
func (b *Bench) Manage(t testing.TB, cfg *rest.Config) (stop func()) {
	t.Helper()
	return testkit.Manage(t, func(ctx context.Context) error { return b.Run(ctx, cfg) })
}

// Ended is nil when the MLflow is gone with everything that is not left to the garbage collector, in other namespaces too.
func (b *Bench) Ended(namespaces ...string) error {
	room := mlflow.New()
	return b.Bench.Ended([]client.Object{Server()}, append(room.Controllers(), room.Access()), namespaces...)
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
		b.Bench.Create(t, o)
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

// RollOut plays the Deployment controller: all pods of the server are there and answer.
func (b *Bench) RollOut(t testing.TB) {
	t.Helper()
	b.Bench.RollOut(t, mlflowv1.MLflowName)
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
