// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// envServiceName tells every container which service it belongs to.
const envServiceName = "INFERENCE_SERVICE_NAME"

// Merge puts a model and its runtime together. The predictor may be that of the
// InferenceService or a canary's; gpuTypes are resources that count as
// accelerators besides the known ones.
func Merge(isvc *v1beta1.InferenceService, predictor *v1beta1.PredictorSpec, rt *Runtime, gpuTypes []string) (*Merged, *Failure) {
	if predictor.Model == nil {
		return nil, invalid("spec.predictor.model is not set, so there is nothing to run with %s.", rt)
	}
	server := defaultsFor(isvc, predictor, rt)
	out := &Merged{
		Labels:      maps.Clone(rt.Spec.Labels),
		Annotations: maps.Clone(rt.Spec.Annotations),
		Protocol:    server.protocol,
	}
	if len(server.labels) > 0 {
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		maps.Copy(out.Labels, server.labels)
	}
	r := newRenderer(isvc, predictor.Model, server.labels)
	if f := mergeHead(out, predictor, rt, server, r); f != nil {
		return nil, f
	}
	for i := range out.Pod.Containers {
		setEnv(&out.Pod.Containers[i], envServiceName, isvc.Name)
	}
	if predictor.WorkerSpec != nil {
		if f := addWorkers(out, isvc, predictor, rt, gpuTypes, r); f != nil {
			return nil, f
		}
	}
	return out, nil
}

// mergeHead makes the pod that serves: the predictor, a transformer beside it,
// what else the runtime has, then what else the user has.
func mergeHead(out *Merged, predictor *v1beta1.PredictorSpec, rt *Runtime, server defaults, r *renderer) *Failure {
	base := find(rt.Spec.Containers, mainContainer)
	if base == nil {
		return invalid("%s has no container called %s: add it to the runtime, or choose another runtime.", rt, mainContainer)
	}
	pod, err := mergePod(&rt.Spec.ServingRuntimePodSpec, &predictor.PodSpec)
	if err != nil {
		return invalid("The pod settings of %s and of spec.predictor do not go together: %v.", rt, err)
	}
	main, err := mergeContainer(base, &server.container)
	if err != nil {
		return invalid("Container %s of %s and spec.predictor.model do not go together: %v.", mainContainer, rt, err)
	}
	if f := r.container(main, rt, strict); f != nil {
		return f
	}
	main.Image = imageFor(main, predictor.Model.RuntimeVersion, server.kind)
	pod.Containers = append(pod.Containers, *main)

	transformer, f := mergeTransformer(predictor, rt, r)
	if f != nil {
		return f
	}
	if transformer != nil {
		pod.Containers = append(pod.Containers, *transformer)
	}
	pod.Containers = appendOthers(pod.Containers, rt.Spec.Containers, mainContainer, transformerContainer)
	pod.Containers = appendOthers(pod.Containers, predictor.Containers, transformerContainer)
	for i := range pod.Containers {
		c := &pod.Containers[i]
		if i == 0 || c.Name == transformerContainer {
			continue
		}
		if f := r.container(c, rt, lenient); f != nil {
			return f
		}
	}
	out.Pod = *pod
	return nil
}

// mergeTransformer makes the container that works on requests in the same pod;
// nil if neither side has one.
func mergeTransformer(predictor *v1beta1.PredictorSpec, rt *Runtime, r *renderer) (*corev1.Container, *Failure) {
	base, own := find(rt.Spec.Containers, transformerContainer), find(predictor.Containers, transformerContainer)
	var c *corev1.Container
	switch {
	case base == nil && own == nil:
		return nil, nil
	case own == nil:
		c = base.DeepCopy()
	case base == nil:
		c = own.DeepCopy()
	default:
		var err error
		if c, err = mergeContainer(base, own); err != nil {
			return nil, invalid("Container %s of %s and of spec.predictor do not go together: %v.", transformerContainer, rt, err)
		}
	}
	return c, r.container(c, rt, strict)
}

// appendOthers adds copies of all containers but those named.
func appendOthers(to, from []corev1.Container, but ...string) []corev1.Container {
next:
	for i := range from {
		for _, name := range but {
			if from[i].Name == name {
				continue next
			}
		}
		to = append(to, *from[i].DeepCopy())
	}
	return to
}

func find(containers []corev1.Container, name string) *corev1.Container {
	for i := range containers {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}

// setEnv makes a variable have a value, wherever it came from before.
func setEnv(c *corev1.Container, name, value string) {
	for i := range c.Env {
		if c.Env[i].Name == name {
			c.Env[i] = corev1.EnvVar{Name: name, Value: value}
			return
		}
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
}

func invalid(format string, args ...any) *Failure {
	return &Failure{Reason: v1beta1.InvalidPredictorSpec, Message: fmt.Sprintf(format, args...)}
}
