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
