// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

const nvidiaGPU corev1.ResourceName = "nvidia.com/gpu"

// accelerators are the resources that count as such without anybody saying so.
var accelerators = []corev1.ResourceName{nvidiaGPU, "amd.com/gpu", "intel.com/gpu", "habana.ai/gaudi"}

// backendMP runs one process per accelerator without Ray.
const backendMP = "mp"

// cluster is how a model spreads over nodes.
type cluster struct {
	pipeline, tensor int64
	nodes            int64
	head, worker     int64 // accelerators of the head and of each worker
}

// addWorkers makes the pods beside the head and tells both of each other.
func addWorkers(out *Merged, isvc *v1beta1.InferenceService, predictor *v1beta1.PredictorSpec, rt *Runtime, gpuTypes []string, r *renderer) *Failure {
	if rt.Spec.WorkerSpec == nil {
		return invalid("spec.predictor.workerSpec is set, but %s has no workerSpec: choose a runtime for several nodes, "+
			"or remove spec.predictor.workerSpec.", rt)
	}
	types, f := gpuTypesOf(isvc, gpuTypes)
	if f != nil {
		return f
	}
	pod, f := mergeWorker(predictor.WorkerSpec, rt, r)
	if f != nil {
		return f
	}
	head, worker := &out.Pod.Containers[0], &pod.Containers[0]
	c, f := clusterFor(predictor.WorkerSpec, rt, gpusOf(head, types), gpusOf(worker, types))
	if f != nil {
		return f
	}
	headEnv(head, isvc, predictor.Model, c)
	workerEnv(worker, isvc, c)
	headKind, workerKind := gpuKinds(head, worker, types)
	setGPUs(head, headKind, c.head)
	setGPUs(worker, workerKind, c.worker)
	out.Worker = &Worker{
		Pod:         *pod,
		Labels:      maps.Clone(rt.Spec.WorkerSpec.Labels),
		Annotations: maps.Clone(rt.Spec.WorkerSpec.Annotations),
		Replicas:    int32(c.nodes - 1),
	}
	return nil
}

// mergeWorker makes the pod of a worker. A user describes its container under
// whatever name, since there is only one.
func mergeWorker(own *v1beta1.WorkerSpec, rt *Runtime, r *renderer) (*corev1.PodSpec, *Failure) {
	spec := rt.Spec.WorkerSpec
	base := find(spec.Containers, workerContainer)
	if base == nil {
		return nil, invalid("The workerSpec of %s has no container called %s: add it to the runtime, or choose another runtime.",
			rt, workerContainer)
	}
	if len(own.EphemeralContainers) > 0 {
		return nil, invalid("spec.predictor.workerSpec.ephemeralContainers cannot be part of a template: remove it, and debug running pods instead.")
	}
	pod, err := mergePod(&spec.ServingRuntimePodSpec, &own.PodSpec)
	if err != nil {
		return nil, invalid("The worker's pod settings of %s and of spec.predictor.workerSpec do not go together: %v.", rt, err)
	}
	overlay, others := &corev1.Container{}, own.Containers
	if len(own.Containers) > 0 {
		overlay, others = &own.Containers[0], own.Containers[1:]
	}
	c, err := mergeContainer(base, overlay)
	if err != nil {
		return nil, invalid("Container %s of %s and spec.predictor.workerSpec do not go together: %v.", workerContainer, rt, err)
	}
	pod.Containers = []corev1.Container{*c}
	pod.Containers = appendOthers(pod.Containers, spec.Containers, workerContainer)
	pod.Containers = appendOthers(pod.Containers, others)
	for i := range pod.Containers {
		if f := r.container(&pod.Containers[i], rt, lenient); f != nil {
			return nil, f
		}
	}
	return pod, nil
}

// clusterFor counts nodes and accelerators, from what the containers ask for.
func clusterFor(own *v1beta1.WorkerSpec, rt *Runtime, head, worker int64) (cluster, *Failure) {
	spec := rt.Spec.WorkerSpec
	c := cluster{
		pipeline: size(own.PipelineParallelSize, spec.PipelineParallelSize),
		tensor:   size(own.TensorParallelSize, spec.TensorParallelSize),
		head:     head,
		worker:   worker,
	}
	const most = math.MaxInt32
	if c.pipeline < 1 || c.tensor < 1 || c.pipeline > most || c.tensor > most || c.pipeline*c.tensor > most {
		return c, invalid("pipelineParallelSize %d and tensorParallelSize %d of spec.predictor.workerSpec (or of %s) "+
			"must be at least 1 and at most %d together: correct them.", c.pipeline, c.tensor, rt, most)
	}
	if rt.Spec.Annotations[v1beta1.AnnotationExecutorBackend] == backendMP {
		c.nodes, c.head, c.worker = c.pipeline, c.tensor, c.tensor
		return c, nil
	}
	c.spread()
	if have := c.head + c.worker*(c.nodes-1); have < c.pipeline*c.tensor {
		workers := "the worker has"
		if c.nodes > 2 {
			workers = fmt.Sprintf("each of the %d workers has", c.nodes-1)
		}
		f := invalid("The model needs %d GPUs (pipelineParallelSize × tensorParallelSize), but the head has %d and %s %d: "+
			"give them more, or lower the sizes in spec.predictor.workerSpec.", c.pipeline*c.tensor, c.head, workers, c.worker)
		f.Condition = InvalidGPUAllocation
		return c, f
	}
	return c, nil
}

