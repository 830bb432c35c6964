// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/storage"
)

const (
	agentName       = "agent"
	agentPort int32 = 9081

	modelDirVolume    = "model-dir"
	modelConfigVolume = "model-config"
	modelConfigPath   = "/mnt/configs"
)

// addAgent puts the agent in front of the model server, or beside it where it
// pulls models, when the pod asks for any of it.
func (m *Mutator) addAgent(ctx context.Context, pod *corev1.Pod, namespace string, cfg *config.Config) error {
	if !wantsAgent(pod) {
		return nil
	}
	pulls, batches, logs := asks(pod, v1beta1.AnnotationAgent), asks(pod, v1beta1.AnnotationBatcher), asks(pod, v1beta1.AnnotationLogger)
	agent := newAgent(pod, cfg.Agent)
	if pulls {
		agent.Args = append(agent.Args, pullerArgs(pod)...)
	}
	if batches {
		agent.Args = append(agent.Args, batcherArgs(pod, cfg.Batcher)...)
	}
	var log *logger
	if logs {
		log = loggerFor(pod, m.service(ctx, pod, namespace), cfg.Logger)
		agent.Args = append(agent.Args, log.args(pod, namespace)...)
		log.mountCertificates(pod, &agent)
	}
	agent.Args = append(agent.Args, "--component-port", componentPort(pod))
	if err := takeOver(pod, &agent); err != nil {
		return err
	}
	if err := m.addCredentials(ctx, pod, namespace, pod.Spec.ServiceAccountName, pod.Annotations, &agent, cfg); err != nil {
		return err
	}
	if log != nil && log.Storage != nil {
		// The secret that the pod names in an annotation is the model's.
		if err := m.addCredentials(ctx, pod, namespace, log.account(), nil, &agent, cfg); err != nil {
			return fmt.Errorf("credentials of the logger: %w", err)
		}
	}
	if pulls {
		if err := mountModels(pod, &agent); err != nil {
			return err
		}
	}
	pod.Spec.Containers = append(pod.Spec.Containers, agent)
	return nil
}

// wantsAgent is true for a pod that asks for any of it and has none yet.
func wantsAgent(pod *corev1.Pod) bool {
	asked := asks(pod, v1beta1.AnnotationAgent) || asks(pod, v1beta1.AnnotationBatcher) || asks(pod, v1beta1.AnnotationLogger)
	return asked && container(pod, agentName) == nil && len(pod.Spec.Containers) > 0
}

func asks(pod *corev1.Pod, annotation string) bool {
	_, ok := pod.Annotations[annotation]
	return ok
}

func (m *Mutator) addCredentials(ctx context.Context, pod *corev1.Pod, namespace, account string, annotations map[string]string,
	c *corev1.Container, cfg *config.Config) error {
	secrets, err := storage.GatherAccount(ctx, m.Reader, namespace, account, annotations, cfg)
	if err != nil {
		return err
	}
	storage.AccountCredentials(c, &pod.Spec.Volumes, annotations, secrets, cfg)
	return nil
}

// newAgent is the agent without arguments. It may do what the server may do.
func newAgent(pod *corev1.Pod, cfg config.Agent) corev1.Container {
	path := "/"
	if p := serverProbe(pod); p != nil && p.HTTPGet != nil && p.HTTPGet.Path != "" {
		path = p.HTTPGet.Path
	}
	return corev1.Container{
		Name:            agentName,
		Image:           cfg.Image,
		Command:         slices.Clone(cfg.Command),
		Resources:       cfg.Requirements(),
		SecurityContext: pod.Spec.Containers[0].SecurityContext.DeepCopy(),
		Ports:           []corev1.ContainerPort{{Name: "agent-port", ContainerPort: agentPort, Protocol: corev1.ProtocolTCP}},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromInt32(agentPort), Scheme: corev1.URISchemeHTTP,
			HTTPHeaders: []corev1.HTTPHeader{{Name: "K-Network-Probe", Value: "queue"}},
		}}},
	}
}

// server is the container that requests reach first: a transformer in the same
// pod stands before the model.
func server(pod *corev1.Pod) *corev1.Container {
	for _, name := range []string{storage.TransformerContainer, storage.MainContainer} {
		if c := container(pod, name); c != nil {
			return c
		}
	}
	return nil
}

func componentPort(pod *corev1.Pod) string {
	if c := server(pod); c != nil && len(c.Ports) > 0 {
		return strconv.Itoa(int(c.Ports[0].ContainerPort))
	}
	return serverPort
}

// serverProbe is how the server says that it is ready.
func serverProbe(pod *corev1.Pod) *corev1.Probe { return probed(pod).ReadinessProbe }

// probed is the container whose readiness counts for the agent.
func probed(pod *corev1.Pod) *corev1.Container {
	if c := container(pod, storage.TransformerContainer); c != nil {
		return c
	}
	return &pod.Spec.Containers[0]
}

