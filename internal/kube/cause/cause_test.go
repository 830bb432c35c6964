// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

var start = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

func after(d time.Duration) metav1.Time { return metav1.NewTime(start.Add(d)) }

// pod makes a pod with an init container "load" and the containers "server" and "agent", scheduled and not ready.
func pod(name string, edits ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", UID: types.UID("uid-of-" + name), CreationTimestamp: start,
			Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "one"},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:  corev1.RestartPolicyAlways,
			InitContainers: []corev1.Container{{Name: "load", Image: "registry.example/load:1"}},
			Containers: []corev1.Container{{
				Name: "server", Image: "registry.example/server:1",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8080)},
				}},
			}, {Name: "agent", Image: "registry.example/agent:1"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodPending,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", LastTransitionTime: start},
				{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", LastTransitionTime: start},
			},
		},
	}
	for _, edit := range edits {
		edit(&p)
	}
	return p
}

// initIs and serverIs give a container its state; what came before it is done, what comes after it waits or runs.
func initIs(s corev1.ContainerStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		s.Name = "load"
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{s}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "server", State: waits("PodInitializing", "")}, {Name: "agent", State: waits("PodInitializing", "")},
		}
	}
}

func serverIs(s corev1.ContainerStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		s.Name = "server"
		p.Status.Phase = corev1.PodRunning
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "load", Ready: true, State: ended0("Completed")}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{s, {Name: "agent", Ready: true, State: runs(start)}}
	}
}

func waits(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func runs(at metav1.Time) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
}

func ended0(reason string) corev1.ContainerState { return ends(0, reason, "") }

func ends(code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
}

func conditionIs(typ corev1.PodConditionType, status corev1.ConditionStatus, reason, message string, at metav1.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := condition(p, typ)
		c.Status, c.Reason, c.Message, c.LastTransitionTime = status, reason, message, at
	}
}

func ready(p *corev1.Pod) {
	serverIs(corev1.ContainerStatus{Ready: true, State: runs(start)})(p)
	conditionIs(corev1.PodReady, corev1.ConditionTrue, "", "", start)(p)
	conditionIs(corev1.ContainersReady, corev1.ConditionTrue, "", "", start)(p)
}

