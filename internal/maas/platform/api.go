// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"cmp"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/maas/naming"
)

// certificates are mounted here.
const certificateDir = "/etc/modelplane/tls"

// certificateName is the Secret with the certificate of a service.
func certificateName(service string) string { return service + "-serving-cert" }

// caName is the object with what others must trust of a service.
func caName(service string) string { return service + "-ca" }

// api plans maas-api and what it needs.
func (p *planner) api() {
	p.add(0,
		&corev1.ServiceAccount{ObjectMeta: p.infra(apiName, apiName)},
		p.certificate(p.infra(apiName, apiName), p.seen.API),
		p.trusted(p.infra(apiName, apiName), p.seen.API),
	)
	p.passKey()
	p.add(0, p.may(p.infra(apiName, apiName), []rbacv1.PolicyRule{
		{APIGroups: []string{"maas.opendatahub.io"}, Resources: []string{"maasmodelrefs", "maassubscriptions", "maasauthpolicies", "aitenants"}, Verbs: read},
		{APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"gateways"}, Verbs: read},
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	})...)
	p.add(1, p.apiDeployment(), p.apiService(), p.apiNetwork(), p.cleanUp())
	p.passes()
}

var read = []string{"get", "list", "watch"}

// certificate is the Secret that a server proves its name with.
func (p *planner) certificate(meta metav1.ObjectMeta, c Certificate) client.Object {
	meta.Name = certificateName(meta.Name)
	return &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		caKey: c.Pair.Roots, corev1.TLSCertKey: c.Pair.Certificate, corev1.TLSPrivateKeyKey: c.Pair.Key}}
}

// trusted is what clients of a server must trust, for gateways that read it from a ConfigMap.
func (p *planner) trusted(meta metav1.ObjectMeta, c Certificate) client.Object {
	meta.Name = caName(meta.Name)
	return &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{caKey: string(c.Pair.Roots)}}
}

// mayRead lets the account of a service read Secrets of one namespace, and of no other.
func (p *planner) mayRead(meta metav1.ObjectMeta, namespace string) []client.Object {
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: meta.Name}
	role := metav1.ObjectMeta{Namespace: namespace, Name: meta.Name + "-secrets", Labels: meta.Labels}
	return []client.Object{
		&rbacv1.Role{ObjectMeta: role, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: read}}},
		&rbacv1.RoleBinding{ObjectMeta: role, Subjects: []rbacv1.Subject{account},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}},
	}
}

// may lets the account of a service do something in the whole cluster.
func (p *planner) may(meta metav1.ObjectMeta, rules []rbacv1.PolicyRule) []client.Object {
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: meta.Name}
	role := metav1.ObjectMeta{Name: meta.Name, Labels: meta.Labels}
	if meta.Labels["app.kubernetes.io/name"] == processorName {
		role.Name = p.name(processorName + "-reader")
	}
	return []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: role, Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: role, Subjects: []rbacv1.Subject{account},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}},
	}
}

func (p *planner) apiDeployment() client.Object {
	days := int32(90)
	if k := p.config.Spec.APIKeys; k != nil && k.MaxExpirationDays != nil {
		days = *k.MaxExpirationDays
	}
	env := []corev1.EnvVar{
		{Name: "NAMESPACE", Value: p.InfraNamespace},
		{Name: "GATEWAY_NAME", Value: p.seen.Gateway.Key.Name},
		{Name: "GATEWAY_NAMESPACE", Value: p.seen.Gateway.Key.Namespace},
		{Name: "MAAS_SUBSCRIPTION_NAMESPACE", Value: p.config.Namespace},
		{Name: "AITENANT_NAMESPACE", Value: p.TenantNamespace},
		{Name: "API_KEY_MAX_EXPIRATION_DAYS", Value: strconv.Itoa(int(days))},
		{Name: "TENANT_NAME", Value: p.seen.Tenant},
		{Name: "SECURE", Value: "true"},
		{Name: "TLS_CERT", Value: certificateDir + "/tls.crt"},
		{Name: "TLS_KEY", Value: certificateDir + "/tls.key"},
		{Name: "METRICS_PORT", Value: strconv.Itoa(apiMetricsPort)},
		{Name: "INTERNAL_ACCOUNTS", Value: "system:serviceaccount:" + p.GatewayNamespace + ":" + p.name(processorName)},
		database(),
	}
	c := p.container(apiName, []string{"maas-api"}, env, map[string]int32{"https": apiPort, "internal": internalPort, "metrics": apiMetricsPort}, "50m", "64Mi", "200m", "128Mi")
	c.ReadinessProbe, c.StartupProbe = probe("/health", "https", corev1.URISchemeHTTPS)
	volume := p.mountsPassKey(&c)
	return p.deployment(p.infra(apiName, apiName), apiName, c, p.replicas(AnnotationAPIReplicas, 1), []corev1.Volume{volume})
}

// probe asks a server whether it knows all that it must to answer: often while it starts, and then now and again.
func probe(path, port string, scheme corev1.URIScheme) (readiness, startup *corev1.Probe) {
	every := func(period int32) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: period, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(port), Scheme: scheme}}}
	}
	readiness, startup = every(5), every(1)
	startup.FailureThreshold = 120
	return readiness, startup
}