// takeOver makes the agent answer for the server: Knative's sidecar sends its
// requests to it, or, where there is none, it probes the server itself.
func takeOver(pod *corev1.Pod, agent *corev1.Container) error {
	if proxy := container(pod, queueProxy); proxy != nil {
		for _, v := range proxy.Env {
			setEnv(agent, v)
		}
		for i := range proxy.Env {
			if proxy.Env[i].Name == "USER_PORT" {
				proxy.Env[i] = corev1.EnvVar{Name: "USER_PORT", Value: strconv.Itoa(int(agentPort))}
			}
		}
		return nil
	}
	probe := serverProbe(pod)
	if isOurs(agent) {
		probe = resolved(pod, probe)
	}
	if probe == nil || probe.HTTPGet == nil && probe.TCPSocket == nil && (probe.GRPC == nil || !isOurs(agent)) {
		return nil // the agent cannot run commands in another container, and only ours speaks gRPC
	}
	raw, err := json.Marshal(probe)
	if err != nil {
		return fmt.Errorf("readiness probe of the server: %w", err)
	}
	setEnv(agent, corev1.EnvVar{Name: "SERVING_READINESS_PROBE", Value: string(raw)})
	return nil
}

// ownAgent is how the agent of our image is started.
var ownAgent = []string{"/modelplane-pod", "agent"}

func isOurs(agent *corev1.Container) bool { return slices.Equal(agent.Command, ownAgent) }

// resolved is a probe whose port is a number: the agent knows no names of ports.
func resolved(pod *corev1.Pod, probe *corev1.Probe) *corev1.Probe {
	if probe == nil {
		return nil
	}
	out := probe.DeepCopy()
	for _, port := range []*intstr.IntOrString{portOf(out.HTTPGet), socketPortOf(out.TCPSocket)} {
		if port == nil || port.Type != intstr.String {
			continue
		}
		for _, p := range probed(pod).Ports {
			if p.Name == port.StrVal {
				*port = intstr.FromInt32(p.ContainerPort)
			}
		}
	}
	return out
}

func portOf(get *corev1.HTTPGetAction) *intstr.IntOrString {
	if get == nil {
		return nil
	}
	return &get.Port
}

func socketPortOf(socket *corev1.TCPSocketAction) *intstr.IntOrString {
	if socket == nil {
		return nil
	}
	return &socket.Port
}

// flags turns annotations that are there into arguments.
func flags(pod *corev1.Pod, args []string, pairs ...[2]string) []string {
	for _, pair := range pairs {
		if value, ok := pod.Annotations[pair[1]]; ok {
			args = append(args, pair[0], value)
		}
	}
	return args
}

func pullerArgs(pod *corev1.Pod) []string {
	return flags(pod, []string{"--enable-puller"},
		[2]string{"--config-dir", v1beta1.AnnotationConfigMountPath}, [2]string{"--model-dir", v1beta1.AnnotationModelDir})
}

// batcherArgs are what the service says, or the platform, where that is not what every agent does by itself.
func batcherArgs(pod *corev1.Pod, cfg config.Batcher) []string {
	args := []string{"--enable-batcher"}
	byItself := config.Default().Batcher
	for _, setting := range []struct {
		flag, annotation   string
		platform, byItself int
	}{
		{"--max-batchsize", v1beta1.AnnotationBatcherMaxBatchSize, cfg.MaxBatchSize, byItself.MaxBatchSize},
		{"--max-latency", v1beta1.AnnotationBatcherMaxLatency, cfg.MaxLatency, byItself.MaxLatency},
	} {
		if value, ok := pod.Annotations[setting.annotation]; ok {
			args = append(args, setting.flag, value)
		} else if setting.platform != setting.byItself {
			args = append(args, setting.flag, strconv.Itoa(setting.platform))
		}
	}
	return args
}

// mountModels gives the agent the list of models and a place to put them, which
// the server reads.
func mountModels(pod *corev1.Pod, agent *corev1.Container) error {
	list := pod.Annotations[v1beta1.AnnotationConfigVolumeName]
	if _, ok := pod.Annotations[v1beta1.AnnotationModelDir]; !ok || list == "" {
		return fmt.Errorf("annotation %s asks for an agent that pulls models, which needs %s and %s as well; set both, or remove it",
			v1beta1.AnnotationAgent, v1beta1.AnnotationModelDir, v1beta1.AnnotationConfigVolumeName)
	}
	addVolume(pod, modelDirVolume, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	addVolume(pod, modelConfigVolume, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: list},
	}})
	models := corev1.VolumeMount{Name: modelDirVolume, MountPath: storage.ModelPath}
	agent.VolumeMounts = append(agent.VolumeMounts, models, corev1.VolumeMount{Name: modelConfigVolume, MountPath: modelConfigPath})
	if c := container(pod, storage.MainContainer); c != nil {
		c.VolumeMounts = append(c.VolumeMounts, models)
	}
	return nil
}

func addVolume(pod *corev1.Pod, name string, source corev1.VolumeSource) {
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
}
