// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/modelplane/modelplane/internal/modelmesh/settings"
)

// Containers of ours; the adapter's name begins with that of its server.
const (
	containerMesh    = "mm"
	containerProxy   = "rest-proxy"
	containerPuller  = "puller"
	adapterSuffix    = "-adapter"
	pullerPort       = 8086
	preStopPort      = 8090
	modelsPath       = "/models"
	storagePath      = "/storage-config"
	claimsPath       = "/pvc_mounts"
	annotationLoads  = "maxLoadingConcurrency"
	annotationPerOne = "perModelConcurrencyLimit"
)

// Ports at which what stands around the mesh shows its own metrics, where it is ours. Nobody else's port has such a name.
const (
	PortPullerMetrics = "mm-pull-metrics"
	PortProxyMetrics  = "mm-rest-metrics"
	pullerMetrics     = 11881
	proxyMetrics      = 11882
)

// shown is the port of a container's metrics: none where they are not wanted, or the program is another one, which has none there.
func (p *planner) shown(image settings.Image, name string, number int32) []corev1.ContainerPort {
	if !p.config.Metrics.Enabled || !image.Ours() {
		return nil
	}
	return []corev1.ContainerPort{{Name: name, ContainerPort: number, Protocol: corev1.ProtocolTCP}}
}

// adapted tells whether a server that does not speak the mesh's language has an adapter beside it, and pulled whether the
// models are fetched for one that does.
func (p *planner) adapted() bool { return p.spec.BuiltInAdapter != nil }
func (p *planner) pulled() bool {
	return !p.adapted() && (p.spec.StorageHelper == nil || !p.spec.StorageHelper.Disabled)
}

// containers are in the order that other tools know: the mesh has changed places with the last, and only the puller comes
// after all.
func (p *planner) containers() []corev1.Container {
	out := []corev1.Container{p.mesh()}
	for i := range p.spec.Containers {
		out = append(out, p.own(&p.spec.Containers[i]))
	}
	if p.adapted() {
		out = append(out, p.adapter())
	}
	if p.config.RESTProxy.Enabled {
		out = append(out, p.proxy())
	}
	last := len(out) - 1
	out[0], out[last] = out[last], out[0]
	if p.pulled() {
		out = append(out, p.puller())
	}
	return out
}

// own is a container of the runtime. It stays until the mesh has handed its models on.
func (p *planner) own(given *corev1.Container) corev1.Container {
	c := *given.DeepCopy()
	c.VolumeMounts = slices.Concat(p.modelMounts(), c.VolumeMounts, p.socketMount())
	c.Lifecycle = untilHandedOn()
	if c.SecurityContext == nil {
		c.SecurityContext = dropAll()
	}
	return c
}

func untilHandedOn() *corev1.Lifecycle {
	return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/prestop", Port: intstr.FromInt32(preStopPort)}}}
}

func dropAll() *corev1.SecurityContext {
	return &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
}

func (p *planner) modelMounts() []corev1.VolumeMount {
	out := []corev1.VolumeMount{{Name: volumeModels, MountPath: modelsPath}}
	for _, claim := range p.place.Claims {
		out = append(out, corev1.VolumeMount{Name: claimVolume(claim, p.spec.Volumes), MountPath: path.Join(claimsPath, claim), ReadOnly: true})
	}
	return out
}

func (p *planner) socketMount() []corev1.VolumeMount {
	if dir := p.sockets(); dir != "" {
		return []corev1.VolumeMount{{Name: volumeSockets, MountPath: dir}}
	}
	return nil
}

// fetching are the mounts of what fetches models.
func (p *planner) fetching() []corev1.VolumeMount {
	out := append(p.modelMounts(), corev1.VolumeMount{Name: volumeStorage, MountPath: storagePath, ReadOnly: true})
	return append(out, p.socketMount()...)
}

func number[T ~int | ~int32 | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// adapter speaks the mesh's language for a server that does not.
func (p *planner) adapter() corev1.Container {
	a := p.spec.BuiltInAdapter
	server := string(a.ServerType)
	port := int32(defaultManagement)
	if p.management.port != 0 {
		port = p.management.port
	}
	data := p.data.String()
	if data == "" {
		data = "port:" + number(a.RuntimeManagementPort)
	}
	env := []corev1.EnvVar{
		{Name: "ADAPTER_PORT", Value: number(port)},
		{Name: "RUNTIME_PORT", Value: number(a.RuntimeManagementPort)},
		{Name: "RUNTIME_DATA_ENDPOINT", Value: data},
		{Name: "CONTAINER_MEM_REQ_BYTES", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: server, Resource: "requests.memory"}}},
		{Name: "MEM_BUFFER_BYTES", Value: number(a.MemBufferBytes)},
		{Name: "LOADTIME_TIMEOUT", Value: number(a.ModelLoadingTimeoutMillis)},
		{Name: "USE_EMBEDDED_PULLER", Value: "true"},
		{Name: "RUNTIME_VERSION", Value: p.serverVersion(server)},
	}
	for _, asked := range [][2]string{{annotationLoads, "LOADING_CONCURRENCY"}, {annotationPerOne, "LIMIT_PER_MODEL_CONCURRENCY"}} {
		if value, ok := p.runtime.annotations[asked[0]]; ok {
			env = append(env, corev1.EnvVar{Name: asked[1], Value: value})
		}
	}
	return corev1.Container{
		Name: server + adapterSuffix, Image: p.config.AdapterImage.String(), Command: []string{"/opt/app/" + server + adapterSuffix},
		Env: overridden(env, a.Env), Resources: p.config.StorageHelperResources.Requirements(), VolumeMounts: p.fetching(),
		Lifecycle: untilHandedOn(), SecurityContext: dropAll(),
	}
}

