// SPDX-License-Identifier: Apache-2.0

package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// completePod writes down what existing Deployments have written down. Most of it is what the API server would fill
// in anyway; imagePullPolicy is not, and the readiness probe keeps traffic away from a server that is still loading.
func completePod(pod corev1.PodSpec) corev1.PodSpec {
	out := *pod.DeepCopy()
	if out.DNSPolicy == "" {
		out.DNSPolicy = corev1.DNSClusterFirst
	}
	if out.RestartPolicy == "" {
		out.RestartPolicy = corev1.RestartPolicyAlways
	}
	if out.TerminationGracePeriodSeconds == nil {
		out.TerminationGracePeriodSeconds = ptr.To[int64](corev1.DefaultTerminationGracePeriodSeconds)
	}
	if out.SecurityContext == nil {
		out.SecurityContext = &corev1.PodSecurityContext{}
	}
	if out.SchedulerName == "" {
		out.SchedulerName = corev1.DefaultSchedulerName
	}
	for i := range out.Containers {
		completeContainer(&out.Containers[i])
	}
	dropRepeated(&out)
	return out
}

// dropRepeated leaves one entry for each key in the lists that may repeat one in a stored pod but not in an applied
// one. Of two variables with one name the containers see the last in any case, and a port is open once or not.
func dropRepeated(pod *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			c := &containers[i]
			c.Env = unique(c.Env, func(e corev1.EnvVar) any { return e.Name }, last)
			c.Ports = unique(c.Ports, portKey, first)
		}
	}
	pod.ImagePullSecrets = unique(pod.ImagePullSecrets, func(r corev1.LocalObjectReference) any { return r.Name }, first)
}

func portKey(p corev1.ContainerPort) any {
	if p.Protocol == "" {
		p.Protocol = corev1.ProtocolTCP
	}
	return [2]any{p.ContainerPort, p.Protocol}
}

// Which of two entries with one key is kept.
const (
	first = false
	last  = true
)

// unique keeps each key at its first place, with its first or last value.
func unique[E any](list []E, key func(E) any, keepLast bool) []E {
	at := make(map[any]int, len(list))
	out := list[:0]
	for _, e := range list {
		i, known := at[key(e)]
		switch {
		case !known:
			at[key(e)] = len(out)
			out = append(out, e)
		case keepLast:
			out[i] = e
		}
	}
	return out
}

func completeContainer(c *corev1.Container) {
	if c.TerminationMessagePath == "" {
		c.TerminationMessagePath = corev1.TerminationMessagePathDefault
	}
	if c.TerminationMessagePolicy == "" {
		c.TerminationMessagePolicy = corev1.TerminationMessageReadFile
	}
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = corev1.PullIfNotPresent
	}
	if c.ReadinessProbe == nil && (c.Name == modelContainer || c.Name == transformerContainer) {
		c.ReadinessProbe = listens(c)
	}
}

// listens is ready when the first port takes connections.
func listens(c *corev1.Container) *corev1.Probe {
	port := int32(modelPort)
	if len(c.Ports) > 0 {
		port = c.Ports[0].ContainerPort
	}
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}},
		TimeoutSeconds:   1,
		PeriodSeconds:    10,
		SuccessThreshold: 1,
		FailureThreshold: 3,
	}
}
