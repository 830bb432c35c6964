// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	"fmt"
	"path"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

const (
	container   = "catalog"
	portHTTP    = 8080
	portHTTPS   = 8443
	namePort    = "http-api"
	nameHTTPS   = "https-api"
	loopback    = "127.0.0.1"
	tlsDir      = "/etc/tls"
	proxyDir    = "/etc/kube-rbac-proxy"
	proxyHealth = 8888
	pathReady   = "/readyz"
)

// server is the Deployment and the Service before it.
func (p *planner) server() []engine.Child {
	return append(at(stageServer, p.service()), workload(p.deployment(), p.seen.Server))
}

// workload is a Deployment. One that cannot be changed in place is made anew, since nothing is lost with it; but not one of ours
// while it is not seen how it finds its pods.
func workload(d *appsv1.Deployment, live platform.Workload) engine.Child {
	return engine.Child{Object: d, Stage: stageServer, Adopt: true, Replace: live.Deployment == nil || live.Whole != nil}
}

func (p *planner) deployment() *appsv1.Deployment {
	d := &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: p.meta(name),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: podsOf(name)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: podsOf(name), Annotations: map[string]string{"openshift.io/required-scc": "restricted-v2"}},
				Spec:       p.pod(),
			},
		},
	}
	p.held.Keep(d)
	return d
}

func (p *planner) pod() corev1.PodSpec {
	pod := corev1.PodSpec{
		ServiceAccountName: name,
		SecurityContext:    platform.PodSecurity(p.seen.OpenShift, platform.SomeGroup),
		Containers:         []corev1.Container{p.container()},
		Volumes: []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: tlsSecret}}}},
	}
	for _, m := range p.mounts() {
		pod.Volumes = append(pod.Volumes, m.source())
	}
	for _, d := range p.data() {
		pod.InitContainers = append(pod.InitContainers, d.container())
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: d.volume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	if p.seen.Settings.proxyImage() != "" {
		pod.Containers = append(pod.Containers, p.proxyContainer())
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "kube-rbac-proxy-config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: proxyConfig}}}})
	}
	return pod
}

// data is what an image brings into the pod before the server starts.
type data struct{ init, image, volume, dir, command string }

func (p *planner) data() []data {
	var out []data
	if image := p.seen.Settings.DataImage; image != "" {
		out = append(out, data{"catalog-data-init", image, "shared-data", dataDir, "cp /app/data/*.yaml " + dataDir + "/"})
	}
	if image := p.seen.Settings.BenchmarkImage; image != "" {
		out = append(out, data{"benchmark-data-init", image, "shared-benchmark-data", benchmarkDir,
			"cp -r /app/benchmarks/* " + benchmarkDir + "/ || echo 'there are no measurements'"})
	}
	return out
}

func (d data) container() corev1.Container {
	return corev1.Container{
		Name: d.init, Image: d.image, Command: []string{"/bin/sh", "-c", d.command}, SecurityContext: platform.Unprivileged(),
		VolumeMounts: []corev1.VolumeMount{{Name: d.volume, MountPath: d.dir}},
	}
}

func (p *planner) container() corev1.Container {
	c := corev1.Container{
		Name: container, Image: p.seen.Settings.image(), Command: []string{"/model-registry", "catalog"}, Args: p.args(),
		Ports:           []corev1.ContainerPort{{Name: namePort, ContainerPort: portHTTP, Protocol: corev1.ProtocolTCP}},
		SecurityContext: platform.Unprivileged(),
		Resources:       p.resources(),
	}
	for _, m := range p.mounts() {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: m.volume, MountPath: m.dir, ReadOnly: true})
	}
	for _, d := range p.data() {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: d.volume, MountPath: d.dir, ReadOnly: true})
	}
	if p.authorizes() {
		c.Ports = []corev1.ContainerPort{{Name: nameHTTPS, ContainerPort: portHTTPS, Protocol: corev1.ProtocolTCP}}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "tls", MountPath: tlsDir, ReadOnly: true})
	}
	if p.seen.Settings.own() {
		c.SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
		// The server is frugal when it knows what it may use.
		c.Env = []corev1.EnvVar{{Name: "GOMEMLIMIT", ValueFrom: &corev1.EnvVarSource{
			ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: container, Resource: "limits.memory"}}}}
		c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: tokens}, Optional: ptr.To(true)}}}
	} else {
		c.Env = p.databaseEnv()
	}
	p.probes(&c)
	return c
}

