// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube/cause"
)

const (
	restartRequested = "ForceMigrationRestartRequested"
	failed           = "MigrationFailed"
	retrying         = "MigrationRetrying"
	backup           = "Make sure that there is a backup of the database."
)

// reason is the one for a migration that was forced, where there is one.
func (m *machine) reason(plain string) string {
	if m.forced && plain != restartRequested && plain != retrying {
		return "Force" + plain
	}
	return plain
}

func (m *machine) because(action string) string { return action + " because " + m.trigger() + "." }

func (m *machine) trigger() string {
	spec := m.o.MLflow.Spec.Migration
	switch {
	case m.forced:
		return "the annotation " + ForceAnnotation + " asks for it"
	case m.recorded() == "":
		return "no version is recorded yet"
	case m.recorded() != m.o.Supported:
		return fmt.Sprintf("version %s is recorded and %s is needed", m.recorded(), m.o.Supported)
	case spec != nil && spec.Mode == mlflowv1.MigrateAlways:
		return "spec.migration.mode is Always"
	}
	return "the one before did not end well"
}

// failedTo is how the message of a failure that lasts begins.
func (m *machine) failedTo() string { return "Migration to MLflow " + m.o.Supported + " failed" }

// trouble says why the pod of a Job cannot start, if it cannot.
func (m *machine) trouble(a *attempt) string {
	if a == nil {
		return ""
	}
	normal := []string{cause.Waiting, cause.ContainerCreating, cause.InitContainerRunning, cause.Unhealthy}
	for _, p := range slices.Backward(a.pods) {
		if !active(p) {
			continue
		}
		if f, ok := cause.Pod(&p); ok && !slices.Contains(normal, f.Reason) {
			return " Its pod cannot start: " + f.Message
		}
	}
	return ""
}

func unknown(reason, message string) metav1.Condition {
	return metav1.Condition{Type: Condition, Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

func succeeded(generation int64) metav1.Condition {
	return metav1.Condition{Type: Condition, Status: metav1.ConditionTrue, Reason: "MigrationSucceeded",
		Message: fmt.Sprintf("Migration for generation %d completed successfully", generation)}
}

// progress is a step on the way.
func (m *machine) progress(reason, event, action, more string, server shape) Outcome {
	reason = m.reason(reason)
	c := unknown(reason, m.because(action)+" "+backup+more)
	return m.say(m.with(c, metav1.ConditionTrue, server), c, event, false)
}

// retrying is a failure that may pass.
func (m *machine) retrying(server shape, message string) Outcome {
	c := unknown(retrying, message)
	return m.degraded(m.say(m.with(c, metav1.ConditionTrue, server), c, retrying, true), server, c)
}

// broken is a failure that lasts.
func (m *machine) broken(server shape, message string) Outcome {
	c := metav1.Condition{Type: Condition, Status: metav1.ConditionFalse, Reason: failed, Message: message}
	out := m.degraded(m.say(m.with(c, metav1.ConditionFalse, server), c, failed, true), server, c)
	if !server.serving {
		out.Problem = engine.MustChange(failed, "%s", message)
		out.Events = nil // the problem is said
	}
	return out
}

// with is an outcome in which the database is not yet, or not, as the planned
// server needs it. Where no server takes requests, that is why.
func (m *machine) with(c metav1.Condition, progressing metav1.ConditionStatus, server shape) Outcome {
	out := Outcome{Server: server.child, Suspend: true, Jobs: m.keep()}
	out.Conditions = append(out.Conditions, metav1.Condition{Type: "Progressing", Status: progressing, Reason: c.Reason, Message: c.Message})
	if !server.serving {
		out.Conditions = append(out.Conditions, metav1.Condition{Type: "Available", Status: metav1.ConditionFalse, Reason: c.Reason, Message: c.Message})
	}
	return out
}

// degraded says that the server which still serves is not the one that is asked for.
func (m *machine) degraded(out Outcome, server shape, c metav1.Condition) Outcome {
	if server.serving {
		out.Conditions = append(out.Conditions, metav1.Condition{Type: "Degraded", Status: metav1.ConditionTrue, Reason: c.Reason, Message: c.Message})
	}
	return out
}

// say adds the condition and, if it is new, the event.
func (m *machine) say(out Outcome, c metav1.Condition, event string, warning bool) Outcome {
	c.ObservedGeneration = m.o.MLflow.Generation
	out.Conditions = append(out.Conditions, c)
	if m.before == nil || m.before.Reason != c.Reason || m.before.Message != c.Message {
		out.Events = append(out.Events, engine.Event{Warning: warning, Reason: event, Message: c.Message})
	}
	return out
}
