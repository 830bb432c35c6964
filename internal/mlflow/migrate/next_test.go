// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/engine"
)

const (
	pf1, mg1 = "mlflow-pf-3140-g1", "mlflow-mg-3140-g1"
	pf2, mg2 = "mlflow-pf-3140-g2", "mlflow-mg-3140-g2"
)

func TestUpgrade(t *testing.T) {
	s := newSim(t, "3.13.0")
	out := s.until("MigrationRunning")
	if !out.Server.Unmanaged || !out.Suspend || status(out, "Available") != "" || status(out, "Progressing") != metav1.ConditionTrue {
		t.Errorf("the server must be left alone during the preflight: %+v", out)
	}
	s.wantMessage("Checking the database before it is migrated to MLflow 3.14.0 because version 3.13.0 is recorded and 3.14.0 is needed.", backup)
	out = s.until("MigrationScalingDown")
	if status(out, "Available") != metav1.ConditionFalse {
		t.Errorf("a stopped server is not available: %+v", out.Conditions)
	}
	s.wantServer("mlflow:old", 0)
	out = s.until("MigrationSucceeded")
	s.wantMessage("Migration for generation 1 completed successfully")
	s.wantServer("mlflow:new", 2)
	s.wantJobs(pf1, mg1)
	if s.o.MLflow.Status.Version != "3.14.0" || out.Suspend || s.stops != 1 {
		t.Errorf("version %s, suspended %v, %d stops", s.o.MLflow.Status.Version, out.Suspend, s.stops)
	}
	want := []string{"MigrationPreflight", "MigrationScalingDown", "MigrationRunning", "MigrationRollout", "MigrationSucceeded"}
	if diff := cmp.Diff(want, s.events); diff != "" {
		t.Error(diff)
	}
	s.rest()
	s.wantJobs(pf1, mg1)
	if len(s.events) != len(want) || len(s.o.Jobs) != 2 {
		t.Errorf("at rest: events %v, %d Jobs", s.events, len(s.o.Jobs))
	}
}

func TestVersionIsRecordedWhenTheServerIsReady(t *testing.T) {
	s := newSim(t, "3.13.0")
	for range 10 {
		s.look()
	}
	s = newSim(t, "3.13.0")
	for s.o.Deployment == nil || s.image() != "mlflow:new" {
		s.look()
	}
	s.o.Deployment.Status.AvailableReplicas = 1
	if out := Next(s.o, s.server); out.Version != "" || status(out, Condition) != metav1.ConditionUnknown {
		t.Errorf("recorded too early: %+v", out)
	}
	s.o.Deployment.Status.AvailableReplicas = 2
	s.o.Deployment.Generation++
	if out := Next(s.o, s.server); out.Version != "" {
		t.Errorf("the status of the Deployment speaks of an earlier spec: %+v", out)
	}
}

func TestNothingToMigrate(t *testing.T) {
	s := newSim(t, "3.13.0")
	s.preflights = []ending{nothing}
	s.until("MigrationSucceeded")
	s.wantServer("mlflow:new", 2)
	s.wantJobs(pf1)
	if s.stops != 0 {
		t.Error("the server was stopped for nothing")
	}
}

func TestFirstInstallation(t *testing.T) {
	s := newSim(t, "")
	s.until("MigrationSucceeded")
	s.wantJobs(mg1)
	s.wantServer("mlflow:new", 2)
	if s.stops != 0 {
		t.Errorf("%d stops", s.stops)
	}

	s = newSim(t, "")
	s.migrations = []ending{{code: 11, message: "The backend store uses mssql. " + unchanged}, ok}
	out := s.until("MigrationFailed")
	s.wantServer("mlflow:new", 0)
	s.wantMessage("the backend store is of an unsupported kind: The backend store uses mssql.", "the server has not been started")
	if status(out, "Available") != metav1.ConditionFalse || out.Problem == nil {
		t.Errorf("%+v", out)
	}
	s.o.MLflow.Generation++
	s.until("MigrationSucceeded")
	s.wantServer("mlflow:new", 2)
}

