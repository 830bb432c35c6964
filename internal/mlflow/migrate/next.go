// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
)

// How long a failure that may pass is left alone. The pause is as long as
// the tries have taken so far, so that it about doubles, up to a bound that is
// higher where every try takes the server from its users.
const (
	retryPause     = 2 * time.Minute
	longPause      = 10 * time.Minute
	longServePause = 30 * time.Minute
)

// Next decides what is to be done now. server is the Deployment as it should be
// when nothing is to be migrated, with its namespace and number of replicas; the
// Jobs derive from it. Nothing that is given is changed.
func Next(o Observed, server *appsv1.Deployment) Outcome {
	m := newMachine(o, server)
	switch {
	case !m.requested():
		return m.idle()
	case m.downgrade() && !m.forced:
		return m.refuse()
	case m.stuck():
		return m.stayStuck()
	case m.forced && !m.begun():
		return m.restart()
	case o.Deployment != nil && o.Template == nil:
		return m.wait("MigrationRunning", "Reading the Deployment", m.untouched())
	}
	return m.advance()
}

// machine is one decision.
type machine struct {
	o      Observed
	server *appsv1.Deployment
	before *metav1.Condition // Migration, as it stands
	// asked is set by the annotation; forced also after it was taken off, until
	// the migration that it asked for has ended.
	asked, forced bool
	// preflight and migration are of the present version and generation.
	preflight, migration *attempt
	// earlier are other migrations that still run.
	earlier []attempt
}

func newMachine(o Observed, server *appsv1.Deployment) *machine {
	m := &machine{o: o, server: server, before: meta.FindStatusCondition(o.MLflow.Status.Conditions, Condition)}
	_, m.asked = o.MLflow.Annotations[ForceAnnotation]
	m.forced = m.asked || m.running() && strings.HasPrefix(m.before.Reason, "Force")
	names := map[string]**attempt{
		preflightStep.jobName(server.Name, o.Supported, o.MLflow.Generation): &m.preflight,
		migrateStep.jobName(server.Name, o.Supported, o.MLflow.Generation):   &m.migration,
	}
	for i := range o.Jobs {
		a := o.attempt(&o.Jobs[i])
		if at := names[a.Name]; at != nil {
			*at = &a
		} else if a.Labels[JobLabel] != "" && !a.finished() {
			m.earlier = append(m.earlier, a)
		}
	}
	return m
}

// running is set while the status speaks of a migration that has not ended.
func (m *machine) running() bool {
	return m.before != nil && m.before.Status == metav1.ConditionUnknown
}

func (m *machine) recorded() string { return m.o.MLflow.Status.Version }

func (m *machine) current() bool {
	return m.before != nil && m.before.ObservedGeneration == m.o.MLflow.Generation
}

func (m *machine) always() bool {
	spec := m.o.MLflow.Spec.Migration
	return spec != nil && spec.Mode == mlflowv1.MigrateAlways && !m.current()
}

// requested tells whether the database must be looked at. What failed is tried
// again when the spec changes; stuck says that it did not.
func (m *machine) requested() bool {
	failed := m.before != nil && m.before.Status == metav1.ConditionFalse
	return m.asked || m.running() || failed || m.recorded() != m.o.Supported || m.always()
}

// downgrade tells whether a newer MLflow has had the database.
func (m *machine) downgrade() bool {
	have, err := version.ParseGeneric(m.recorded())
	if err != nil {
		return false // the preflight asks the database itself
	}
	want, err := version.ParseGeneric(m.o.Supported)
	return err == nil && want.LessThan(have)
}

// stuck is a failure that only a change of the spec, another version or the
// annotation gets over.
func (m *machine) stuck() bool {
	return m.before != nil && m.before.Status == metav1.ConditionFalse && m.current() && !m.asked &&
		strings.HasPrefix(m.before.Message, m.failedTo())
}

