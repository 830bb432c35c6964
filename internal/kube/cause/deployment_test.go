// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// deployment wants two pods and has none that is ready.
func deployment(edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "iris", Generation: 3, CreationTimestamp: start},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 3, UpdatedReplicas: 2},
	}
	for _, edit := range edits {
		edit(d)
	}
	return d
}

func says(typ appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{
			Type: typ, Status: status, Reason: reason, Message: message, LastTransitionTime: after(time.Hour),
		})
	}
}

var progresses = says(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetCreated", `Created new replica set "iris-two"`)

var tooLate = says(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded", `ReplicaSet "iris-1" has timed out`)

func of(hash string, at time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels[appsv1.DefaultDeploymentUniqueLabelKey], p.CreationTimestamp = hash, after(at)
	}
}

func crashed(words string) func(*corev1.Pod) {
	return serverIs(corev1.ContainerStatus{State: ends(1, "Error", words)})
}

var waitingForTwo = Finding{Reason: Waiting, Message: "Waiting until all 2 pods are ready.", Time: start}

func TestOf(t *testing.T) {
	starting := serverIs(corev1.ContainerStatus{State: runs(after(time.Minute))})
	evicted := func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" }
	going := func(p *corev1.Pod) { p.DeletionTimestamp = &start }
	crash := func(pod, words string) Finding {
		return Finding{
			Reason: CrashLoopBackOff, Blocking: true, Container: "server", ExitCode: 1, Pod: pod, Time: start,
			Message: "Container server ended with exit code 1: " + words + ". See its log with kubectl logs --previous -c server.",
		}
	}
	for name, test := range map[string]struct {
		d    *appsv1.Deployment
		pods []corev1.Pod
		want Finding
	}{
		"old pods answer, new ones crash": {
			deployment(progresses, func(d *appsv1.Deployment) { d.Status.AvailableReplicas, d.Status.Replicas = 2, 4 }),
			[]corev1.Pod{pod("a", ready, of("one", 0)), pod("b", ready, of("one", 0)), pod("c", crashed("boom"), of("two", time.Hour)), pod("d", of("two", time.Hour))},
			crash("c", "boom"),
		},
		"not observed yet":         {deployment(func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{} }), nil, waitingForTwo},
		"no pods yet":              {deployment(), nil, waitingForTwo},
		"pods starting":            {deployment(), []corev1.Pod{pod("a"), pod("b", starting)}, waitingForTwo},
		"one of two ready":         {deployment(func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 1 }), []corev1.Pod{pod("a", ready), pod("b", starting)}, waitingForTwo},
		"ready, not available yet": {deployment(), []corev1.Pod{pod("a", ready), pod("b", ready)}, waitingForTwo},
		"a new generation not observed": {deployment(func(d *appsv1.Deployment) {
			d.Status.AvailableReplicas, d.Status.ObservedGeneration = 2, 2
		}), []corev1.Pod{pod("a", ready)}, waitingForTwo},
		"one pod wanted": {deployment(func(d *appsv1.Deployment) { d.Spec.Replicas = nil }), nil,
			Finding{Reason: Waiting, Message: "Waiting until the pod is ready.", Time: start}},
		"progressing": {deployment(says(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated", "x")), nil, waitingForTwo},

		"one of two crashes": {deployment(), []corev1.Pod{pod("b", crashed("boom")), pod("a", starting)}, crash("b", "boom")},
		"both crash alike":   {deployment(), []corev1.Pod{pod("b", crashed("boom")), pod("a", crashed("boom"))}, crash("a", "boom")},
		"both crash, each in its way": {deployment(), []corev1.Pod{pod("a", crashed("zap")), pod("b", crashed("boom"))},
			crash("b", "boom")},
		"blocking before what may heal": {deployment(), []corev1.Pod{
			pod("a", conditionIs(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "x", start)), pod("b", crashed("boom")),
		}, crash("b", "boom")},
		"an old pod crashes, its successor starts": {deployment(), []corev1.Pod{
			pod("old", crashed("boom"), of("one", 0)), pod("new", starting, of("two", time.Hour)),
		}, waitingForTwo},
		"a successor crashes, an old pod crashes in its way": {deployment(), []corev1.Pod{
			pod("old", crashed("boom"), of("one", 0)), pod("new", crashed("zap"), of("two", time.Hour)),
		}, crash("new", "zap")},
		"a successor crashes, an old pod was moved": {deployment(), []corev1.Pod{
			pod("new", crashed("zap"), of("two", time.Hour)), pod("old", ready, of("one", 2*time.Hour)),
		}, crash("new", "zap")},
		"a successor is ready, the Deployment has not counted it": {deployment(progresses), []corev1.Pod{
			pod("old", crashed("boom"), of("one", 0)), pod("new", ready, of("two", time.Hour)),
		}, waitingForTwo},
		"a successor crashes, an old pod crashes after it was moved": {deployment(progresses), []corev1.Pod{
			pod("new", crashed("zap"), of("two", time.Hour)), pod("old", crashed("boom"), of("one", 2*time.Hour)),
		}, crash("new", "zap")},
		"an old pod crashes, its successor is not made": {deployment(progresses), []corev1.Pod{
			pod("old", crashed("boom"), of("one", 0)),
		}, crash("old", "boom")},
		"a pod that is going says nothing": {deployment(), []corev1.Pod{pod("a", crashed("boom"), going), pod("b", starting)}, waitingForTwo},
		"evicted and not replaced": {deployment(), []corev1.Pod{pod("a", evicted), pod("b", starting)}, Finding{
			Reason: Evicted, Pod: "a", Time: start,
			Message: "The pod was evicted: no reason is given. Ask for as much as it needs, or make room on the nodes.",
		}},
		"evicted and replaced": {deployment(), []corev1.Pod{pod("a", evicted), pod("b", starting), pod("c", starting)}, waitingForTwo},

		"quota": {deployment(says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate",
			`pods "iris-7d9-x2x4v" is forbidden: exceeded quota: gpus, requested: limits.cpu=2,requests.nvidia.com/gpu=1, used: limits.cpu=9,requests.nvidia.com/gpu=4, limited: limits.cpu=10,requests.nvidia.com/gpu=4`)), nil, Finding{
			Reason: QuotaExceeded, Blocking: true, Time: after(time.Hour),
			Message: `Pods cannot be created: they ask for limits.cpu=2,requests.nvidia.com/gpu=1, but the quota "gpus" of the namespace ends at limits.cpu=10,requests.nvidia.com/gpu=4. Ask for less, or raise the quota.`,
		}},
		"no service account": {deployment(says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate",
			`pods "iris-7d9-" is forbidden: error looking up service account ns/sa: serviceaccount "sa" not found`)), nil, Finding{
			Reason: FailedCreate, Blocking: true, Time: after(time.Hour),
			Message: `Pods cannot be created: error looking up service account ns/sa: serviceaccount "sa" not found. Create the service account, or name one that exists.`,
		}},
		"no Secret of a service account": {deployment(says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate",
			`admission webhook "pods.example.com" denied the request: there is no Secret s3 in namespace ns, which ServiceAccount sa names; create it, or remove the name`)), nil, Finding{
			Reason: FailedCreate, Blocking: true, Time: after(time.Hour),
			Message: `Pods cannot be created: admission webhook "pods.example.com" denied the request: there is no Secret s3 in namespace ns, which ServiceAccount sa names; create it, or remove the name.`,
		}},
		"no storage-config": {deployment(says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate",
			`admission webhook "pods.example.com" denied the request: storage.key: there is no Secret storage-config in namespace ns to find key s3 in; create it, or name another in annotation x`)), nil, Finding{
			Reason: FailedCreate, Blocking: true, Time: after(time.Hour),
			Message: `Pods cannot be created: admission webhook "pods.example.com" denied the request: storage.key: there is no Secret storage-config in namespace ns to find key s3 in; create it, or name another in annotation x.`,
		}},
		"against the policy": {deployment(says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate",
			`pods "iris-7d9-abcde" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false`)), nil, Finding{
			Reason: FailedCreate, Blocking: true, Time: after(time.Hour),
			Message: `Pods cannot be created: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false. Change the security context, or the policy of the namespace.`,
		}},
		"refused by a webhook": {deployment(says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate",
			`admission webhook "pods.example.com" denied the request: no`)), []corev1.Pod{pod("a", crashed("boom"))}, Finding{
			Reason: FailedCreate, Blocking: true, Time: after(time.Hour),
			Message: `Pods cannot be created: admission webhook "pods.example.com" denied the request: no. Change what is refused, or the policy that refuses it.`,
		}},
		"a webhook that does not answer": {deployment(says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate",
			`Internal error occurred: failed calling webhook "pods.example.com": connection refused`)), nil, Finding{
			Reason: FailedCreate, Time: after(time.Hour),
			Message: `Pods cannot be created: Internal error occurred: failed calling webhook "pods.example.com": connection refused. Check that the webhook's own pods run; creation is tried again by itself.`,
		}},
		"no ReplicaSet": {deployment(says(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError", "name is too long")), nil, Finding{
			Reason: "ReplicaSetCreateError", Blocking: true, Time: after(time.Hour),
			Message: "Pods cannot be created: name is too long. Change what is refused, or the policy that refuses it.",
		}},
		"a refusal that is over": {deployment(says(appsv1.DeploymentReplicaFailure, corev1.ConditionFalse, "FailedCreate", "x")), nil, waitingForTwo},

		"paused": {deployment(func(d *appsv1.Deployment) { d.Spec.Paused = true }), nil, Finding{
			Reason: DeploymentPaused, Blocking: true, Message: "The rollout is paused. Resume it with kubectl rollout resume.",
		}},
		"too late, crashing": {deployment(tooLate), []corev1.Pod{pod("a", crashed("boom"))}, crash("a", "boom")},
		"too late, probe": {deployment(tooLate), []corev1.Pod{pod("a", starting)}, Finding{
			Reason: Unhealthy, Container: "server", Pod: "a", Time: start,
			Message: "Container server runs, but its readiness probe (GET /ready on port 8080) fails. See its log with kubectl logs -c server, and check the probe.",
		}},
		"too late, startup probe": {deployment(tooLate), []corev1.Pod{pod("a", starting, func(p *corev1.Pod) {
			p.Spec.Containers[0].StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 9000}}}
		})}, Finding{
			Reason: Unhealthy, Container: "server", Pod: "a", Time: start,
			Message: "Container server runs, but its startup probe (gRPC port 9000) fails. See its log with kubectl logs -c server, and check the probe.",
		}},
		"too late, init container": {deployment(tooLate), []corev1.Pod{pod("a", initIs(corev1.ContainerStatus{State: runs(start)}))}, Finding{
			Reason: InitContainerRunning, Container: "load", Init: true, Pod: "a", Time: start,
			Message: "Init container load has not come to its end. See its log with kubectl logs -c load.",
		}},
		"too late, volume": {deployment(tooLate), []corev1.Pod{pod("a", serverIs(corev1.ContainerStatus{State: waits("ContainerCreating", "")}))}, Finding{
			Reason: ContainerCreating, Container: "server", Pod: "a", Time: start,
			Message: "Container server is still being made; mostly a volume cannot be mounted. Look at the events of the pod with kubectl describe.",
		}},
		"too late, no pods": {deployment(tooLate), nil, Finding{
			Reason: ProgressDeadlineExceeded, Time: after(time.Hour),
			Message: "The pods did not become ready in the time that the Deployment allows. Look at their events with kubectl describe.",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				got, ok := Of(test.d, test.pods)
				if !ok {
					t.Fatal("nothing was found")
				}
				if diff := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(Finding{})); diff != "" {
					t.Errorf("finding (-want +got):\n%s", diff)
				}
				// The order in which pods come from a cache means nothing.
				slices.Reverse(test.pods)
			}
		})
	}
}

