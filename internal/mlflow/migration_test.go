// SPDX-License-Identifier: Apache-2.0

package mlflow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/mlflow"
	"github.com/modelplane/modelplane/internal/mlflow/migrate"
	"github.com/modelplane/modelplane/internal/mlflow/mlflowtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// driver is a cluster in which Deployments and Jobs have pods.
type driver struct {
	*mlflowtest.Bench
	*kubelet
}

// ahead makes the pause after a failure be over at once.
const ahead = 3 * time.Minute

func newDriver(t *testing.T) *driver {
	t.Helper()
	b := mlflowtest.New(t)
	b.ControllerManager(t)
	return &driver{Bench: b, kubelet: newKubelet(t, b)}
}

func (d *driver) run(version string, ahead time.Duration) func(context.Context, *rest.Config) error {
	settings := d.Settings
	settings.Namespace = d.NS
	return func(ctx context.Context, cfg *rest.Config) error {
		return mlflowtest.RunWith(ctx, cfg, mlflow.New().Tested(version, ahead).WithPlatform(settings).Controllers()...)
	}
}

// manage runs a manager; stop ends it.
func (d *driver) manage(t *testing.T, version string, ahead time.Duration) (stop func()) {
	t.Helper()
	return testkit.Manage(t, func(ctx context.Context) error { return d.run(version, ahead)(ctx, d.Manager) })
}

// old is the server of an earlier version, as another controller may have left it.
func (d *driver) old(owner *mlflowv1.MLflow) *appsv1.Deployment {
	labels := map[string]string{"app": "mlflow", "component": "mlflow", "app.kubernetes.io/instance": "mlflow"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.NS, Name: "mlflow", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, mlflowv1.GroupVersion.WithKind("MLflow"))}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "mlflow"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "mlflow", Image: "mlflow:old"}}}},
		},
	}
}

// install makes an MLflow with the server of a version that runs; none if empty.
func (d *driver) install(t testing.TB, version string, preflights, migrations []ending) *mlflowv1.MLflow {
	t.Helper()
	d.begin(d.NS, preflights, migrations)
	m := mlflowtest.Server()
	d.Create(t, m)
	m.Status.Version = version
	if err := d.C.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.empty(t) })
	if version == "" {
		return m
	}
	if err := d.C.Create(t.Context(), d.old(m)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, mlflowtest.Patience, "the old server to run", func() error { return d.serves("mlflow:old") })
	return m
}

// empty removes what the MLflow left, without waiting for the garbage collector.
func (d *driver) empty(t testing.TB) {
	t.Helper()
	d.remove(t)
	testkit.Eventually(t, mlflowtest.Patience, "an empty namespace", func() error {
		jobs, deployments, pods := &batchv1.JobList{}, &appsv1.DeploymentList{}, &corev1.PodList{}
		for _, list := range []client.ObjectList{jobs, deployments, pods} {
			if err := d.C.List(context.Background(), list, client.InNamespace(d.NS)); err != nil {
				return err
			}
		}
		if n := len(jobs.Items) + len(deployments.Items) + len(pods.Items); n > 0 {
			return fmt.Errorf("%d objects are left", n)
		}
		return nil
	})
}

