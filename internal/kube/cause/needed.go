// SPDX-License-Identifier: Apache-2.0

package cause

import corev1 "k8s.io/api/core/v1"

// Needed is the part of a pod's spec that causes are found and told by, for caches that keep no more than that.
func Needed(spec *corev1.PodSpec) corev1.PodSpec {
	out := corev1.PodSpec{RestartPolicy: spec.RestartPolicy, SchedulingGates: spec.SchedulingGates}
	// What a pod asks for is told only until it has a node, which is a short time for nearly all of them.
	homeless := spec.NodeName == ""
	if homeless {
		out.Overhead = spec.Overhead
		if spec.Resources != nil {
			out.Resources = &corev1.ResourceRequirements{Requests: spec.Resources.Requests}
		}
	}
	for i := range spec.InitContainers {
		out.InitContainers = append(out.InitContainers, neededOf(&spec.InitContainers[i], homeless))
	}
	for i := range spec.Containers {
		out.Containers = append(out.Containers, neededOf(&spec.Containers[i], homeless))
	}
	for _, v := range spec.Volumes {
		if v.Image != nil {
			out.Volumes = append(out.Volumes, v)
		}
	}
	return out
}

func neededOf(c *corev1.Container, homeless bool) corev1.Container {
	out := corev1.Container{
		Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy,
		ReadinessProbe: c.ReadinessProbe, LivenessProbe: c.LivenessProbe, StartupProbe: c.StartupProbe,
	}
	if limit, ok := c.Resources.Limits[corev1.ResourceMemory]; ok {
		out.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: limit}
	}
	if homeless {
		out.Resources.Requests = c.Resources.Requests
	}
	return out
}