func TestPod(t *testing.T) {
	const notFound = `failed to pull and unpack image "registry.example/server:1": failed to resolve reference: not found`
	sameCrash := Finding{
		Reason: CrashLoopBackOff, Blocking: true, Container: "server", ExitCode: 1,
		Message: "Container server ended with exit code 1: ValueError: bad model. See its log with kubectl logs --previous -c server.",
	}
	for name, test := range map[string]struct {
		edit func(*corev1.Pod)
		want Finding
	}{
		"just made":                 {func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }, Finding{}},
		"scheduled":                 {func(*corev1.Pod) {}, Finding{}},
		"init container being made": {initIs(corev1.ContainerStatus{State: waits("PodInitializing", "")}), Finding{}},
		"init container running":    {initIs(corev1.ContainerStatus{State: runs(start)}), Finding{}},
		"containers being made":     {serverIs(corev1.ContainerStatus{State: waits("ContainerCreating", "")}), Finding{}},
		"running, not ready yet": {serverIs(corev1.ContainerStatus{State: runs(after(time.Minute)), Started: ptr.To(true)}),
			Finding{}},
		"running, not started yet": {serverIs(corev1.ContainerStatus{State: runs(after(time.Minute)), Started: ptr.To(false)}),
			Finding{}},
		"a state that says nothing": {serverIs(corev1.ContainerStatus{}), Finding{}},
		"readiness gates": {func(p *corev1.Pod) {
			ready(p)
			conditionIs(corev1.PodReady, corev1.ConditionFalse, "ReadinessGatesNotReady", "", start)(p)
		}, Finding{}},
		"restarted with its node": {serverIs(corev1.ContainerStatus{State: runs(after(time.Minute)),
			LastTerminationState: ends(255, "Unknown", "")}), Finding{}},
		"made anew in a new sandbox": {serverIs(corev1.ContainerStatus{State: waits("PodInitializing", ""),
			LastTerminationState: ends(143, "Error", "")}), Finding{}},

		"image not found, first seen": {serverIs(corev1.ContainerStatus{State: waits("ErrImagePull", notFound)}), Finding{
			Reason: ImagePullBackOff, Blocking: true, Container: "server",
			Message: `The image "registry.example/server:1" of container server cannot be pulled: the registry does not have it. Correct its name or tag, or push it.`,
		}},
		"image not found, backing off": {serverIs(corev1.ContainerStatus{State: waits("ImagePullBackOff", `Back-off pulling image `+
			`"registry.example/server:1": ErrImagePull: `+notFound)}), Finding{
			Reason: ImagePullBackOff, Blocking: true, Container: "server",
			Message: `The image "registry.example/server:1" of container server cannot be pulled: the registry does not have it. Correct its name or tag, or push it.`,
		}},
		"image refused": {initIs(corev1.ContainerStatus{State: waits("ErrImagePull", "pull access denied, repository does not exist or may require authorization")}), Finding{
			Reason: ImagePullBackOff, Blocking: true, Container: "load", Init: true,
			Message: `The image "registry.example/load:1" of init container load cannot be pulled: the registry refuses access, or has no such repository. Check the name, and the pull secret of the service account.`,
		}},
		"image for no reason": {serverIs(corev1.ContainerStatus{State: waits("ImagePullBackOff", `Back-off pulling image "registry.example/server:1"`)}), Finding{
			Reason: ImagePullBackOff, Blocking: true, Container: "server",
			Message: `The image "registry.example/server:1" of container server cannot be pulled: the node does not say why. Check its name, and the pull secret of the service account.`,
		}},
		"image with a telling name": {func(p *corev1.Pod) {
			serverIs(corev1.ContainerStatus{State: waits("ErrImagePull", `pulling "registry.example/denied:1": dial tcp: lookup registry.example: no such host`)})(p)
			p.Spec.Containers[0].Image = "registry.example/denied:1"
		}, Finding{
			Reason: ImagePullBackOff, Blocking: true, Container: "server",
			Message: `The image "registry.example/denied:1" of container server cannot be pulled: the registry cannot be reached from the node. Check the name of the registry and the node's network.`,
		}},
		"image of a volume": {func(p *corev1.Pod) {
			serverIs(corev1.ContainerStatus{State: waits("ErrImagePull", `Back-off pulling image "registry.example/model:7": ErrImagePull: not found`)})(p)
			p.Spec.Volumes = []corev1.Volume{{Name: "model", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "registry.example/model:7"}}}}
		}, Finding{
			Reason: ImagePullBackOff, Blocking: true, Container: "server",
			Message: `The image "registry.example/model:7" of volume model cannot be pulled: the registry does not have it. Correct its name or tag, or push it.`,
		}},
		"image never pulled": {serverIs(corev1.ContainerStatus{State: waits("ErrImageNeverPull", "Container image is not present")}), Finding{
			Reason: ErrImageNeverPull, Blocking: true, Container: "server",
			Message: `The image "registry.example/server:1" of container server is not on the node, and its pull policy is Never. Load it onto the nodes, or let it be pulled.`,
		}},
		"image without a name": {serverIs(corev1.ContainerStatus{State: waits("InvalidImageName", "couldn't parse image")}), Finding{
			Reason: InvalidImageName, Blocking: true, Container: "server",
			Message: `"registry.example/server:1" is no image name that container server could run. Correct it.`,
		}},

		"missing secret": {serverIs(corev1.ContainerStatus{State: waits("CreateContainerConfigError", `secret "token" not found`)}), Finding{
			Reason: CreateContainerConfigError, Blocking: true, Container: "server",
			Message: `Container server cannot be made: secret "token" not found. Create the Secret with that key, or correct its name.`,
		}},
		"missing configmap": {serverIs(corev1.ContainerStatus{State: waits("CreateContainerConfigError", `configmap "c" not found`)}), Finding{
			Reason: CreateContainerConfigError, Blocking: true, Container: "server",
			Message: `Container server cannot be made: configmap "c" not found. Create the ConfigMap with that key, or correct its name.`,
		}},
		"root": {serverIs(corev1.ContainerStatus{State: waits("CreateContainerConfigError",
			`container has runAsNonRoot and image will run as root (pod: "p_ns(uid-of-p)", container: server)`)}), Finding{
			Reason: CreateContainerConfigError, Blocking: true, Container: "server",
			Message: `Container server cannot be made: container has runAsNonRoot and image will run as root. Set runAsUser to another user than 0, or take an image that does.`,
		}},
		"other reference": {serverIs(corev1.ContainerStatus{State: waits("CreateContainerConfigError", "failed to prepare subPath")}), Finding{
			Reason: CreateContainerConfigError, Blocking: true, Container: "server",
			Message: `Container server cannot be made: failed to prepare subPath. Correct what the container refers to.`,
		}},
		"no such command": {serverIs(corev1.ContainerStatus{State: waits("RunContainerError",
			`failed to create containerd task: OCI runtime create failed: exec: "serve": executable file not found in $PATH: unknown`)}), Finding{
			Reason: RunContainerError, Blocking: true, Container: "server",
			Message: `Container server cannot be run: exec: "serve": executable file not found in $PATH. Correct its command, or the image.`,
		}},
		"no such command, backing off": {serverIs(corev1.ContainerStatus{State: waits("CrashLoopBackOff", "back-off 10s"),
			LastTerminationState: ends(128, "StartError", `failed to start: exec: "serve": executable file not found in $PATH: unknown`)}), Finding{
			Reason: RunContainerError, Blocking: true, Container: "server", ExitCode: 128,
			Message: `Container server cannot be run: exec: "serve": executable file not found in $PATH. Correct its command, or the image.`,
		}},
		"a wait of another kind": {serverIs(corev1.ContainerStatus{State: waits("CreateContainerError", "context deadline exceeded")}), Finding{
			Reason: "CreateContainerError", Container: "server",
			Message: `Container server cannot be started: context deadline exceeded. Look at the events of the pod with kubectl describe.`,
		}},
		"a wait that is no word": {serverIs(corev1.ContainerStatus{State: waits("it is so", "")}), Finding{
			Reason: "ContainerNotStarted", Container: "server",
			Message: `Container server cannot be started: no reason is given. Look at the events of the pod with kubectl describe.`,
		}},

		"crashed":               {serverIs(corev1.ContainerStatus{State: ends(1, "Error", "ValueError: bad model\n")}), sameCrash},
		"crashed, backing off":  {serverIs(corev1.ContainerStatus{State: waits("CrashLoopBackOff", "back-off 5m0s"), LastTerminationState: ends(1, "Error", "ValueError: bad model"), RestartCount: 7}), sameCrash},
		"crashed, running anew": {serverIs(corev1.ContainerStatus{State: runs(after(time.Hour)), LastTerminationState: ends(1, "Error", "ValueError: bad model"), RestartCount: 8}), sameCrash},
		"crashed for no reason": {serverIs(corev1.ContainerStatus{State: waits("CrashLoopBackOff", "back-off 5m0s")}), Finding{
			Reason: CrashLoopBackOff, Blocking: true, Container: "server",
			Message: "Container server ended. See its log with kubectl logs --previous -c server.",
		}},
		"ended by itself": {serverIs(corev1.ContainerStatus{State: ended0("Completed")}), Finding{
			Reason: CrashLoopBackOff, Blocking: true, Container: "server",
			Message: "Container server ended with exit code 0. See its log with kubectl logs --previous -c server.",
		}},
		"killed by its probe": {func(p *corev1.Pod) {
			serverIs(corev1.ContainerStatus{State: ends(137, "Error", "")})(p)
			p.Spec.Containers[0].LivenessProbe = p.Spec.Containers[0].ReadinessProbe
		}, Finding{
			Reason: CrashLoopBackOff, Blocking: true, Container: "server", ExitCode: 137,
			Message: "Container server ended with exit code 137 (killed, mostly after its liveness or startup probe failed). See its log with kubectl logs --previous -c server.",
		}},
		"wrong arguments": {serverIs(corev1.ContainerStatus{State: ends(2, "Error", "error: unrecognized arguments: --modle_name")}), Finding{
			Reason: CrashLoopBackOff, Blocking: true, Container: "server", ExitCode: 2,
			Message: "Container server ended with exit code 2: error: unrecognized arguments: --modle_name. The program does not know this argument. Remove it where it is set; if the platform or the runtime adds it, take an image that knows it. See its log with kubectl logs --previous -c server.",
		}},
		"a corrupt model": {serverIs(corev1.ContainerStatus{State: ends(1, "Error", "server: Load model from /mnt/models/model.onnx failed:Protobuf parsing failed.")}), Finding{
			Reason: CrashLoopBackOff, Blocking: true, Container: "server", ExitCode: 1,
			Message: "Container server ended with exit code 1: server: Load model from /mnt/models/model.onnx failed:Protobuf parsing failed. The model is no valid ONNX file; check what the storage address points to, and export the model again. See its log with kubectl logs --previous -c server.",
		}},
		"a corrupt model that the program tells": {serverIs(corev1.ContainerStatus{State: ends(1, "Error", "server: model.onnx is no valid ONNX file; check what the storage URI points to")}), Finding{
			Reason: CrashLoopBackOff, Blocking: true, Container: "server", ExitCode: 1,
			Message: "Container server ended with exit code 1: server: model.onnx is no valid ONNX file; check what the storage URI points to. See its log with kubectl logs --previous -c server.",
		}},
		"out of memory": {serverIs(corev1.ContainerStatus{State: ends(137, "OOMKilled", "")}), Finding{
			Reason: OOMKilled, Blocking: true, Container: "server", ExitCode: 137,
			Message: "Container server was killed because it needs more memory than its limit of 2Gi. Raise its memory limit, or give it less to do.",
		}},
		"out of memory, heard too late": {serverIs(corev1.ContainerStatus{State: ends(137, "Error", "loading")}), Finding{
			Reason: OOMKilled, Blocking: true, Container: "server", ExitCode: 137,
			Message: "Container server was killed because it needs more memory than its limit of 2Gi. Raise its memory limit, or give it less to do.",
		}},
		"out of memory, backing off": {serverIs(corev1.ContainerStatus{State: waits("CrashLoopBackOff", ""), LastTerminationState: ends(137, "OOMKilled", "")}), Finding{
			Reason: OOMKilled, Blocking: true, Container: "server", ExitCode: 137,
			Message: "Container server was killed because it needs more memory than its limit of 2Gi. Raise its memory limit, or give it less to do.",
		}},
		"out of memory without a limit": {initIs(corev1.ContainerStatus{State: ends(137, "OOMKilled", "")}), Finding{
			Reason: OOMKilled, Blocking: true, Container: "load", Init: true, ExitCode: 137,
			Message: "Init container load was killed because it needs more memory than its node could give. Raise its memory limit, or give it less to do.",
		}},

		"init container: path not found": {initIs(corev1.ContainerStatus{State: waits("CrashLoopBackOff", ""), LastTerminationState: ends(1, "Error",
			"2026-03-01 12:00:00.123 INFO copying\nRuntimeError: Failed to fetch model. No model found in s3://b/m.")}), Finding{
			Reason: InitContainerFailed, Blocking: true, Container: "load", Init: true, ExitCode: 1,
			Message: "Init container load failed with exit code 1: INFO copying RuntimeError: Failed to fetch model. No model found in s3://b/m. Check that what it looks for exists, and how its path is spelt. See its log with kubectl logs --previous -c load.",
		}},
		"init container: access denied": {initIs(corev1.ContainerStatus{State: runs(start), LastTerminationState: ends(1, "Error",
			"An error occurred (403) when calling HeadObject: Forbidden")}), Finding{
			Reason: InitContainerFailed, Blocking: true, Container: "load", Init: true, ExitCode: 1,
			Message: "Init container load failed with exit code 1: An error occurred (403) when calling HeadObject: Forbidden. Check the credentials it uses and what they permit. See its log with kubectl logs --previous -c load.",
		}},
		"init container: advises itself": {initIs(corev1.ContainerStatus{State: waits("CrashLoopBackOff", ""), LastTerminationState: ends(1, "Error",
			"Cannot fetch https://models.example/iris.onnx: it does not exist (404); check the address.")}), Finding{
			Reason: InitContainerFailed, Blocking: true, Container: "load", Init: true, ExitCode: 1,
			Message: "Init container load failed with exit code 1: Cannot fetch https://models.example/iris.onnx: it does not exist (404); check the address. See its log with kubectl logs --previous -c load.",
		}},

		"readiness lost": {func(p *corev1.Pod) {
			serverIs(corev1.ContainerStatus{State: runs(start), Started: ptr.To(true)})(p)
			conditionIs(corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady", "", after(time.Hour))(p)
		}, Finding{
			Reason: Unhealthy, Container: "server",
			Message: "Container server runs, but its readiness probe (GET /ready on port 8080) fails. See its log with kubectl logs -c server, and check the probe.",
		}},
		"readiness of a sidecar lost": {func(p *corev1.Pod) {
			ready(p)
			p.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			p.Status.InitContainerStatuses[0] = corev1.ContainerStatus{Name: "load", State: runs(start), Started: ptr.To(true)}
			conditionIs(corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady", "", after(time.Hour))(p)
			conditionIs(corev1.ContainersReady, corev1.ConditionFalse, "ContainersNotReady", "", after(time.Hour))(p)
		}, Finding{
			Reason: Unhealthy, Container: "load", Init: true,
			Message: "Init container load runs, but its readiness probe fails. See its log with kubectl logs -c load, and check the probe.",
		}},
		"sidecar that ended": {func(p *corev1.Pod) {
			initIs(corev1.ContainerStatus{State: ended0("Completed")})(p)
			p.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}, Finding{
			Reason: InitContainerFailed, Blocking: true, Container: "load", Init: true,
			Message: "Init container load failed with exit code 0. See its log with kubectl logs --previous -c load.",
		}},

		"no node has room": {conditionIs(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable",
			"0/7 nodes are available: 1 node(s) had untolerated taint {gpu: true}, 2 Insufficient nvidia.com/gpu, 4 Insufficient cpu. preemption: 0/7 nodes are available: 7 No preemption victims found for incoming pod.", start), Finding{
			Reason:  Unschedulable,
			Message: "No node takes the pod: Insufficient cpu, Insufficient nvidia.com/gpu, node(s) had untolerated taint {gpu: true}. Ask for less, or add nodes that have it; kubectl describe nodes shows what is free.",
		}},
		"no node fits": {conditionIs(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable",
			"0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", start), Finding{
			Reason:  Unschedulable,
			Message: "No node takes the pod: node(s) didn't match Pod's node affinity/selector. Correct node selector, affinity or tolerations, or add nodes that fit.",
		}},
		"no claim": {conditionIs(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable",
			`0/1 nodes are available: persistentvolumeclaim "models" not found. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.`, start), Finding{
			Reason: Unschedulable, Volumes: true, Blocking: true,
			Message: `No node takes the pod: persistentvolumeclaim "models" not found. Create the claim, or correct its name.`,
		}},
		"no claim, as Kubernetes 1.37 says it": {conditionIs(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable",
			`0/1 nodes are available: persistentvolumeclaim "models" not found. not found`, start), Finding{
			Reason: Unschedulable, Volumes: true, Blocking: true,
			Message: `No node takes the pod: persistentvolumeclaim "models" not found. Create the claim, or correct its name.`,
		}},
		"no room, as Kubernetes 1.36 says it": {func(p *corev1.Pod) {
			asks := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
			p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[1].Resources.Requests = asks("8"), asks("500m")
			p.Spec.InitContainers[0].Resources.Requests = asks("2")
			conditionIs(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable",
				"0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.", start)(p)
		}, Finding{
			Reason:  Unschedulable,
			Message: "No node takes the pod: Insufficient cpu (it asks for 8500m), node(s) had untolerated taint(s). Ask for less, or add nodes that have it; kubectl describe nodes shows what is free.",
		}},
		"no room for an init container next to a sidecar": {func(p *corev1.Pod) {
			asks := corev1.ResourceRequirements{Requests: corev1.ResourceList{"memory": resource.MustParse("1Gi")}}
			big := corev1.ResourceRequirements{Requests: corev1.ResourceList{"memory": resource.MustParse("6Gi")}}
			always := ptr.To(corev1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: always, Resources: asks}, {Name: "load", Resources: big}}
			p.Spec.Containers[0].Resources = asks
			p.Spec.Overhead = corev1.ResourceList{"memory": resource.MustParse("1Gi")}
			conditionIs(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable",
				"0/1 nodes are available: 1 Insufficient memory. no new claims to deallocate", start)(p)
		}, Finding{
			Reason:  Unschedulable,
			Message: "No node takes the pod: Insufficient memory (it asks for 8Gi). Ask for less, or add nodes that have it; kubectl describe nodes shows what is free.",
		}},
		"no room for what the pod asks for as a whole": {func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("3")}}
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
			conditionIs(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.", start)(p)
		}, Finding{
			Reason:  Unschedulable,
			Message: "No node takes the pod: Insufficient cpu (it asks for 3). Ask for less, or add nodes that have it; kubectl describe nodes shows what is free.",
		}},
		"a claim without a volume": {conditionIs(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable",
			"0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found", start), Finding{
			Reason: Unschedulable, Volumes: true,
			Message: "No node takes the pod: pod has unbound immediate PersistentVolumeClaims. See with kubectl describe pvc why the claim is not bound.",
		}},
		"a scheduler with its own words": {conditionIs(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "queue is closed", start), Finding{
			Reason:  Unschedulable,
			Message: "No node takes the pod: queue is closed. Correct what the pod asks of a node, or add nodes that fit.",
		}},
		"gated": {func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "z.io/b"}, {Name: "a.io/a"}}
			conditionIs(corev1.PodScheduled, corev1.ConditionFalse, "SchedulingGated", "Scheduling is blocked", start)(p)
		}, Finding{
			Reason: SchedulingGated, Message: "Scheduling is held back by gates: a.io/a, z.io/b. Whoever set them has to lift them.",
		}},

		"node lost": {func(p *corev1.Pod) {
			ready(p)
			conditionIs(corev1.PodReady, corev1.ConditionFalse, "", "", after(time.Hour))(p)
		}, nodeLost},
		"node unknown": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodUnknown }, nodeLost},
		"evicted": {func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
			p.Status.Message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 93Mi. Container server was using 5Gi."
		}, Finding{
			Reason:  Evicted,
			Message: "The pod was evicted: The node was low on resource: memory. Ask for as much as it needs, or make room on the nodes.",
		}},
		"refused by the node": {func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed"
		}, Finding{
			Reason:  "NodeAffinity",
			Message: "The node ended or refused the pod: Pod was rejected: Predicate NodeAffinity failed. Look at the node's capacity and health with kubectl describe node.",
		}},
		"the worst of several": {func(p *corev1.Pod) {
			serverIs(corev1.ContainerStatus{State: runs(after(time.Minute))})(p)
			p.Status.ContainerStatuses[1] = corev1.ContainerStatus{Name: "agent", State: waits("InvalidImageName", "")}
		}, Finding{
			Reason: InvalidImageName, Blocking: true, Container: "agent",
			Message: `"registry.example/agent:1" is no image name that container agent could run. Correct it.`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", test.edit)
			before := p.DeepCopy()
			got, ok := Pod(&p)
			if !ok {
				t.Fatal("nothing was found")
			}
			want := test.want
			if want.Reason == "" {
				want.Reason, want.Message, want.Container, want.Init = Waiting, "Waiting until the pod is ready.", got.Container, got.Init
			}
			want.Pod, want.Time = "p", since(&p)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Finding{})); diff != "" {
				t.Errorf("finding (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, &p); diff != "" {
				t.Errorf("the pod was changed:\n%s", diff)
			}
			p.Spec = Needed(&p.Spec)
			cached, _ := Pod(&p)
			if diff := cmp.Diff(got, cached, cmp.AllowUnexported(Finding{})); diff != "" {
				t.Errorf("what is needed of the pod does not suffice (-whole +needed):\n%s", diff)
			}
		})
	}
}