// begun tells whether the forced migration is on its way. Jobs that ended before
// it was asked for do not count, and must be gone before it begins, because its
// own have the same names.
func (m *machine) begun() bool {
	switch {
	case m.migration != nil && !m.migration.finished(), len(m.earlier) > 0:
		return true
	case m.running() && m.before.Reason == restartRequested:
		return false
	case m.running() && strings.HasPrefix(m.before.Reason, "Force"):
		return true
	}
	return m.running() && m.waitsToRetry()
}

// waitsToRetry tells a failure of the forced migration from one before it.
func (m *machine) waitsToRetry() bool {
	return slices.ContainsFunc([]*attempt{m.preflight, m.migration}, func(a *attempt) bool {
		return a != nil && a.failed() && a.Annotations[forcedAnnotation] != ""
	})
}

// advance finds the step that is next.
func (m *machine) advance() Outcome {
	switch {
	case len(m.earlier) > 0:
		return m.wait("MigrationRunning", "Waiting for the Job "+m.earlier[0].Name+" of an earlier migration", m.stopped())
	case m.migration != nil && m.migration.succeeded():
		return m.rollOut()
	case m.migration != nil && m.migration.failed():
		return m.fail(m.migration.result(false))
	case m.migration != nil:
		return m.migrating()
	case m.preflight != nil && m.preflight.succeeded():
		if !m.forced && strings.HasPrefix(m.preflight.said(), nothingToMigrate) {
			return m.rollOut()
		}
		return m.stop()
	case m.preflight != nil && m.preflight.failed():
		return m.fail(m.preflight.result(true))
	case m.preflight != nil || m.serves() && !m.claimHas(corev1.ReadWriteOncePod):
		return m.checking()
	}
	return m.stop()
}

// serves tells whether there is a server that a look at the database spares.
func (m *machine) serves() bool {
	d := m.o.Deployment
	return d != nil && ptr.Deref(d.Spec.Replicas, 1) > 0 || len(m.serverPods()) > 0
}

// serverPods are those of the server that may still work with the database.
func (m *machine) serverPods() []corev1.Pod {
	selector, err := metav1.LabelSelectorAsSelector(m.server.Spec.Selector)
	if err != nil {
		return nil
	}
	return m.pods(func(p *corev1.Pod) bool { return selector.Matches(labels.Set(p.Labels)) })
}

// busy names what else works with the database: a pod or a Job of a CronJob.
func (m *machine) busy() string {
	for _, c := range m.o.CronJobs {
		if len(c.Status.Active) > 0 {
			return "the Job " + c.Status.Active[0].Name
		}
	}
	server := m.serverPods()
	for _, p := range m.pods(func(p *corev1.Pod) bool { return p.Labels[ComponentLabel] == ServerComponent }) {
		if !slices.ContainsFunc(server, func(s corev1.Pod) bool { return s.UID == p.UID }) {
			return "the pod " + p.Name
		}
	}
	return ""
}

func (m *machine) pods(match func(*corev1.Pod) bool) []corev1.Pod {
	var out []corev1.Pod
	for i := range m.o.Pods {
		if p := &m.o.Pods[i]; p.Namespace == m.server.Namespace && active(*p) && match(p) {
			out = append(out, *p)
		}
	}
	return out
}

// down tells whether nothing of the server is left.
func (m *machine) down() bool {
	d := m.o.Deployment
	if d == nil {
		return len(m.serverPods()) == 0
	}
	return ptr.Deref(d.Spec.Replicas, 1) == 0 && d.Status.ObservedGeneration >= d.Generation && d.Status.Replicas == 0 && len(m.serverPods()) == 0
}

// stop takes the server down, and migrates when nothing of it is left. Work that
// CronJobs began may end while the server still serves.
func (m *machine) stop() Outcome {
	busy := m.busy()
	if busy != "" && m.serves() {
		return m.wait("MigrationScalingDown", "Waiting for "+busy+" to end before the server is stopped", m.untouched())
	}
	if !m.down() {
		return m.wait("MigrationScalingDown", "Stopping the server", m.stopped())
	}
	if busy != "" {
		return m.wait("MigrationScalingDown", "Waiting for "+busy+" to end", m.stopped())
	}
	return m.migrating()
}