// TestRetriesBecomeRarer: every try takes the server from its users, so that a
// failure that does not pass must not do so for ever at the same pace.
func TestRetriesBecomeRarer(t *testing.T) {
	refused := ending{code: 15, message: "Connection refused. " + unchanged}
	for name, c := range map[string]struct {
		preflights, migrations []ending
		most                   time.Duration
	}{
		"preflight":                       {preflights: []ending{refused}, migrations: []ending{ok}, most: longPause},
		"migration":                       {preflights: []ending{needed}, migrations: []ending{refused}, most: longServePause},
		"migration that left the outcome": {preflights: []ending{needed}, migrations: []ending{{code: 15, message: "Connection lost."}}, most: longPause},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, "3.13.0")
			s.preflights, s.migrations = c.preflights, c.migrations
			var pauses []time.Duration
			for range 7 {
				out := s.until("MigrationRetrying")
				pauses = append(pauses, out.RequeueAfter)
				s.o.Now = s.o.Now.Add(out.RequeueAfter)
				s.look() // clears away what failed
			}
			if first := pauses[0]; first > retryPause || first < retryPause-time.Minute {
				t.Errorf("the first pause is %s", first)
			}
			for i := range pauses[1:] {
				if pauses[i+1] < pauses[i] && pauses[i+1] < c.most-time.Minute {
					t.Errorf("pause %d is shorter than the one before: %v", i+1, pauses)
				}
			}
			if last := pauses[len(pauses)-1]; last > c.most || last < c.most-time.Minute {
				t.Errorf("the pauses are %v, the last must be about %s", pauses, c.most)
			}
			s.preflights, s.migrations = []ending{needed}, []ending{ok}
			s.until("MigrationSucceeded")
			s.wantServer("mlflow:new", 2)
		})
	}
}

func TestPreflightFails(t *testing.T) {
	s := newSim(t, "3.13.0")
	s.preflights = []ending{{code: 15, message: "Connection refused. " + unchanged}, needed}
	out := s.until("MigrationRetrying")
	s.wantServer("mlflow:old", 2)
	s.wantMessage("the database could not be worked on: Connection refused.", "the server goes on as before", "2026-03-01T12:0", ForceAnnotation)
	if status(out, "Available") != "" || status(out, "Degraded") != metav1.ConditionTrue || out.RequeueAfter <= 0 || out.RequeueAfter > retryPause {
		t.Errorf("%+v", out)
	}
	s.until("MigrationSucceeded")
	s.wantJobs(pf1, pf1, mg1)

	s = newSim(t, "3.13.0")
	s.preflights = []ending{{code: 14, message: "Unknown revision. " + unchanged}, needed}
	out = s.until("MigrationFailed")
	if status(out, "Progressing") != metav1.ConditionFalse || status(out, "Available") != "" || !out.Suspend || out.Problem != nil {
		t.Errorf("%+v", out)
	}
	s.wantServer("mlflow:old", 2)
	s.o.Now = s.o.Now.Add(48 * time.Hour)
	s.o.Jobs = nil // their time is up
	s.rest()
	s.wantServer("mlflow:old", 2)
	s.wantJobs(pf1)
	s.o.MLflow.Generation++
	s.until("MigrationSucceeded")
	s.wantJobs(pf1, pf2, mg2)
}

// TestLastWordsAreFiltered: whatever the pod of a migration says, no secret comes into a condition.
func TestLastWordsAreFiltered(t *testing.T) {
	s := newSim(t, "3.13.0")
	s.preflights = []ending{{code: 15, message: "No way to postgresql://mlflow:hunter2@db/mlflow with password=swordfish. " + unchanged}}
	out := s.until("MigrationRetrying")
	s.wantMessage("No way to postgresql://")
	for _, c := range out.Conditions {
		if strings.Contains(c.Message, "hunter2") || strings.Contains(c.Message, "swordfish") {
			t.Errorf("%s tells a secret: %s", c.Type, c.Message)
		}
	}
}