// authorizes tells whether the server itself asks Kubernetes who may enter.
func (p *planner) authorizes() bool { return p.seen.Settings.proxyImage() == "" }

// args are the known ones, so that either server understands them. With a proxy before it the server listens where nobody
// else reaches it.
func (p *planner) args() []string {
	args := []string{fmt.Sprintf("--listen=%s:%d", loopback, portHTTP)}
	if p.authorizes() {
		args = []string{
			fmt.Sprintf("--listen=0.0.0.0:%d", portHTTPS), "--tls-cert-file=" + path.Join(tlsDir, corev1.TLSCertKey),
			"--tls-key-file=" + path.Join(tlsDir, corev1.TLSPrivateKeyKey), "--authorize-service=" + p.catalog.Namespace + "/" + name,
		}
	}
	for _, m := range p.mounts() {
		args = append(args, "--catalogs-path="+path.Join(m.dir, sourcesKey))
	}
	if p.seen.Settings.BenchmarkImage != "" {
		args = append(args, "--performance-metrics="+benchmarkDir)
	}
	return args
}

// resources of the server.
func (p *planner) resources() corev1.ResourceRequirements {
	if r := p.catalog.Spec.Resources; r != nil && r.Catalog != nil {
		return *r.Catalog.DeepCopy()
	}
	return *platform.ServerResources()
}

// probes ask the server; where it listens on the loopback address, through the proxy, which lets this path pass.
func (p *planner) probes(c *corev1.Container) {
	port := intstr.FromInt32(portHTTPS)
	c.LivenessProbe = &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}},
		InitialDelaySeconds: 30, PeriodSeconds: 5, TimeoutSeconds: 2, FailureThreshold: 3,
	}
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: pathReady, Port: port, Scheme: corev1.URISchemeHTTPS}},
		InitialDelaySeconds: 3, PeriodSeconds: 5, TimeoutSeconds: 2, FailureThreshold: 3,
	}
}

// proxyContainer stands before the server. It lets the path pass at which the server says how it is: kubelets have no token.
func (p *planner) proxyContainer() corev1.Container {
	return corev1.Container{
		Name: "kube-rbac-proxy", Image: p.seen.Settings.proxyImage(),
		Args: []string{
			fmt.Sprintf("--secure-listen-address=0.0.0.0:%d", portHTTPS), fmt.Sprintf("--upstream=http://%s:%d/", loopback, portHTTP),
			fmt.Sprintf("--proxy-endpoints-port=%d", proxyHealth), "--logtostderr=true", "--v=0",
			"--config-file=" + path.Join(proxyDir, platform.ProxyConfigFile),
			"--tls-cert-file=" + path.Join(tlsDir, corev1.TLSCertKey), "--tls-private-key-file=" + path.Join(tlsDir, corev1.TLSPrivateKeyKey),
			"--ignore-paths=" + pathReady,
		},
		Ports: []corev1.ContainerPort{
			{Name: nameHTTPS, ContainerPort: portHTTPS, Protocol: corev1.ProtocolTCP},
			{Name: "proxy-healthz", ContainerPort: proxyHealth, Protocol: corev1.ProtocolTCP},
		},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: "/healthz", Port: intstr.FromString("proxy-healthz"), Scheme: corev1.URISchemeHTTPS}},
			InitialDelaySeconds: 5, PeriodSeconds: 5, TimeoutSeconds: 1, FailureThreshold: 3,
		},
		Resources:       *platform.ServerResources(),
		SecurityContext: platform.Unprivileged(),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "tls", MountPath: tlsDir, ReadOnly: true}, {Name: "kube-rbac-proxy-config", MountPath: proxyDir, ReadOnly: true},
		},
	}
}