func (d *driver) remove(t testing.TB) {
	t.Helper()
	m := &mlflowv1.MLflow{ObjectMeta: metav1.ObjectMeta{Name: mlflowv1.MLflowName}}
	if err := client.IgnoreNotFound(d.C.Delete(context.Background(), m)); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{&appsv1.Deployment{}, &batchv1.Job{}} {
		if err := d.C.DeleteAllOf(context.Background(), o, client.InNamespace(d.NS), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
}

// serves is nil when a server with this image has all its pods.
func (d *driver) serves(image string) error {
	live := &appsv1.Deployment{}
	if err := d.C.Get(context.Background(), client.ObjectKey{Namespace: d.NS, Name: "mlflow"}, live); err != nil {
		return err
	}
	if got := live.Spec.Template.Spec.Containers[0].Image; got != image {
		return fmt.Errorf("the image is %s", got)
	}
	if n := ptr.Deref(live.Spec.Replicas, 1); n != 1 || live.Status.AvailableReplicas != 1 || live.Status.ObservedGeneration < live.Generation {
		return fmt.Errorf("%d replicas: %+v", n, live.Status)
	}
	return nil
}

// settled is nil when the database is at a version and the new server serves.
func (d *driver) settled(version string) error {
	m := &mlflowv1.MLflow{}
	if err := d.C.Get(context.Background(), client.ObjectKey{Name: mlflowv1.MLflowName}, m); err != nil {
		return err
	}
	c := meta.FindStatusCondition(m.Status.Conditions, migrate.Condition)
	if m.Status.Version != version || c == nil || c.Status != metav1.ConditionTrue || !meta.IsStatusConditionTrue(m.Status.Conditions, "Available") {
		return fmt.Errorf("version %q, conditions %+v", m.Status.Version, m.Status.Conditions)
	}
	if _, forced := m.Annotations[migrate.ForceAnnotation]; forced {
		return errors.New("the annotation is still there")
	}
	return d.serves("mlflow:test")
}

func (d *driver) waitSettled(t testing.TB, version string) {
	t.Helper()
	testkit.Eventually(t, 2*mlflowtest.Patience, "the migration to "+version, func() error { return d.settled(version) })
}

func (d *driver) waitServes(t testing.TB, image string) {
	t.Helper()
	testkit.Eventually(t, 2*mlflowtest.Patience, image+" to serve", func() error { return d.serves(image) })
}

func (d *driver) wantCounts(t testing.TB, checks, runs int) {
	t.Helper()
	if c, r := d.counts(); c != checks || r != runs {
		t.Errorf("%d preflights and %d migrations ran, want %d and %d", c, r, checks, runs)
	}
}

// wantOneRun is for those who cannot tell how often the database was looked at.
func (d *driver) wantOneRun(t testing.TB) {
	t.Helper()
	if _, runs := d.counts(); runs != 1 {
		t.Errorf("%d migrations ran", runs)
	}
}

func (d *driver) force(t testing.TB) {
	t.Helper()
	m := &mlflowv1.MLflow{ObjectMeta: metav1.ObjectMeta{Name: mlflowv1.MLflowName}}
	d.Change(t, m, func() { metav1.SetMetaDataAnnotation(&m.ObjectMeta, migrate.ForceAnnotation, "") })
}

// said waits for an event about the MLflow.
func (d *driver) said(t testing.TB, reason, words string) {
	t.Helper()
	testkit.Eventually(t, mlflowtest.Patience, "the event "+reason, func() error {
		list := &corev1.EventList{}
		if err := d.C.List(t.Context(), list); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "MLflow" && e.Reason == reason && strings.Contains(e.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("none among %d", len(list.Items))
	})
}

func TestMigrations(t *testing.T) {
	d := newDriver(t)
	const supported = mlflow.SupportedVersion
	t.Run("success", func(t *testing.T) {
		d.install(t, "3.13.0", []ending{needed}, []ending{migrated})
		counter := testkit.NewCounter()
		testkit.Manage(t, func(ctx context.Context) error { return d.run(supported, 0)(ctx, counter.Wrap(d.Manager)) })
		d.waitSettled(t, supported)
		d.wantCounts(t, 1, 1)
		for _, reason := range []string{"MigrationPreflight", "MigrationScalingDown", "MigrationRunning", "MigrationRollout", "MigrationSucceeded"} {
			d.said(t, reason, "")
		}
		testkit.NoWrites(t, counter, 2*time.Second, "when the migration is over")
	})
	t.Run("first installation", func(t *testing.T) {
		d.install(t, "", []ending{needed}, []ending{migrated})
		d.manage(t, supported, 0)
		d.waitSettled(t, supported)
		d.wantCounts(t, 0, 1)
	})
	t.Run("nothing to migrate", func(t *testing.T) {
		d.install(t, "3.13.0", []ending{nothing}, []ending{migrated})
		d.manage(t, supported, 0)
		d.waitSettled(t, supported)
		d.wantCounts(t, 1, 0)
	})
	t.Run("retryable", func(t *testing.T) {
		d.install(t, "3.13.0", []ending{unreachable, unreachable, needed}, []ending{migrated})
		d.manage(t, supported, ahead)
		d.waitSettled(t, supported)
		d.wantCounts(t, 3, 1)
		d.said(t, "MigrationRetrying", "Connection refused")
	})
	t.Run("terminal, then forced", func(t *testing.T) {
		d.install(t, "3.13.0", []ending{needed}, []ending{wrongVersion, migrated})
		stop := d.manage(t, supported, 0)
		d.Status(t, migrate.Condition, metav1.ConditionFalse, "MigrationFailed")
		d.waitServes(t, "mlflow:old")
		d.Status(t, "Available", metav1.ConditionTrue, "")
		d.Status(t, "Degraded", metav1.ConditionTrue, "MigrationFailed")
		stop()
		d.manage(t, supported, ahead) // neither a restart nor time changes anything
		d.force(t)
		d.waitSettled(t, supported)
		d.wantCounts(t, 2, 2)
	})
	t.Run("preflight fails for good, then the spec is corrected", func(t *testing.T) {
		m := d.install(t, "3.13.0", []ending{wrongVersion, needed}, []ending{migrated})
		d.manage(t, supported, ahead)
		d.Status(t, migrate.Condition, metav1.ConditionFalse, "MigrationFailed")
		d.waitServes(t, "mlflow:old")
		d.Change(t, m, func() { m.Spec.Workers = ptr.To[int32](2) })
		d.waitSettled(t, supported)
		d.wantCounts(t, 2, 1)
	})
	t.Run("downgrade refused", func(t *testing.T) {
		d.install(t, "3.15.0", []ending{needed}, []ending{migrated})
		d.manage(t, supported, 0)
		d.Status(t, migrate.Condition, metav1.ConditionFalse, "MigrationFailed")
		d.Status(t, "Available", metav1.ConditionTrue, "")
		if err := d.serves("mlflow:old"); err != nil {
			t.Error(err)
		}
		d.wantCounts(t, 0, 0)
	})
	t.Run("two upgrades in a row", func(t *testing.T) {
		d.install(t, "3.12.0", []ending{needed}, []ending{migrated})
		stop := d.manage(t, "3.13.0", 0)
		d.waitSettled(t, "3.13.0")
		stop()
		d.manage(t, supported, 0)
		d.waitSettled(t, supported)
		d.wantCounts(t, 2, 2)
	})
	t.Run("pod that does not start", func(t *testing.T) {
		d.install(t, "3.13.0", []ending{needed}, []ending{migrated})
		d.set(func() { d.hold = true })
		stop := d.manage(t, supported, 0)
		job := &batchv1.Job{}
		d.Exists(t, job, "mlflow-mg-3140-g1")
		stop()
		stop = d.manage(t, supported, 11*time.Minute) // as much later
		d.said(t, "MigrationRetrying", "its pod did not start within 10 minutes")
		stop()
		d.set(func() { d.hold = false })
		d.manage(t, supported, ahead)
		d.waitSettled(t, supported)
		d.wantOneRun(t)
	})
	t.Run("pod that does not end", func(t *testing.T) {
		d.install(t, "3.13.0", []ending{needed}, []ending{migrated})
		d.set(func() { d.endless = true })
		stop := d.manage(t, supported, 0)
		job := &batchv1.Job{}
		d.Exists(t, job, "mlflow-mg-3140-g1")
		if limit := ptr.Deref(job.Spec.ActiveDeadlineSeconds, 0); limit != 4*60*60 {
			t.Errorf("the migration may take %d seconds", limit)
		}
		d.Change(t, job, func() { job.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) })
		d.said(t, "MigrationRetrying", "the Job did not end within 1 second")
		d.said(t, "MigrationRetrying", "The database may have been changed, so the server stays stopped")
		d.set(func() { d.endless = false })
		stop()
		d.manage(t, supported, ahead)
		d.waitSettled(t, supported)
		d.wantOneRun(t)
	})
}

// TestMigrationKilledAnywhere: whichever call was the last one before a crash,
// the database is migrated once and the new server serves in the end.
func TestMigrationKilledAnywhere(t *testing.T) {
	d := newDriver(t)
	for _, forced := range []bool{false, true} {
		t.Run(fmt.Sprintf("forced %v", forced), func(t *testing.T) {
			testkit.KillEverywhere(t, testkit.KillTest{
				Config: d.Manager, Run: d.run(mlflow.SupportedVersion, 0), Timeout: 2 * mlflowtest.Patience, Stride: 6,
				Reset: func(t testing.TB) {
					version := "3.13.0"
					if forced {
						version = mlflow.SupportedVersion
					}
					d.install(t, version, []ending{needed}, []ending{migrated})
					if forced {
						d.force(t)
					}
				},
				Converged: func() error { return d.settled(mlflow.SupportedVersion) },
				Verify: func(t testing.TB) {
					d.wantOneRun(t)
				},
			})
		})
	}
}
