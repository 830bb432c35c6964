// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Files of the mesh.
const (
	typesPath = "/etc/watson/mmesh/config"
	etcdPath  = "/opt/kserve/mmesh/etcd"
)

// mesh is the container that spreads models and requests over the pods.
func (p *planner) mesh() corev1.Container {
	image := p.config.ModelMeshImage
	c := corev1.Container{
		Name: containerMesh, Image: image.String(), Command: image.Command,
		Ports:           []corev1.ContainerPort{{Name: "grpc", ContainerPort: p.config.InferenceServicePort, Protocol: corev1.ProtocolTCP}},
		Env:             p.meshEnv(),
		Resources:       p.config.ModelMeshResources.Requirements(),
		SecurityContext: dropAll(),
		ReadinessProbe:  probe("/ready", 5, 5, 1, 0),
		LivenessProbe:   probe("/live", 90, 30, 5, 2),
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeTypes, MountPath: typesPath},
			{Name: volumeEtcd, MountPath: etcdPath, ReadOnly: true},
		},
	}
	if p.config.Metrics.Enabled {
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: "prometheus", ContainerPort: p.config.Metrics.Port, Protocol: corev1.ProtocolTCP})
	}
	if !image.Ours() { // ours hands its models on by itself when it is told to end
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/opt/kserve/mmesh/stop.sh", "wait"}}}}
	}
	c.VolumeMounts = append(c.VolumeMounts, p.socketMount()...)
	p.withTLS(&c)
	return c
}

// meshEnv is in the order that other tools know.
func (p *planner) meshEnv() []corev1.EnvVar {
	env := []corev1.EnvVar{
		{Name: "MM_SERVICE_NAME", Value: p.config.InferenceServiceName},
		{Name: "MM_SVC_GRPC_PORT", Value: number(p.config.InferenceServicePort)},
		fromField("WKUBE_POD_NAME", "metadata.name"),
		fromField("WKUBE_POD_IPADDR", "status.podIP"),
		fromField("MM_LOCATION", "status.hostIP"),
		{Name: "KV_STORE", Value: "etcd:" + etcdPath + "/etcd_connection"},
		{Name: "MM_METRICS", Value: p.measured()},
		{Name: "SHUTDOWN_TIMEOUT_MS", Value: number(gracePeriod * 1000)},
	}
	for _, v := range p.config.InternalModelMeshEnvVars {
		env = append(env, corev1.EnvVar{Name: v.Name, Value: v.Value})
	}
	env = append(env, at("INTERNAL_SERVING_GRPC", p.data)...)
	management := p.management
	if p.pulled() {
		management = endpoint{port: pullerPort}
	}
	env = append(env, at("INTERNAL_GRPC", management)...)
	if p.config.EnableAccessLogging {
		env = append(env, corev1.EnvVar{Name: "MM_LOG_EACH_INVOKE", Value: "true"})
	}
	env = append(env,
		corev1.EnvVar{Name: "MM_SVC_GRPC_MAX_MSG_SIZE", Value: number(p.config.GRPCMaxMessageSizeBytes)},
		corev1.EnvVar{Name: "MM_KVSTORE_PREFIX", Value: "mm"},
		corev1.EnvVar{Name: "MM_DEFAULT_VMODEL_OWNER", Value: "ksp"})
	if len(p.config.PayloadProcessors) > 0 {
		env = append(env, corev1.EnvVar{Name: "MM_PAYLOAD_PROCESSORS", Value: strings.Join(p.config.PayloadProcessors, " ")})
	}
	return append(env,
		corev1.EnvVar{Name: "MM_LABELS", Value: strings.Join(p.labels, ",")},
		corev1.EnvVar{Name: "MM_TYPE_CONSTRAINTS_PATH", Value: typesPath + "/type_constraints"},
		corev1.EnvVar{Name: "MM_DATAPLANE_CONFIG_PATH", Value: typesPath + "/dataplane_api_config"})
}

func (p *planner) measured() string {
	m := p.config.Metrics
	if !m.Enabled {
		return "disabled"
	}
	return fmt.Sprintf("prometheus:port=%d;scheme=%s", m.Port, m.Scheme)
}

// at says where something listens, if it does.
func at(prefix string, e endpoint) []corev1.EnvVar {
	switch {
	case e.socket != "":
		return []corev1.EnvVar{{Name: prefix + "_SOCKET_PATH", Value: e.socket}}
	case e.port != 0:
		return []corev1.EnvVar{{Name: prefix + "_PORT", Value: number(e.port)}}
	}
	return nil
}
