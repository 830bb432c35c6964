// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// configDir is where the processor finds what it does.
const configDir = "/etc/modelplane/payload"

// The files of the two stages.
const (
	configFile    = "config.yaml"
	preConfigFile = "pre-config.yaml"
)

// stage is a configuration with these plugins for requests and answers.
func stage(request, response []string) string {
	var b strings.Builder
	b.WriteString("apiVersion: llm-d.ai/v1alpha1\nkind: PayloadProcessorConfig\nplugins:\n")
	seen := map[string]bool{}
	for _, name := range append(append([]string{}, request...), response...) {
		if seen[name] {
			continue
		}
		seen[name] = true
		b.WriteString("- type: " + name + "\n")
		if name == "body-field-to-header" {
			b.WriteString("  parameters: {fieldName: model, headerName: X-Gateway-Model-Name}\n")
		}
	}
	b.WriteString("profiles:\n- name: default\n  plugins:\n")
	list := func(which string, names []string) {
		if len(names) == 0 {
			b.WriteString("    " + which + ": []\n")
			return
		}
		b.WriteString("    " + which + ":\n")
		for _, name := range names {
			b.WriteString("    - pluginRef: " + name + "\n")
		}
	}
	list("request", request)
	list("response", response)
	return b.String()
}

// plugins are what the processor does. Where Kuadrant checks requests, the model must be known before it does, and credentials
// are taken off after it did: two stages. Where the processor checks them itself, one is enough. A stream is told to count its
// tokens once it is known who answers it.
func (p *planner) plugins() map[string]string {
	after := []string{"maas-headers-guard", "model-provider-resolver", "stream-usage-enforcer", "api-translation", "apikey-injection"}
	if p.builtIn {
		return map[string]string{configFile: stage(append([]string{"body-field-to-header", "maas-enforcement"}, after...), []string{"api-translation"})}
	}
	return map[string]string{
		preConfigFile: stage([]string{"body-field-to-header", "model-provider-resolver"}, nil),
		configFile:    stage(after, []string{"api-translation"}),
	}
}

// apiTrust is where a processor that checks keys finds whom it must trust to be maas-api, which has an authority of its own.
const apiTrust = "/etc/modelplane/maas-api"

// processors plans the payload processor and what it needs.
func (p *planner) processors() {
	meta := p.edge(processorName, processorName)
	p.add(0,
		&corev1.ServiceAccount{ObjectMeta: meta},
		&corev1.ConfigMap{ObjectMeta: p.edge(processorName, pluginsName), Data: p.plugins()},
		p.certificate(meta, p.seen.Processor),
		p.trusted(meta, p.seen.Processor),
	)
	if p.builtIn {
		p.add(0, p.trusted(p.edge(processorName, processorName+"-api"), p.seen.API))
	}
	p.add(0, p.may(meta, []rbacv1.PolicyRule{
		{APIGroups: []string{"inference.opendatahub.io"}, Resources: []string{"externalmodels", "externalproviders"}, Verbs: read},
		{APIGroups: []string{"maas.opendatahub.io"}, Resources: []string{"externalmodels", "maasmodelrefs", "maassubscriptions", "maasauthpolicies", "maastenantconfigs"}, Verbs: read},
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
	})...)
	p.add(0, p.mayRead(meta, p.config.Namespace)...)
	p.processor(processorName, configFile, "50m", "64Mi", "500m", "256Mi")
	if !p.builtIn {
		p.processor(preProcessorName, preConfigFile, "25m", "32Mi", "200m", "128Mi")
	}
	p.scaler()
}