func TestMigrationFails(t *testing.T) {
	for _, test := range []struct {
		name     string
		ending   ending
		reason   string
		image    string
		replicas int32
		words    string
	}{
		{"retryable, unchanged", ending{code: 15, message: "deadlock. " + unchanged}, "MigrationRetrying", "mlflow:old", 2, "goes on as before"},
		{"retryable, maybe changed", ending{code: 15, message: "deadlock. " + maybeChanged}, "MigrationRetrying", "mlflow:old", 0, "bring back the backup"},
		{"killed", ending{code: 137}, "MigrationRetrying", "mlflow:old", 0, "the container exited with code 137"},
		{"terminal, unchanged", ending{code: 10, message: "3.13 instead. " + unchanged}, "MigrationFailed", "mlflow:old", 2, "goes on as before"},
		{"terminal, changed", ending{code: 13, message: "at c. " + maybeChanged}, "MigrationFailed", "mlflow:old", 0, "stays stopped"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSim(t, "3.13.0")
			s.migrations = []ending{test.ending, ok}
			s.until(test.reason)
			s.rest()
			s.wantServer(test.image, test.replicas)
			s.wantMessage(test.words)
			s.wantJobs(pf1, mg1)
			if test.reason == "MigrationFailed" {
				s.o.Now = s.o.Now.Add(time.Hour)
				s.rest()
				s.wantJobs(pf1, mg1)
				s.o.MLflow.Annotations = map[string]string{ForceAnnotation: ""}
			}
			s.until("MigrationSucceeded")
			s.wantServer("mlflow:new", 2)
			if len(s.o.MLflow.Annotations) != 0 {
				t.Errorf("annotations are left: %v", s.o.MLflow.Annotations)
			}
		})
	}
}

func TestEveryPodMustHaveLeftTheDatabaseAlone(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "1"}, Status: batchv1.JobStatus{Failed: 2,
		Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}}}
	pod := func(message string) corev1.Pod {
		return corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{Name: container,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 15, Message: message}}}}}}
	}
	for _, test := range []struct {
		pods []corev1.Pod
		want bool
	}{
		{[]corev1.Pod{pod("x. " + unchanged), pod("y. " + unchanged)}, true},
		{[]corev1.Pod{pod("x. " + maybeChanged), pod("y. " + unchanged)}, false},
		{[]corev1.Pod{pod("y. " + unchanged)}, false}, // one is gone
		{nil, false},
	} {
		if got := (attempt{Job: job, pods: test.pods}).result(false); got.unchanged != test.want || got.terminal {
			t.Errorf("%d pods: %+v", len(test.pods), got)
		}
	}
}

func TestDowngradeIsRefused(t *testing.T) {
	s := newSim(t, "3.15.0")
	out := s.until("MigrationFailed")
	s.wantServer("mlflow:old", 2)
	s.wantMessage("Nothing was touched.", "supports 3.15.0")
	if s.rest(); len(s.made) != 0 || s.stops != 0 || !out.Server.Unmanaged || status(out, "Available") != "" {
		t.Errorf("made %v, %d stops, %+v", s.made, s.stops, out)
	}
	s.o.Supported = "3.15.0" // the release that fits is back
	s.preflights = []ending{nothing}
	s.until("MigrationSucceeded")

	s = newSim(t, "3.15.0") // the database itself is asked when somebody insists
	s.until("MigrationFailed")
	s.o.MLflow.Annotations = map[string]string{ForceAnnotation: ""}
	s.preflights = []ending{{code: 14, message: "newer. " + unchanged}}
	s.until("ForceMigrationRunning")
	s.until("MigrationFailed")
	s.wantServer("mlflow:old", 2)
	if s.rest(); len(s.o.MLflow.Annotations) != 0 || s.stops != 0 {
		t.Errorf("annotations %v, %d stops", s.o.MLflow.Annotations, s.stops)
	}
	s.wantJobs(pf1)
}

