// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

const (
	restContainer = "rest-container"
	restPortName  = "http-api"
	proxyPortName = "https-proxy"
	loopback      = "127.0.0.1"
	// annotationInputs, on pods, changes with the passwords and certificates that they read when they start.
	annotationInputs = "modelplane.dev/inputs"
)

// Paths at which the server says how it is.
const (
	pathClean   = "/readyz/isDirty"
	pathHealthy = "/readyz/health"
)

// server is the Deployment and the Service before it.
func (p *planner) server() []engine.Child {
	return at(stageServer, p.deployment(), p.service())
}

func (p *planner) deployment() *appsv1.Deployment {
	d := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: p.meta(p.name()),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicasOf(p.registry)),
			Selector: &metav1.LabelSelector{MatchLabels: p.selector()},
			Template: p.template(),
			// Pods of before answer until newer ones do. It is said although it is what Kubernetes does with one pod: what is
			// not said could not be taken back.
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromInt32(1))}},
		},
	}
	if p.database.kind == sqlite {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	p.held.Keep(d)
	return d
}

func (p *planner) template() corev1.PodTemplateSpec {
	volumes, mounts := p.databaseFiles()
	pod := corev1.PodSpec{
		ServiceAccountName: p.name(),
		SecurityContext:    platform.PodSecurity(p.seen.OpenShift, platform.SomeGroup),
		Containers:         []corev1.Container{p.restContainer(mounts)},
		Volumes:            volumes,
	}
	if p.proxy == nil {
		// Nothing in the pod asks Kubernetes anything.
		pod.AutomountServiceAccountToken = ptr.To(false)
	}
	if p.proxyImage() != "" {
		pod.Containers = append(pod.Containers, p.proxyContainer())
	}
	if p.proxy != nil {
		pod.Volumes = append(pod.Volumes, p.proxyVolumes()...)
	}
	annotations := map[string]string{"openshift.io/required-scc": "restricted-v2"}
	if p.seen.Inputs.Checksum != "" {
		annotations[annotationInputs] = p.seen.Inputs.Checksum
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.selector(), Annotations: annotations}, Spec: pod}
}

func (p *planner) restPort() int32 { return positive(p.spec.Rest.Port, defaultRestPort) }

// authorizes tells whether the server itself asks Kubernetes who may enter.
func (p *planner) authorizes() bool { return p.proxy != nil && p.proxyImage() == "" }

func (p *planner) restContainer(mounts []corev1.VolumeMount) corev1.Container {
	c := corev1.Container{
		Name:            restContainer,
		Image:           p.image(),
		Command:         []string{"/model-registry", "proxy"},
		Args:            p.args(),
		Env:             p.env(),
		Ports:           []corev1.ContainerPort{{Name: restPortName, ContainerPort: p.restPort(), Protocol: corev1.ProtocolTCP}},
		VolumeMounts:    mounts,
		SecurityContext: platform.Unprivileged(),
		Resources:       *platform.ServerResources(),
	}
	if p.spec.Rest.Resources != nil {
		c.Resources = *p.spec.Rest.Resources.DeepCopy()
	}
	if p.authorizes() {
		c.Ports = []corev1.ContainerPort{{Name: proxyPortName, ContainerPort: *p.proxy.Port, Protocol: corev1.ProtocolTCP}}
		c.VolumeMounts = append(c.VolumeMounts, certificateMounts()...)
	}
	if p.ownImage() {
		c.SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
	}
	p.probes(&c)
	return c
}

// args are the known ones, so that either server understands them. With a proxy before it the server listens where nobody
// else reaches it.
func (p *planner) args() []string {
	var args []string
	switch cert, key := p.certificateFiles(); {
	case p.authorizes():
		args = []string{
			"--hostname=0.0.0.0", fmt.Sprintf("--port=%d", *p.proxy.Port), "--tls-cert-file=" + cert, "--tls-key-file=" + key,
			fmt.Sprintf("--authorize-service=%s/%s", p.registry.Namespace, p.name()),
		}
	case p.proxy != nil:
		args = []string{"--hostname=" + loopback, fmt.Sprintf("--port=%d", p.restPort())}
	default:
		args = []string{"--hostname=0.0.0.0", fmt.Sprintf("--port=%d", p.restPort())}
	}
	return append(args, p.databaseArgs()...)
}

// probes ask the server itself; where it listens on the loopback address, through the proxy, which lets these paths pass.
// Our own server lives on without its database: to kill it would only delay its return.
func (p *planner) probes(c *corev1.Container) {
	port, scheme := intstr.FromString(restPortName), corev1.URISchemeHTTP
	if p.proxy != nil {
		port, scheme = intstr.FromInt32(*p.proxy.Port), corev1.URISchemeHTTPS
	}
	get := func(path string) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: port, Scheme: scheme}}
	}
	c.StartupProbe = &corev1.Probe{ProbeHandler: get(pathClean), InitialDelaySeconds: 10, PeriodSeconds: 5, TimeoutSeconds: 5, FailureThreshold: 6}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: get(pathHealthy), InitialDelaySeconds: 5, PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3}
	c.LivenessProbe = &corev1.Probe{ProbeHandler: get(pathClean), InitialDelaySeconds: 30, PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3}
	if p.ownImage() {
		c.StartupProbe.InitialDelaySeconds, c.StartupProbe.PeriodSeconds, c.StartupProbe.FailureThreshold = 1, 2, 30
		c.ReadinessProbe.InitialDelaySeconds = 0
		c.LivenessProbe.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}
	}
}