func TestPodsThatAreWell(t *testing.T) {
	for name, edit := range map[string]func(*corev1.Pod){
		"ready":     ready,
		"succeeded": func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"going": func(p *corev1.Pod) {
			serverIs(corev1.ContainerStatus{State: ends(1, "Error", "")})(p)
			p.DeletionTimestamp = &start
		},
		"ready after a crash": func(p *corev1.Pod) {
			ready(p)
			p.Status.ContainerStatuses[0].LastTerminationState = ends(137, "OOMKilled", "")
		},
	} {
		p := pod("p", edit)
		if f, ok := Pod(&p); ok {
			t.Errorf("%s: %+v", name, f)
		}
	}
	job := pod("p", serverIs(corev1.ContainerStatus{State: ended0("Completed")}))
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	if f, _ := Pod(&job); f.Reason != Waiting {
		t.Errorf("a container that may end and did: %+v", f)
	}
}

func TestWords(t *testing.T) {
	p := pod("iris-7d9f-x2x4v")
	p.Status.PodIP = "10.1.2.3"
	for name, test := range map[string]struct{ in, want string }{
		"lines":          {"one\n\ttwo\r\n\n", "one two"},
		"control":        {"a\x00b\x1b[31mc\u200b", "ab[31mc"},
		"not UTF-8":      {"a\xffb", "ab"},
		"Python log":     {"2026-03-01 12:00:00,123 ERROR main: boom", "ERROR main: boom"},
		"RFC 3339":       {"2026-03-01T12:00:00.123456789Z boom", "boom"},
		"with offset":    {"[2026-03-01 12:00:00 +0000] [1] boom", "[1] boom"},
		"Go log":         {"2026/03/01 12:00:00 boom", "boom"},
		"klog":           {"E0301 12:00:00.123456       1 main.go:12] boom", "main.go:12] boom"},
		"clock":          {"12:00:00 boom", "boom"},
		"uuid":           {"RequestId:0b9f0c2a-1111-2222-3333-444455556666 denied", "RequestId:… denied"},
		"address":        {"object at 0x7f3a2b", "object at 0x…"},
		"its own":        {"iris-7d9f-x2x4v at 10.1.2.3 (uid-of-iris-7d9f-x2x4v)", "… at … (…)"},
		"part of a word": {"xiris-7d9f-x2x4v iris-7d9f-x2x4viris-7d9f-x2x4v iris-7d9f-x2x4v", "xiris-7d9f-x2x4v iris-7d9f-x2x4viris-7d9f-x2x4v …"},
		"Python error":   {"loading\nTraceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    load()\nValueError: the model has no layers\n", "ValueError: the model has no layers"},
		"Python errors":  {"Traceback (most recent call last):\n  File \"a.py\"\nKeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"b.py\"\nRuntimeError: no model", "RuntimeError: no model"},
		"a cut error":    {"Traceback (most recent call last):\n  File \"a.py\"\n", "Traceback (most recent call last): File \"a.py\""},
		"passwords":      {"cannot reach postgresql://me:hush@db/x with password=hush, AWS_SECRET_ACCESS_KEY: hush or {\"api_key\": \"hush hush\"} and Bearer hu.sh", "cannot reach postgresql://…@db/x with password=…, AWS_SECRET_ACCESS_KEY: … or {\"api_key\": …} and Bearer …"},
		"odd passwords":  {"parse \"https://me:hu%sh@host/x\": invalid URL escape; postgresql://me:hu/sh@db/x and redis://:hu@sh@db", "parse \"https://…@host/x\": invalid URL escape; postgresql://…@db/x and redis://…@db"},
		"no password":    {"the secret models does not exist; tokens: none", "the secret models does not exist; tokens: …"},
		"argparse":       {"usage: server [-h] [--model_name MODEL_NAME]\n              [--workers N]\nserver: error: unrecognized arguments: --predictor_host x\n", "server: error: unrecognized arguments: --predictor_host x"},
		"Go flags":       {"flag provided but not defined: -modle\nUsage of server:\n  -http_port int\n    \tport for HTTP (default 8080)\n  -v\tspeak\nserver: flag provided but not defined: -modle\n", "flag provided but not defined: -modle server: flag provided but not defined: -modle"},
		"cut flags":      {"f a port\n  -http_port int\n    \tport for HTTP (default 8080)\nserver: --workers is 0; it must be at least 1\n", "f a port server: --workers is 0; it must be at least 1"},
		"cobra":          {"Error: unknown flag: --x\nUsage:\n  server [flags]\n\nFlags:\n  -h, --help   help for server\n\n", "Error: unknown flag: --x"},
		"click":          {"Usage: server [OPTIONS]\nTry 'server --help' for help.\n\nError: No such option: --x\n", "Error: No such option: --x"},
		"usage only":     {"usage: server FILE", "usage: server FILE"},
		"Go panic":       {"starting\npanic: boom\n\ngoroutine 1 [running]:\nmain.main()", "panic: boom goroutine 1 [running]: main.main()"},
	} {
		if got := words(test.in, &p); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	traceback := words(strings.Repeat("  File \"é.py\" line\n", 200)+"KeyError: 'weights'", &p)
	if !strings.HasPrefix(traceback, "…") || !strings.HasSuffix(traceback, "KeyError: 'weights'") {
		t.Errorf("the last words were lost: %q", traceback)
	}
	panicked := words("panic: boom\n"+strings.Repeat("é ", 1000), &p)
	if !strings.HasPrefix(panicked, "panic: boom") || !strings.HasSuffix(panicked, "…") {
		t.Errorf("the first words were lost: %q", panicked)
	}
	for _, s := range []string{traceback, panicked} {
		if len(s) > longest || !utf8.ValidString(s) {
			t.Errorf("%d bytes: %q", len(s), s)
		}
	}
}

// FuzzWords holds foreign text to what a condition can carry.
func FuzzWords(f *testing.F) {
	for _, s := range []string{"", "panic: \xff", strings.Repeat("é", 900), "2026-03-01 12:00:00", "(pod: (", "\x1b[0m"} {
		f.Add(s)
	}
	p := pod("p")
	f.Fuzz(func(t *testing.T, s string) {
		got := words(s, &p)
		if len(got) > longest || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("%q became %q", s, got)
		}
	})
}