func TestForce(t *testing.T) {
	s := newSim(t, "3.13.0")
	s.until("MigrationSucceeded")
	for round := 1; round <= 2; round++ {
		s.events, s.made, s.stops = nil, nil, 0
		s.o.MLflow.Annotations = map[string]string{ForceAnnotation: ""}
		s.preflights = []ending{nothing} // somebody insists all the same
		s.until("MigrationSucceeded")
		s.wantJobs(pf1, mg1)
		want := []string{"ForceMigrationRestartRequested", "MigrationRunning", "MigrationPreflight", "MigrationScalingDown", "MigrationRunning", "MigrationRollout", "MigrationSucceeded"}
		if diff := cmp.Diff(want, s.events); diff != "" {
			t.Error(diff)
		}
		s.rest()
		if len(s.o.MLflow.Annotations) != 0 || s.stops != 1 || len(s.made) != 2 {
			t.Errorf("annotations %v, %d stops, made %v", s.o.MLflow.Annotations, s.stops, s.made)
		}
	}
}

func TestForceEndsTheWait(t *testing.T) {
	s := newSim(t, "3.13.0")
	s.preflights = []ending{{code: 15, message: unchanged}, {code: 15, message: unchanged}, needed}
	s.until("MigrationRetrying")
	now := s.o.Now
	s.o.MLflow.Annotations = map[string]string{ForceAnnotation: ""}
	s.until("ForceMigrationRunning")
	if waited := s.o.Now.Sub(now); waited > time.Minute {
		t.Errorf("waited %s", waited)
	}
	s.until("MigrationRetrying") // its own failure is waited for
	now = s.o.Now
	s.until("MigrationSucceeded")
	if waited := s.o.Now.Sub(now); waited < time.Minute {
		t.Errorf("waited only %s", waited)
	}
	s.wantJobs(pf1, pf1, pf1, mg1)
}

// TestJobsOfAnotherController: they become ours before they are removed, because
// only what is ours is.
func TestJobsOfAnotherController(t *testing.T) {
	s := newSim(t, "3.13.0")
	s.until("MigrationSucceeded")
	for i := range s.o.Jobs {
		delete(s.o.Jobs[i].Labels, engine.LabelOwner)
	}
	s.o.MLflow.Annotations = map[string]string{ForceAnnotation: ""}
	out := s.look()
	if len(out.Jobs) != 2 || out.Jobs[0].Unmanaged {
		t.Errorf("%+v", out.Jobs)
	}
	s.until("MigrationSucceeded")
	s.wantJobs(pf1, mg1, pf1, mg1)
}

func TestAlways(t *testing.T) {
	s := newSim(t, "3.14.0")
	s.o.MLflow.Spec.Migration = &mlflowv1.Migration{Mode: mlflowv1.MigrateAlways}
	s.until("MigrationSucceeded")
	s.o.MLflow.Generation++
	s.preflights = []ending{nothing}
	s.until("MigrationSucceeded")
	s.until("MigrationSucceeded")
	s.rest()
	s.wantJobs(pf1, mg1, pf2)
	if c := s.migrationCondition(); c.ObservedGeneration != 2 {
		t.Errorf("%+v", c)
	}
}

func TestAutomaticDoesNothingWithoutNeed(t *testing.T) {
	s := newSim(t, "3.14.0")
	s.look()
	s.o.MLflow.Generation++
	s.rest()
	s.wantJobs()
	s.wantServer("mlflow:new", 2)
}

func TestChangeInTheMiddle(t *testing.T) {
	s := newSim(t, "3.13.0")
	s.migrations = []ending{{never: true}}
	for len(s.made) < 2 {
		s.look()
	}
	s.o.Pods[len(s.o.Pods)-1].Status.Phase = corev1.PodRunning
	s.o.MLflow.Generation++
	s.look()
	s.look()
	s.wantMessage("Waiting for the Job " + mg1)
	s.wantServer("mlflow:old", 0)
	s.migrations = []ending{ok}
	s.until("MigrationSucceeded")
	s.wantJobs(pf1, mg1, mg2)
	s.wantMessage("generation 2")
}