// size is what the user says, else the runtime, else 1.
func size(sizes ...*int) int64 {
	for _, s := range sizes {
		if s != nil {
			return int64(*s)
		}
	}
	return 1
}

// spread distributes the accelerators under Ray: workers of the given size, the
// head takes the rest or what it asks for; one node if the head is enough.
func (c *cluster) spread() {
	total := c.pipeline * c.tensor
	switch {
	case c.worker > 0:
		c.nodes = (total + c.worker - 1) / c.worker
		if c.nodes == 1 || c.head >= total {
			c.nodes, c.head, c.worker = 1, total, 0
		} else if c.head == 0 {
			c.head = total - c.worker*(c.nodes-1)
		}
	case c.head > 0:
		c.worker = 1
		c.nodes = 1 + max(0, total-c.head)
	default:
		c.nodes, c.head, c.worker = total, 1, 1
	}
}

func headEnv(head *corev1.Container, isvc *v1beta1.InferenceService, model *v1beta1.ModelSpec, c cluster) {
	setCount(head, "PIPELINE_PARALLEL_SIZE", c.pipeline)
	setCount(head, "TENSOR_PARALLEL_SIZE", c.tensor)
	setCount(head, "RAY_NODE_COUNT", c.nodes)
	setCount(head, "REQUEST_GPU_COUNT", c.head)
	setEnv(head, "MODEL_NAME", isvc.Name)
	if model.StorageURI == nil {
		return
	}
	if scheme, _, _ := strings.Cut(*model.StorageURI, "://"); scheme == "pvc" || scheme == "oci" {
		setEnv(head, "MODEL_DIR", modelsDir)
	}
}

func workerEnv(worker *corev1.Container, isvc *v1beta1.InferenceService, c cluster) {
	setCount(worker, "RAY_NODE_COUNT", c.nodes)
	setCount(worker, "REQUEST_GPU_COUNT", c.worker)
	setCount(worker, "PIPELINE_PARALLEL_SIZE", c.pipeline)
	setCount(worker, "TENSOR_PARALLEL_SIZE", c.tensor)
	setEnv(worker, "ISVC_NAME", isvc.Name)
	setEnv(worker, "HEAD_SVC", fmt.Sprintf("%s-head-%d", isvc.Name, isvc.Generation))
	setEnv(worker, "WORKER_SVC", fmt.Sprintf("%s-workers-%d", isvc.Name, isvc.Generation))
}

func setCount(c *corev1.Container, name string, n int64) {
	setEnv(c, name, strconv.FormatInt(n, 10))
}

// gpuTypesOf lists the resources that count as accelerators for a service.
func gpuTypesOf(isvc *v1beta1.InferenceService, configured []string) ([]corev1.ResourceName, *Failure) {
	types := slices.Clone(accelerators)
	for _, t := range configured {
		types = append(types, corev1.ResourceName(t))
	}
	text := isvc.Annotations[v1beta1.AnnotationGPUResourceTypes]
	if text == "" {
		return types, nil
	}
	var more []corev1.ResourceName
	if err := json.Unmarshal([]byte(text), &more); err != nil {
		return nil, invalid("Annotation %s must be a JSON list of resource names such as [%q], but is %s: correct it.",
			v1beta1.AnnotationGPUResourceTypes, nvidiaGPU, clip(text))
	}
	return append(types, more...), nil
}

// gpusOf counts the accelerators of the first known type that a container asks
// for. As everywhere in Kubernetes, a limit alone is a request too.
func gpusOf(c *corev1.Container, types []corev1.ResourceName) int64 {
	for _, resources := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		for _, t := range types {
			if q, ok := resources[t]; ok && !q.IsZero() {
				return min(max(q.Value(), 0), math.MaxInt32)
			}
		}
	}
	return 0
}

// gpuKinds are the accelerators that head and worker ask for. One that asks for
// none gets what the other has, since they work on the same model.
func gpuKinds(head, worker *corev1.Container, types []corev1.ResourceName) (ofHead, ofWorker corev1.ResourceName) {
	ofHead, ofWorker = gpuKind(head, types), gpuKind(worker, types)
	return cmp.Or(ofHead, ofWorker, nvidiaGPU), cmp.Or(ofWorker, ofHead, nvidiaGPU)
}

func gpuKind(c *corev1.Container, types []corev1.ResourceName) corev1.ResourceName {
	for _, t := range types {
		limit, request := c.Resources.Limits[t], c.Resources.Requests[t]
		if !limit.IsZero() || !request.IsZero() {
			return t
		}
	}
	return ""
}

// setGPUs makes a container ask for exactly so many accelerators.
func setGPUs(c *corev1.Container, kind corev1.ResourceName, n int64) {
	for _, resources := range []*corev1.ResourceList{&c.Resources.Limits, &c.Resources.Requests} {
		if *resources == nil {
			*resources = corev1.ResourceList{}
		}
		(*resources)[kind] = *resource.NewQuantity(n, resource.DecimalSI)
	}
}