// A crash that repeats must not change the message, in whichever of its moments it is seen and in whichever replica.
func TestMessagesDoNotFlap(t *testing.T) {
	at := func(second, replica string) corev1.ContainerState {
		return ends(1, "Error", "2026-03-01 12:00:"+second+",001 iris-"+replica+" pid 0x7f"+second+" boom")
	}
	var messages []string
	for _, s := range []struct {
		replica string
		status  corev1.ContainerStatus
	}{
		{"a", corev1.ContainerStatus{State: at("01", "a")}},
		{"a", corev1.ContainerStatus{State: waits("CrashLoopBackOff", "back-off 10s"), LastTerminationState: at("01", "a"), RestartCount: 1}},
		{"a", corev1.ContainerStatus{State: runs(after(time.Minute)), LastTerminationState: at("01", "a"), RestartCount: 2}},
		{"a", corev1.ContainerStatus{State: at("44", "a"), LastTerminationState: at("01", "a"), RestartCount: 2}},
		{"b", corev1.ContainerStatus{State: waits("CrashLoopBackOff", "back-off 5m0s"), LastTerminationState: at("59", "b"), RestartCount: 90}},
	} {
		p := pod("iris-"+s.replica, serverIs(s.status))
		f, _ := Pod(&p)
		messages = append(messages, f.Reason+": "+f.Message)
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(messages))); len(distinct) != 1 {
		t.Errorf("one cause has %d messages: %q", len(distinct), distinct)
	}
}