// serverVersion is the tag of the server's image.
func (p *planner) serverVersion(server string) string {
	for i := range p.spec.Containers {
		if c := &p.spec.Containers[i]; c.Name == server {
			return settings.ImageOf(c.Image).Tag
		}
	}
	return ""
}

// overridden puts variables over others of their name.
func overridden(env, by []corev1.EnvVar) []corev1.EnvVar {
	for _, v := range by {
		i := slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Name == v.Name })
		if i < 0 {
			env = append(env, v)
			continue
		}
		env[i] = v
	}
	return env
}

// puller stands between the mesh and the runtime, and fetches each model before it is loaded.
func (p *planner) puller() corev1.Container {
	return corev1.Container{
		Name: containerPuller, Image: p.config.StorageHelperImage.String(), Command: p.config.StorageHelperImage.Command,
		Ports: append([]corev1.ContainerPort{{Name: "grpc", ContainerPort: pullerPort, Protocol: corev1.ProtocolTCP}},
			p.shown(p.config.StorageHelperImage, PortPullerMetrics, pullerMetrics)...),
		Env: []corev1.EnvVar{
			{Name: "PORT", Value: number(pullerPort)},
			{Name: "MODEL_SERVER_ENDPOINT", Value: p.management.String()},
			{Name: "ROOT_MODEL_DIR", Value: modelsPath},
			{Name: "STORAGE_CONFIG_DIR", Value: storagePath},
			{Name: "PVC_MOUNTS_DIR", Value: claimsPath},
		},
		Resources: p.config.StorageHelperResources.Requirements(), VolumeMounts: p.fetching(),
		Lifecycle: untilHandedOn(), SecurityContext: dropAll(),
	}
}

// proxy answers REST beside the mesh.
func (p *planner) proxy() corev1.Container {
	proxy := p.config.RESTProxy
	tls := p.config.TLS.SecretName != ""
	c := corev1.Container{
		Name: containerProxy, Image: proxy.Image.String(), Command: proxy.Image.Command,
		Ports: append([]corev1.ContainerPort{{Name: "http", ContainerPort: proxy.Port, Protocol: corev1.ProtocolTCP}},
			p.shown(proxy.Image, PortProxyMetrics, proxyMetrics)...),
		Env: []corev1.EnvVar{
			{Name: "REST_PROXY_LISTEN_PORT", Value: number(proxy.Port)},
			{Name: "REST_PROXY_GRPC_PORT", Value: number(p.config.InferenceServicePort)},
			{Name: "REST_PROXY_USE_TLS", Value: strconv.FormatBool(tls)},
			{Name: "REST_PROXY_GRPC_MAX_MSG_SIZE_BYTES", Value: number(p.config.GRPCMaxMessageSizeBytes)},
			{Name: "REST_PROXY_SKIP_VERIFY", Value: strconv.FormatBool(proxy.SkipVerify)},
		},
		Resources: proxy.Resources.Requirements(), SecurityContext: dropAll(),
	}
	p.withTLS(&c)
	return c
}

// withTLS gives a container the certificate, and says what is asked of clients.
func (p *planner) withTLS(c *corev1.Container) {
	const dir = "/opt/kserve/mmesh/tls"
	tls := p.config.TLS
	if tls.SecretName == "" {
		return
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeTLS, MountPath: dir, ReadOnly: true})
	c.Env = append(c.Env,
		corev1.EnvVar{Name: "MM_TLS_KEY_CERT_PATH", Value: dir + "/tls.crt"},
		corev1.EnvVar{Name: "MM_TLS_PRIVATE_KEY_PATH", Value: dir + "/tls.key"})
	if tls.ClientAuth == "" {
		return
	}
	trusted := []string{dir + "/tls.crt"}
	if p.place.CA {
		trusted = append(trusted, dir+"/ca.crt")
	}
	c.Env = append(c.Env,
		corev1.EnvVar{Name: "MM_TLS_CLIENT_AUTH", Value: tls.ClientAuth},
		corev1.EnvVar{Name: "MM_TLS_TRUST_CERT_PATH", Value: strings.Join(trusted, ",")})
}

func probe(file string, delay, period, timeout, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: file, Port: intstr.FromInt32(8089), Scheme: corev1.URISchemeHTTP}},
		InitialDelaySeconds: delay, PeriodSeconds: period, TimeoutSeconds: timeout, FailureThreshold: failures,
	}
}

func fromField(name, field string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}}
}