func TestDeploymentsThatAreWell(t *testing.T) {
	stale := says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "x")
	for name, d := range map[string]*appsv1.Deployment{
		"all available":               deployment(func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 2 }),
		"more than wanted":            deployment(stale, func(d *appsv1.Deployment) { d.Status.AvailableReplicas, d.Status.UpdatedReplicas = 3, 3 }),
		"none wanted":                 deployment(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) }),
		"old pods still on their way": deployment(func(d *appsv1.Deployment) { d.Status.AvailableReplicas, d.Status.Replicas = 4, 4 }),
		"counts no generations": deployment(says(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "x"),
			func(d *appsv1.Deployment) { d.Status.ObservedGeneration, d.Status.AvailableReplicas = 0, 2 }),
		"paused with everything in use": deployment(func(d *appsv1.Deployment) { d.Spec.Paused, d.Status.AvailableReplicas = true, 2 }),
	} {
		if f, ok := Of(d, []corev1.Pod{pod("a", crashed("boom"))}); ok {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// An old pod that crashes on its way out is no old pod that hides a new one.
func TestNewPodsAreCounted(t *testing.T) {
	d := deployment(progresses, func(d *appsv1.Deployment) { d.Status.AvailableReplicas, d.Status.Replicas = 2, 3 })
	pods := []corev1.Pod{pod("a", crashed("boom"), of("one", 0)), pod("b", ready, of("two", 0)), pod("c", ready, of("two", 0))}
	if f, ok := Of(d, pods); ok {
		t.Errorf("%+v", f)
	}
	pods[2].Status.Conditions = nil
	if _, ok := Of(d, pods); !ok {
		t.Error("one new pod of two is enough")
	}
}

// Everything a healthy start passes through is said in the same words, so that it costs one write of a status.
func TestAHealthyStartIsSaidOnce(t *testing.T) {
	var said []string
	for _, moment := range []struct {
		d    func(*appsv1.Deployment)
		pods []corev1.Pod
	}{
		{func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{} }, nil},
		{says(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetCreated", "x"), nil},
		{func(*appsv1.Deployment) {}, []corev1.Pod{pod("a", func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} })}},
		{func(*appsv1.Deployment) {}, []corev1.Pod{pod("a"), pod("b")}},
		{func(*appsv1.Deployment) {}, []corev1.Pod{pod("a", initIs(corev1.ContainerStatus{State: waits("PodInitializing", "")})), pod("b")}},
		{func(*appsv1.Deployment) {}, []corev1.Pod{pod("a", initIs(corev1.ContainerStatus{State: runs(start)})), pod("b")}},
		{func(*appsv1.Deployment) {}, []corev1.Pod{pod("a", serverIs(corev1.ContainerStatus{State: waits("ContainerCreating", "")})), pod("b")}},
		{func(*appsv1.Deployment) {}, []corev1.Pod{pod("a", serverIs(corev1.ContainerStatus{State: runs(after(time.Minute))})), pod("b")}},
		{func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 1 }, []corev1.Pod{pod("a", ready), pod("b")}},
		{func(*appsv1.Deployment) {}, []corev1.Pod{pod("a", ready), pod("b", ready)}},
	} {
		f, ok := Of(deployment(moment.d), moment.pods)
		if !ok {
			t.Fatal("well too soon")
		}
		said = append(said, f.Reason+": "+f.Message)
	}
	if distinct := slices.Compact(said); len(distinct) != 1 {
		t.Errorf("a healthy start is said in %d ways: %q", len(distinct), distinct)
	}
}

// A reason must be one that the API server takes, whatever others write.
func TestForeignReasons(t *testing.T) {
	for in, want := range map[string]string{
		"FailedCreate": "FailedCreate", "": "X", "two words": "X", "Ends.With.Dots": "X", "lower": "X", strings.Repeat("A", 200): "X",
	} {
		if got := reasonOr(in, "X"); got != want {
			t.Errorf("%q became %q", in, got)
		}
	}
}