// processor plans one stage.
func (p *planner) processor(app, file, cpu, memory, maxCPU, maxMemory string) {
	env := []corev1.EnvVar{
		{Name: "GATEWAY_NAME", Value: p.seen.Gateway.Key.Name}, {Name: "GATEWAY_NAMESPACE", Value: p.seen.Gateway.Key.Namespace},
		{Name: "TENANT_NAMESPACE", Value: p.config.Namespace}, {Name: "TENANT_NAME", Value: p.seen.Tenant}, {Name: "NAMESPACE", Value: p.InfraNamespace},
		{Name: "TLS_CERT", Value: certificateDir + "/tls.crt"}, {Name: "TLS_KEY", Value: certificateDir + "/tls.key"},
	}
	args := []string{"payload-processing", "--config-file=" + configDir + "/" + file}
	if p.builtIn {
		args = append(args, "--maas-api-ca-file="+apiTrust+"/"+caKey)
	}
	c := p.container(app, args, env,
		map[string]int32{"grpc": processorPort, "health": processorHealthPort, "metrics": processorMetricsPort}, cpu, memory, maxCPU, maxMemory)
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "config", MountPath: configDir, ReadOnly: true})
	c.ReadinessProbe, c.StartupProbe = probe("/readyz", "health", corev1.URISchemeHTTP)
	from := func(name, configMap string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}}}
	}
	volumes := []corev1.Volume{from("config", p.name(pluginsName))}
	if p.builtIn {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "maas-api", MountPath: apiTrust, ReadOnly: true})
		volumes = append(volumes, from("maas-api", caName(p.name(processorName+"-api"))))
	}
	d := p.deployment(p.edge(app, app), app, c, p.processorReplicas(app), volumes)
	d.Annotations = map[string]string{naming.AnnotationEnforcement: string(tenancy.Kuadrant)}
	if p.builtIn {
		d.Annotations[naming.AnnotationEnforcement] = string(tenancy.BuiltIn)
	}
	p.add(1, d)
	if app == processorName && p.autoscaled() {
		p.children[len(p.children)-1].Initial = []string{"spec.replicas"}
	}
	p.add(1, &corev1.Service{ObjectMeta: p.edge(app, app), Spec: corev1.ServiceSpec{Selector: p.selector(app),
		Ports: []corev1.ServicePort{servicePort("grpc", processorPort), servicePort("metrics", processorMetricsPort)}}}, p.processorNetwork(app))
	p.verified(p.GatewayNamespace, app, app, processorPort, p.seen.Processor)
}

func (p *planner) autoscaled() bool {
	s := p.config.Spec.PayloadProcessing
	return s != nil && s.Autoscaling != nil
}

func (p *planner) processorReplicas(app string) int32 {
	if app != processorName {
		return 1
	}
	if s := p.config.Spec.PayloadProcessing; s != nil && s.Replicas != nil {
		return *s.Replicas
	}
	return p.replicas(AnnotationProcessorReplicas, 1)
}

// processorNetwork lets the gateway's proxies ask the processor, and monitoring read metrics.
func (p *planner) processorNetwork(app string) client.Object {
	var callers []networkingv1.NetworkPolicyPeer
	for _, at := range p.seen.all() {
		callers = append(callers,
			networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"gateway.networking.k8s.io/gateway-name": at.Key.Name}}},
			networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"gateway.envoyproxy.io/owning-gateway-name": at.Key.Name}}})
	}
	return &networkingv1.NetworkPolicy{ObjectMeta: p.edge(app, app), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: p.selector(app)}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{
			{Ports: tcp(processorPort), From: callers},
			{Ports: tcp(processorMetricsPort), From: []networkingv1.NetworkPolicyPeer{monitors()}},
		},
	}}
}

// scaler lets the processor grow with its load, where that is asked for.
func (p *planner) scaler() {
	if !p.autoscaled() {
		return
	}
	a := p.config.Spec.PayloadProcessing.Autoscaling
	metric := func(name corev1.ResourceName, percent int32) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: name, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent}}}
	}
	least := p.processorReplicas(processorName)
	p.add(1, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: p.edge(processorName, processorName), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: p.name(processorName)},
		MinReplicas:    &least, MaxReplicas: max(least, ptr.Deref(a.MaxReplicas, 10)),
		Metrics: []autoscalingv2.MetricSpec{metric(corev1.ResourceCPU, ptr.Deref(a.TargetCPUUtilization, 70)), metric(corev1.ResourceMemory, ptr.Deref(a.TargetMemoryUtilization, 80))},
		Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](300),
				Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PercentScalingPolicy, Value: 25, PeriodSeconds: 60}}},
			ScaleUp: &autoscalingv2.HPAScalingRules{SelectPolicy: ptr.To(autoscalingv2.MaxChangePolicySelect),
				Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}, {Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}}},
		},
	}})
}