func TestPodThatCannotStart(t *testing.T) {
	s := newSim(t, "3.13.0")
	s.migrations = []ending{{never: true}}
	for len(s.made) < 2 {
		s.look()
	}
	s.look()
	out := s.look()
	s.wantMessage("Its pod cannot start: ", "memory")
	if out.RequeueAfter <= 0 || out.RequeueAfter > startDeadline {
		t.Errorf("looks again after %s", out.RequeueAfter)
	}
	s.until("MigrationRetrying")
	s.wantMessage("its pod did not start within 10 minutes", "goes on as before")
	s.rest()
	s.wantServer("mlflow:old", 2)
	s.migrations = []ending{ok}
	s.until("MigrationSucceeded")
	s.wantJobs(pf1, mg1, pf1, mg1)
}

func TestTwoUpgradesInARow(t *testing.T) {
	s := newSim(t, "3.12.0")
	s.until("MigrationSucceeded")
	s.o.Supported, s.server = "3.15.1", plannedServer("mlflow:newer")
	s.until("MigrationRunning")
	s.until("MigrationSucceeded")
	s.wantServer("mlflow:newer", 2)
	s.wantJobs(pf1, mg1, "mlflow-pf-3151-g1", "mlflow-mg-3151-g1")
	if s.o.MLflow.Status.Version != "3.15.1" {
		t.Errorf("version %s", s.o.MLflow.Status.Version)
	}
}

func TestAFailureOfAnEarlierVersionDoesNotCount(t *testing.T) {
	s := newSim(t, "3.13.0")
	s.preflights = []ending{{code: 10, message: unchanged}, needed}
	s.until("MigrationFailed")
	s.rest()
	s.o.Supported = "3.14.1"
	s.until("MigrationSucceeded")
	s.wantJobs(pf1, "mlflow-pf-3141-g1", "mlflow-mg-3141-g1")
}

func TestWorkOfCronJobsEndsFirst(t *testing.T) {
	s := newSim(t, "3.13.0")
	s.busy = true
	s.until("MigrationScalingDown")
	s.wantMessage("Waiting for the pod gc-1 to end before the server is stopped")
	s.rest()
	s.wantServer("mlflow:old", 2)
	s.busy = false
	s.o.CronJobs = []batchv1.CronJob{{Status: batchv1.CronJobStatus{Active: []corev1.ObjectReference{{Name: "gc-2"}}}}}
	s.kubernetes()
	s.rest()
	s.wantMessage("Waiting for the Job gc-2")
	s.o.CronJobs = nil
	s.until("MigrationSucceeded")
}

// TestKilledAnywhere forgets every report once, as a crash before it would, in
// both kinds of migration: the same Jobs do the work and nothing is left at zero.
func TestKilledAnywhere(t *testing.T) {
	for _, force := range []bool{false, true} {
		for killed := range 14 {
			s := newSim(t, "3.13.0")
			if force {
				s.o.MLflow.Status.Version = "3.14.0"
				s.o.MLflow.Annotations = map[string]string{ForceAnnotation: ""}
			}
			for i := range 30 {
				if i == killed {
					out := Next(s.o, s.server)
					s.apply(out)
					if len(out.Done) > 0 { // the annotation goes first
						delete(s.o.MLflow.Annotations, ForceAnnotation)
					}
					s.kubernetes()
					continue
				}
				s.look()
				s.o.Now = s.o.Now.Add(time.Second)
			}
			s.wantServer("mlflow:new", 2)
			s.wantJobs(pf1, mg1)
			if !s.says("MigrationSucceeded") || s.stops != 1 || len(s.o.MLflow.Annotations) != 0 {
				t.Errorf("killed at %d, forced %v: %+v, %d stops", killed, force, s.migrationCondition(), s.stops)
			}
		}
	}
}
