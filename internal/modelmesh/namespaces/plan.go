// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelmesh/runtimes"
	"github.com/modelplane/modelplane/internal/modelmesh/settings"
)

// monitorName is the name of the ServiceMonitor.
const monitorName = "modelmesh-metrics-monitor"

// Plan implements engine.Kind.
func (k Kind) Plan(ns *corev1.Namespace, seen Seen) engine.Plan {
	if !seen.Enabled {
		return engine.Plan{}
	}
	if p := seen.Problem(); p != nil {
		return engine.Plan{KeepChildren: true, Problem: p}
	}
	p := &planner{namespace: ns.Name, seen: &seen}
	_, labelled := ns.Labels[settings.LabelEnabled]
	if labelled || len(seen.Runtimes) > 0 { // nobody has asked the manager's own namespace for it
		p.reached()
	}
	if len(seen.Runtimes) > 0 {
		p.add(engine.Child{Object: p.constraints(), Adopt: true})
		p.connect()
	}
	return p.plan
}

type planner struct {
	namespace string
	seen      *Seen
	plan      engine.Plan
}

func (p *planner) add(c engine.Child) { p.plan.Children = append(p.plan.Children, c) }

func (p *planner) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.namespace, Name: name, Labels: runtimes.ServiceLabels(p.seen.InferenceServiceName)}
}

// reached plans how models are reached, and how their metrics are.
func (p *planner) reached() {
	service := p.service()
	if live := p.seen.Service; live == nil || live.Spec.ClusterIP == "" ||
		(live.Spec.ClusterIP == corev1.ClusterIPNone) == (service.Spec.ClusterIP == corev1.ClusterIPNone) {
		p.add(engine.Child{Object: service, Replace: true})
	} // else it goes and comes back: whether a Service has an address cannot be changed
	for i := range p.seen.Leftovers {
		left := &corev1.Service{}
		left.Namespace, left.Name, left.UID = p.namespace, p.seen.Leftovers[i].Name, p.seen.Leftovers[i].UID
		p.add(engine.Child{Object: left, Delete: true})
	}
	m := p.seen.Metrics
	if m.Enabled && !m.DisablePrometheusOperatorSupport && p.seen.Monitors {
		p.add(engine.Child{Object: p.monitor(), Adopt: true, Stage: 1})
	}
}

func (p *planner) service() *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: p.meta(p.seen.InferenceServiceName),
		Spec:       corev1.ServiceSpec{Selector: map[string]string{runtimes.LabelService: p.seen.InferenceServiceName}},
	}
	port := func(name string, number int32) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Port: number, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString(name)})
	}
	port("grpc", p.seen.InferenceServicePort)
	if p.seen.RESTProxy.Enabled {
		port("http", p.seen.RESTProxy.Port)
	}
	if p.seen.Metrics.Enabled {
		port("prometheus", p.seen.Metrics.Port)
	}
	if p.seen.HeadlessService {
		s.Spec.ClusterIP = corev1.ClusterIPNone
	}
	return s
}

// monitor has the metrics of all pods fetched: those of the mesh through the Service, those of what stands around it at the
// pods themselves. The mesh makes its certificate itself, so that there is nothing to check it with.
func (p *planner) monitor() *unstructured.Unstructured {
	labels := map[string]any{}
	for key, value := range runtimes.ServiceLabels(p.seen.InferenceServiceName) {
		labels[key] = value
	}
	const often = "30s"
	endpoints := []any{map[string]any{
		"port": "prometheus", "interval": often, "scheme": p.seen.Metrics.Scheme, "tlsConfig": map[string]any{"insecureSkipVerify": true},
	}}
	around := func(port string) {
		endpoints = append(endpoints, map[string]any{"targetPort": port, "interval": often})
	}
	if p.seen.StorageHelperImage.Ours() {
		around(runtimes.PortPullerMetrics)
	}
	if p.seen.RESTProxy.Enabled && p.seen.RESTProxy.Image.Ours() {
		around(runtimes.PortProxyMetrics)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": p.namespace, "name": monitorName, "labels": labels},
		"spec": map[string]any{
			"selector":          map[string]any{"matchLabels": map[string]any{runtimes.LabelService: p.seen.InferenceServiceName}},
			"namespaceSelector": map[string]any{"matchNames": []any{p.namespace}},
			"endpoints":         endpoints,
		},
	}}
	u.SetGroupVersionKind(serviceMonitor)
	return u
}
