// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/engine"
)

// idle lets the server run as planned. Jobs that ended stay until their time is up.
func (m *machine) idle() Outcome {
	out := Outcome{Server: m.planned(), Jobs: m.keep()}
	if m.before != nil {
		out.Conditions = append(out.Conditions, *m.before)
	}
	return out
}

// refuse leaves everything as it is: an older MLflow does not know the schema.
func (m *machine) refuse() Outcome {
	return m.broken(m.untouched(), fmt.Sprintf("The database has had MLflow %s, and MLflow %s, which this release supports, is older: "+
		"it cannot work with a newer database. Nothing was touched. Install a release that supports %s; or bring back a backup of the database "+
		"that fits %s and add the annotation %s.", m.recorded(), m.o.Supported, m.recorded(), m.o.Supported, ForceAnnotation))
}

// restart clears away the Jobs of what went before. The forced migration itself
// begins with a look of its own, when the status says that it has.
func (m *machine) restart() Outcome {
	if len(m.o.Jobs) == 0 {
		out := m.wait("MigrationRunning", "Beginning the migration to MLflow "+m.o.Supported, m.untouched())
		out.RequeueAfter = time.Second
		return out
	}
	out := m.wait(restartRequested, "Removing the Jobs of the migration before", m.untouched())
	out.Jobs = nil
	for i := range m.o.Jobs {
		out.Jobs = append(out.Jobs, m.drop(&m.o.Jobs[i])...)
	}
	return out
}

// checking looks at the database while the server serves.
func (m *machine) checking() Outcome {
	action := fmt.Sprintf("Checking the database before it is migrated to MLflow %s", m.o.Supported)
	out := m.progress("MigrationRunning", "MigrationPreflight", action, m.trouble(m.preflight), m.untouched())
	if m.preflight == nil {
		out.Jobs = append(out.Jobs, engine.Child{Object: m.job(preflightStep)})
	}
	return out
}

// migrating runs the migration with the server stopped.
func (m *machine) migrating() Outcome {
	action := "Migrating the database to MLflow " + m.o.Supported
	out := m.progress("MigrationRunning", "MigrationRunning", action, m.trouble(m.migration), m.stopped())
	if m.migration == nil {
		out.Jobs = append(out.Jobs, engine.Child{Object: m.job(migrateStep)})
		return out
	}
	if m.migration.started() || ptr.Deref(m.migration.Spec.Suspend, false) {
		return out
	}
	due := m.migration.CreationTimestamp.Add(startDeadline)
	if out.RequeueAfter = due.Sub(m.o.Now); out.RequeueAfter > 0 {
		return out
	}
	// A pod that cannot start must not keep the server down.
	halted := liveJob(m.migration.Job)
	halted.Spec.Suspend = ptr.To(true)
	out.RequeueAfter = 0
	out.Jobs = append(m.keepBut(m.migration), engine.Child{Object: halted})
	return out
}

// rollOut starts the server on a database that is as it needs it, and records
// the version when the server is ready.
func (m *machine) rollOut() Outcome {
	if m.ready() {
		return m.finish()
	}
	out := m.say(Outcome{Server: m.planned(), Jobs: m.keep()}, unknown(m.reason("MigrationRunning"),
		m.because("Waiting for the server to become ready on the database of MLflow "+m.o.Supported)), "MigrationRollout", false)
	return out
}

func (m *machine) finish() Outcome {
	out := Outcome{Server: m.planned(), Jobs: m.keep(), Version: m.o.Supported, Done: []string{ForceAnnotation}}
	return m.say(out, succeeded(m.o.MLflow.Generation), "MigrationSucceeded", false)
}

// fail says what went wrong. What may pass is tried again from the beginning
// after a pause; until then, and for good if it cannot pass, the old server
// serves where it can.
func (m *machine) fail(r result) Outcome {
	server := m.afterwards(r)
	if r.terminal {
		out := m.broken(server, fmt.Sprintf("%s: %s. %s Correct the cause, then change the spec or add the annotation %s to try again.",
			m.failedTo(), r.detail, m.state(r, server), ForceAnnotation))
		out.Done = []string{ForceAnnotation}
		return out
	}
	again := r.at.Add(m.pause(r, server))
	message := fmt.Sprintf("Migration to MLflow %s did not succeed: %s. %s It is tried again at %s; add the annotation %s to try at once.",
		m.o.Supported, r.detail, m.state(r, server), again.UTC().Format(time.RFC3339), ForceAnnotation)
	out := m.retrying(server, message)
	if out.RequeueAfter = again.Sub(m.o.Now); out.RequeueAfter > 0 {
		return out
	}
	out.RequeueAfter = 0
	out.Jobs = m.keepBut(m.preflight, m.migration)
	for _, a := range []*attempt{m.preflight, m.migration} {
		if a != nil {
			out.Jobs = append(out.Jobs, m.drop(a.Job)...)
		}
	}
	return out
}

// pause is how long what failed is left alone. The migration began when its
// condition last changed.
func (m *machine) pause(r result, server shape) time.Duration {
	most := longPause
	if m.migration != nil && server.serving {
		most = longServePause
	}
	if !m.running() || m.before.LastTransitionTime.IsZero() {
		return retryPause
	}
	return min(max(r.at.Sub(m.before.LastTransitionTime.Time), retryPause), most)
}

// stayStuck repeats what a failure left, also when its Job is gone.
func (m *machine) stayStuck() Outcome {
	server := m.untouched()
	if m.migration != nil && m.migration.failed() && m.o.Template != nil {
		server = m.afterwards(m.migration.result(false))
	}
	return m.broken(server, m.before.Message)
}

// state says how a failure left things.
func (m *machine) state(r result, server shape) string {
	switch {
	case r.unchanged && server.serving:
		return "The database was not changed, and the server goes on as before."
	case r.unchanged:
		return "The database was not changed; the server has not been started."
	}
	return "The database may have been changed, so the server stays stopped: bring back the backup, or let the migration end."
}

func (m *machine) wait(reason, action string, server shape) Outcome {
	return m.progress(reason, reason, action, "", server)
}
