// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/activation"
)

// http2 tells gateways to speak HTTP/2 without TLS, which gRPC needs.
const http2 = "kubernetes.io/h2c"

// Service leads to the pods of a component. Requests that are logged or batched go to the agent beside the model
// server, which hands them on.
func Service(p Part, cfg *config.Config) *corev1.Service {
	svc := service(beside(p.meta()), map[string]string{v1beta1.LabelApp: p.app()})
	svc.Spec.Ports = podPorts(p)
	if cfg.Service.ServiceClusterIPNone && p.Activation == nil { // the activator has other ports than the pods
		svc.Spec.ClusterIP = corev1.ClusterIPNone
	}
	if p.Led {
		svc.Spec.Selector[activation.LabelBehind] = activation.ValueBehind
	}
	if p.Leaving {
		svc.Labels[activation.LabelActivator] = activation.ValueLeaving
	}
	return svc
}

// podPorts are the ports of a component, with the agent in front of the model server where there is one.
func podPorts(p Part) []corev1.ServicePort {
	ports := servicePorts(p)
	if p.Scale.Logger != nil || p.Scale.Batcher != nil {
		ports[0].TargetPort = intstr.FromInt32(agentPort)
	}
	return ports
}

// Irreconcilable tells whether a Service has to go before it can be made as wanted. One that has an address keeps it,
// and one that has none gets none: the API server refuses the former change and passes over the latter without a word.
func Irreconcilable(live, wanted *corev1.Service) bool {
	return live != nil && live.Spec.ClusterIP != "" &&
		(live.Spec.ClusterIP == corev1.ClusterIPNone) != (wanted.Spec.ClusterIP == corev1.ClusterIPNone)
}

// MultiNodeServices let the nodes of a group find each other before they are ready: each generation has a pair of its
// own, so that a new group does not join the old one. None unless the predictor is multi-node.
func MultiNodeServices(p Part) []*corev1.Service {
	if p.Worker == nil {
		return nil
	}
	return []*corev1.Service{
		p.groupService(beside(p.meta()), "head", p.app(), roleHead),
		p.groupService(beside(p.workerMeta()), "workers", p.workerApp(), roleWorker),
	}
}

func (p Part) groupService(meta metav1.ObjectMeta, of, app, role string) *corev1.Service {
	meta.Name = fmt.Sprintf("%s-%s-%d", p.IsvcName, of, p.Generation)
	meta.Labels[v1beta1.LabelMultiNodeRole] = role
	svc := service(meta, map[string]string{v1beta1.LabelApp: app, v1beta1.LabelGeneration: p.generation()})
	svc.Spec.ClusterIP = corev1.ClusterIPNone
	svc.Spec.PublishNotReadyAddresses = true
	return svc
}

// service says its type although it is the default one: only what is said is set back when somebody changes it.
func service(meta metav1.ObjectMeta, selector map[string]string) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta,
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: selector},
	}
}

// servicePorts opens what the first container declares, or the transformer beside it, which takes the requests for
// both. The first port is always reached at 80.
func servicePorts(p Part) []corev1.ServicePort {
	declared := entrance(p.Pod.Containers).Ports
	if len(declared) == 0 {
		return []corev1.ServicePort{{
			Name: p.Name, Port: servicePort, TargetPort: intstr.FromInt32(modelPort), Protocol: corev1.ProtocolTCP,
		}}
	}
	type number struct {
		port     int32
		protocol corev1.Protocol
	}
	taken := map[number]bool{}
	var ports []corev1.ServicePort
	for i, c := range declared {
		port := corev1.ServicePort{
			Name: c.Name, Port: c.ContainerPort, TargetPort: intstr.FromInt32(c.ContainerPort),
			Protocol: c.Protocol, AppProtocol: appProtocol(c.Name),
		}
		if i == 0 {
			port.Port = servicePort
		}
		if port.Protocol == "" {
			port.Protocol = corev1.ProtocolTCP
		}
		if port.Name == "" && len(declared) > 1 {
			port.Name = fmt.Sprintf("port-%d", c.ContainerPort) // a Service needs names for several ports
		}
		if n := (number{port.Port, port.Protocol}); !taken[n] {
			taken[n] = true // a Service has each number once, and the first port is at 80 whatever comes after
			ports = append(ports, port)
		}
	}
	return ports
}

func entrance(containers []corev1.Container) corev1.Container {
	for _, c := range containers {
		if c.Name == transformerContainer {
			return c
		}
	}
	if len(containers) > 0 {
		return containers[0]
	}
	return corev1.Container{}
}

func appProtocol(portName string) *string {
	if strings.Contains(portName, "grpc") || strings.Contains(portName, "h2c") {
		return ptr.To(http2)
	}
	return nil
}