// database gives the address of the database to a program, and to nobody else.
func database() corev1.EnvVar {
	return corev1.EnvVar{Name: databaseKey, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: databaseSecret}, Key: databaseKey}}}
}

// container is one of our own programs.
func (p *planner) container(name string, args []string, env []corev1.EnvVar, ports map[string]int32, cpu, memory, maxCPU, maxMemory string) corev1.Container {
	c := corev1.Container{
		Name: name, Image: p.Image, Args: args, Env: env,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(maxCPU), corev1.ResourceMemory: resource.MustParse(maxMemory)},
		},
		VolumeMounts:    []corev1.VolumeMount{{Name: "tls", MountPath: certificateDir, ReadOnly: true}},
		SecurityContext: unprivileged(),
	}
	for _, port := range []string{"https", "internal", "grpc", "health", "metrics"} {
		if n := ports[port]; n > 0 {
			c.Ports = append(c.Ports, corev1.ContainerPort{Name: port, ContainerPort: n, Protocol: corev1.ProtocolTCP})
		}
	}
	return c
}

func unprivileged() *corev1.SecurityContext {
	return &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
}

func podSecurity() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
}

// deployment runs a container with its certificate. A nil number of pods is an autoscaler's to choose. Addresses of Services are kept
// out of the environment: that of the manager's metrics would be taken for a flag.
func (p *planner) deployment(meta metav1.ObjectMeta, app string, c corev1.Container, replicas int32, volumes []corev1.Volume) *appsv1.Deployment {
	labels := p.labels(app)
	for key, value := range p.selector(app) {
		labels[key] = value
	}
	volumes = append([]corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: certificateName(p.name(app))}}}}, volumes...)
	if app == preProcessorName {
		volumes[0].Secret.SecretName = certificateName(p.name(processorName))
	}
	account := p.name(app)
	if app == preProcessorName {
		account = p.name(processorName)
	}
	return &appsv1.Deployment{
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: p.selector(app)},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{ServiceAccountName: account, EnableServiceLinks: ptr.To(false), SecurityContext: podSecurity(), Containers: []corev1.Container{c}, Volumes: volumes}},
		},
	}
}

func servicePort(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, TargetPort: intstr.FromString(name), Protocol: corev1.ProtocolTCP}
}

func (p *planner) apiService() client.Object {
	return &corev1.Service{ObjectMeta: p.infra(apiName, apiName), Spec: corev1.ServiceSpec{
		Selector: p.selector(apiName),
		Ports:    []corev1.ServicePort{servicePort("https", apiPort), servicePort("internal", internalPort), servicePort("metrics", apiMetricsPort)},
	}}
}

// apiNetwork lets gateways ask what people may ask, those who check requests ask the rest, and monitoring read metrics.
func (p *planner) apiNetwork() client.Object {
	callers := []networkingv1.NetworkPolicyPeer{inNamespaces(p.GatewayNamespace, p.seen.Gateway.Key.Namespace)}
	for _, at := range p.seen.all() {
		callers = append(callers, networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"gateway.envoyproxy.io/owning-gateway-name": at.Key.Name}}})
	}
	checks := inNamespaces(p.GatewayNamespace, cmp.Or(p.seen.Passes.Home, "kuadrant-system"), "kuadrant-system", "openshift-operators", "rh-connectivity-link")
	return &networkingv1.NetworkPolicy{ObjectMeta: p.infra(apiName, apiName), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: p.selector(apiName)}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{
			{Ports: tcp(apiPort), From: callers},
			{Ports: tcp(internalPort), From: []networkingv1.NetworkPolicyPeer{checks}},
			{Ports: tcp(apiMetricsPort), From: []networkingv1.NetworkPolicyPeer{monitors()}},
		},
	}}
}

func tcp(ports ...int) []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort
	for _, n := range ports {
		out = append(out, networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(int32(n)))}) //nolint:gosec // a constant
	}
	return out
}

func inNamespaces(names ...string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: distinct(names)}}}}
}

func distinct(names []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, n := range names {
		if !seen[n] {
			out = append(out, n)
		}
		seen[n] = true
	}
	return out
}

// monitors are the namespaces in which those run who read metrics.
func monitors() networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{"monitoring", "openshift-monitoring", "openshift-user-workload-monitoring", "prometheus"}}}}}
}

// cleanUp removes expired keys that were made for a moment, in the database itself: nobody else can ask for it.
func (p *planner) cleanUp() client.Object {
	const deadline = 60
	c := p.container("clean-up", []string{"maas-keys", "clean-up", "--tenant", p.seen.Tenant}, []corev1.EnvVar{database()}, nil, "10m", "32Mi", "100m", "64Mi")
	c.VolumeMounts = nil
	meta := p.infra(apiName, "maas-api-key-cleanup")
	meta.Labels = p.labels("maas-api-key-cleanup")
	pod := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false), SecurityContext: podSecurity(), Containers: []corev1.Container{c}}
	return &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
		Schedule: "*/15 * * * *", ConcurrencyPolicy: batchv1.ForbidConcurrent,
		JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{ActiveDeadlineSeconds: ptr.To[int64](deadline), BackoffLimit: ptr.To[int32](1),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/name": "maas-api-key-cleanup", naming.LabelTenantInstance: p.seen.Tenant}}, Spec: pod}}},
	}}
}
