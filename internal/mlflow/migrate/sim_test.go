// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/engine"
)

// ending is how the pod of a Job ends.
type ending struct {
	code    int32
	message string
	// never leaves the pod pending.
	never bool
}

var (
	needed  = ending{message: "To be migrated: the backend store is at revision a and must come to b."}
	nothing = ending{message: "Nothing to migrate: the database is at revision b."}
	ok      = ending{message: "The database is at revision b."}
)

// sim is a cluster in miniature that does what the engine and the controllers of
// Kubernetes would do, one look at a time.
type sim struct {
	t      *testing.T
	o      Observed
	server *appsv1.Deployment
	// preflights and migrations say how the Jobs end, one after the other; the
	// last one stands for all that follow.
	preflights, migrations []ending
	// busy is the work of a CronJob that is under way.
	busy bool

	made   []string // Jobs, in the order in which they were made
	events []string
	stops  int // how often the server was taken down
	uid    int
}

func plannedServer(image string) *appsv1.Deployment {
	labels := map[string]string{"app": "mlflow", "component": "mlflow", "app.kubernetes.io/instance": "mlflow"}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mlflow", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "mlflow"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "mlflow", Image: image}}},
			},
		},
	}
}

// newSim has a server of an earlier version that runs, if one is recorded.
func newSim(t *testing.T, recorded string) *sim {
	s := &sim{t: t, server: plannedServer("mlflow:new"), preflights: []ending{needed}, migrations: []ending{ok}}
	s.o = Observed{Supported: "3.14.0", Now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		MLflow: &mlflowv1.MLflow{ObjectMeta: metav1.ObjectMeta{Name: "mlflow", UID: "owner", Generation: 1},
			Status: mlflowv1.MLflowStatus{Version: recorded}}}
	if recorded != "" {
		s.o.Deployment = plannedServer("mlflow:old")
		s.o.Deployment.Generation = 1
		s.o.Template = s.o.Deployment.Spec.Template.DeepCopy()
		s.kubernetes()
	}
	return s
}

// look is one look: decide, write, and let everybody else do their part.
func (s *sim) look() Outcome {
	s.t.Helper()
	out := s.decide()
	for s.apply(out) { // the engine reports when it has seen what it wrote
		out = s.decide()
	}
	s.report(out)
	s.kubernetes()
	return out
}

func (s *sim) decide() Outcome {
	s.t.Helper()
	out := Next(s.o, s.server)
	s.check(out)
	return out
}

// check looks for what must never be decided.
func (s *sim) check(out Outcome) {
	s.t.Helper()
	names := map[string]bool{}
	for _, c := range out.Jobs {
		if names[c.Object.GetName()] {
			s.t.Errorf("%s is named twice", c.Object.GetName())
		}
		names[c.Object.GetName()] = true
		fresh := !c.Unmanaged && !slices.ContainsFunc(s.o.Jobs, func(j batchv1.Job) bool { return j.Name == c.Object.GetName() })
		if fresh && c.Object.GetLabels()[JobLabel] != "" && len(s.serverPods()) > 0 {
			s.t.Errorf("%s is made while the server runs", c.Object.GetName())
		}
		if fresh && c.Object.GetLabels()[JobLabel] != "" && s.busy {
			s.t.Errorf("%s is made while a CronJob's work is under way", c.Object.GetName())
		}
	}
	for _, j := range s.o.Jobs {
		if a := s.o.attempt(&j); j.Labels[JobLabel] != "" && !a.finished() && a.started() && !names[j.Name] {
			s.t.Errorf("%s is removed while it works", j.Name)
		}
	}
}

func (s *sim) serverPods() []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(s.o.Pods), func(p corev1.Pod) bool { return p.Labels["app"] != "mlflow" })
}

// apply does what the engine does with children.
func (s *sim) apply(out Outcome) (changed bool) {
	d := out.Server.Object.(*appsv1.Deployment).DeepCopy()
	if !out.Server.Unmanaged && (s.o.Deployment == nil || !cmp.Equal(d.Spec, s.o.Deployment.Spec) || !cmp.Equal(d.Annotations, s.o.Deployment.Annotations)) {
		d.Generation = 1
		if live := s.o.Deployment; live != nil {
			d.Generation, d.Status = live.Generation+1, live.Status
			if *live.Spec.Replicas > 0 && *d.Spec.Replicas == 0 {
				s.stops++
			}
		}
		s.o.Deployment, s.o.Template, changed = d, d.Spec.Template.DeepCopy(), true
	}
	var kept []batchv1.Job
	for _, c := range out.Jobs {
		job := c.Object.(*batchv1.Job)
		i := slices.IndexFunc(s.o.Jobs, func(j batchv1.Job) bool { return j.Name == job.Name })
		switch {
		case i < 0 && !c.Unmanaged:
			s.uid++
			job = job.DeepCopy()
			job.UID, job.CreationTimestamp = types.UID(fmt.Sprint(s.uid)), metav1.NewTime(s.o.Now)
			job.Labels[engine.LabelOwner] = string(s.o.MLflow.UID)
			kept, changed = append(kept, *job), true
			s.made = append(s.made, job.Name)
		case i >= 0:
			live := s.o.Jobs[i]
			if !c.Unmanaged {
				live.Labels[engine.LabelOwner] = string(s.o.MLflow.UID)
				live.Spec.Suspend = job.Spec.Suspend
			}
			kept = append(kept, live)
		}
	}
	s.o.Jobs = kept
	return changed
}

func (s *sim) report(out Outcome) {
	for _, name := range out.Done {
		delete(s.o.MLflow.Annotations, name)
	}
	for _, e := range out.Events {
		s.events = append(s.events, e.Reason)
	}
	if out.Problem != nil && out.Problem.Message != s.migrationCondition().Message {
		s.events = append(s.events, out.Problem.Reason)
	}
	conditions := slices.Clone(out.Conditions)
	for i := range conditions {
		c := &conditions[i]
		c.LastTransitionTime = metav1.NewTime(s.o.Now)
		if before := meta.FindStatusCondition(s.o.MLflow.Status.Conditions, c.Type); before != nil && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
	}
	s.o.MLflow.Status.Conditions = conditions
	if out.Version != "" {
		s.o.MLflow.Status.Version = out.Version
	}
}

// kubernetes does what the controllers and the kubelet do.
func (s *sim) kubernetes() {
	s.o.Pods = slices.DeleteFunc(s.o.Pods, func(p corev1.Pod) bool {
		return !slices.ContainsFunc(s.o.Jobs, func(j batchv1.Job) bool { return metav1.IsControlledBy(&p, &j) })
	})
	if d := s.o.Deployment; d != nil {
		n := *d.Spec.Replicas
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
		for i := range n {
			s.o.Pods = append(s.o.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("server-%d", i), Labels: d.Spec.Template.Labels},
				Spec: corev1.PodSpec{NodeName: "node"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
		}
	}
	if s.busy {
		s.o.Pods = append(s.o.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gc-1", UID: "gc", Labels: map[string]string{"app": "mlflow-gc", "component": "mlflow"}}})
	}
	for i := range s.o.Jobs {
		s.end(&s.o.Jobs[i])
	}
}

// end lets the pod of a Job run to its end.
func (s *sim) end(job *batchv1.Job) {
	if len(job.Status.Conditions) > 0 {
		return
	}
	now := metav1.NewTime(s.o.Now)
	if ptr.Deref(job.Spec.Suspend, false) {
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue, LastTransitionTime: now}}
		s.o.Pods = slices.DeleteFunc(s.o.Pods, func(p corev1.Pod) bool { return metav1.IsControlledBy(&p, job) })
		return
	}
	endings := &s.migrations
	if job.Labels[PreflightLabel] != "" {
		endings = &s.preflights
	}
	e := (*endings)[0]
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: job.Name + "-x", Labels: job.Spec.Template.Labels,
		OwnerReferences: []metav1.OwnerReference{{UID: job.UID, Controller: ptr.To(true)}}}}
	if e.never {
		pod.Status.Phase = corev1.PodPending
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available: 1 Insufficient memory."}}
		if !slices.ContainsFunc(s.o.Pods, func(p corev1.Pod) bool { return p.Name == pod.Name }) {
			s.o.Pods = append(s.o.Pods, pod)
		}
		return
	}
	if len(*endings) > 1 {
		*endings = (*endings)[1:]
	}
	pod.Status.Phase, job.Status.Succeeded = corev1.PodSucceeded, 1
	condition := batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now}
	if e.code != 0 {
		pod.Status.Phase, job.Status.Succeeded, job.Status.Failed = corev1.PodFailed, 0, 1
		condition = batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", LastTransitionTime: now}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: e.code, Message: e.message}}}}
	job.Status.Conditions = append(job.Status.Conditions, condition)
	s.o.Pods = append(s.o.Pods, pod)
}

func (s *sim) migrationCondition() metav1.Condition {
	if c := meta.FindStatusCondition(s.o.MLflow.Status.Conditions, Condition); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func (s *sim) says(reason string) bool { return s.migrationCondition().Reason == reason }

// until looks until the condition has a reason, and lets time pass where asked.
func (s *sim) until(reason string) Outcome {
	s.t.Helper()
	for range 60 {
		before := s.migrationCondition()
		out := s.look()
		if s.says(reason) {
			return out
		}
		s.o.Now = s.o.Now.Add(time.Second)
		if before == s.migrationCondition() { // nothing else will wake it
			s.o.Now = s.o.Now.Add(out.RequeueAfter)
		}
	}
	s.t.Fatalf("never said %s; it says %+v; made %v", reason, s.migrationCondition(), s.made)
	return Outcome{}
}

// rest looks until nothing changes any more.
func (s *sim) rest() Outcome {
	s.t.Helper()
	for range 20 {
		before := s.migrationCondition()
		made := len(s.made)
		generation := ptr.Deref(s.o.Deployment, appsv1.Deployment{}).Generation
		out := s.look()
		if before == s.migrationCondition() && made == len(s.made) && generation == s.o.Deployment.Generation {
			return out
		}
	}
	s.t.Fatalf("it does not come to rest: %+v", s.migrationCondition())
	return Outcome{}
}

func (s *sim) image() string {
	return s.o.Deployment.Spec.Template.Spec.Containers[0].Image
}

func (s *sim) wantServer(image string, replicas int32) {
	s.t.Helper()
	if s.image() != image || *s.o.Deployment.Spec.Replicas != replicas {
		s.t.Errorf("the server is %s with %d replicas, want %s with %d", s.image(), *s.o.Deployment.Spec.Replicas, image, replicas)
	}
}

func (s *sim) wantJobs(names ...string) {
	s.t.Helper()
	if diff := cmp.Diff(names, s.made); diff != "" {
		s.t.Errorf("Jobs made: %s", diff)
	}
}

func (s *sim) wantMessage(parts ...string) {
	s.t.Helper()
	for _, p := range parts {
		if c := s.migrationCondition(); !strings.Contains(c.Message, p) {
			s.t.Errorf("the condition says %q, want %q in it", c.Message, p)
		}
	}
}

func status(out Outcome, t string) metav1.ConditionStatus {
	if c := meta.FindStatusCondition(out.Conditions, t); c != nil {
		return c.Status
	}
	return ""
}
