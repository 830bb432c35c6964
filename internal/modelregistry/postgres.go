// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/engine"
)

// Keys of the Secret of a generated database.
const (
	keyUsername = "username"
	keyPassword = "password"
)

// postgresGroup owns the volume of a generated database, where the platform does not choose a group itself.
const postgresGroup = 26

func (p *planner) databaseName() string { return p.name() + postgresSuffix }

// databaseLabels are those of everything that belongs to a generated database.
func (p *planner) databaseLabels() map[string]string {
	out := p.labels(p.databaseName())
	out[labelApp], out[labelComponent], out[labelName] = p.databaseName(), databaseComponent, p.databaseName()
	out["app.kubernetes.io/component"] = "database"
	return out
}

func (p *planner) databaseMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.registry.Namespace, Name: name, Labels: p.databaseLabels()}
}

// databasePods are the labels of its pods.
func (p *planner) databasePods() map[string]string {
	return map[string]string{labelApp: p.name(), labelComponent: component, labelName: p.databaseName()}
}

// generated is the database that runs for this registry, but for its data.
func (p *planner) generated() []engine.Child {
	if !p.database.generated {
		return nil
	}
	port := networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(defaultPostgresPort))}
	policy := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: p.databaseMeta(p.databaseName()),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: p.heldDatabase.selector(p.databasePods())},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				Ports: []networkingv1.NetworkPolicyPort{port},
				From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: p.held.selector(p.selector())}}},
			}},
		},
	}
	service := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: p.databaseMeta(p.databaseName()),
		Spec: corev1.ServiceSpec{
			Selector: p.heldDatabase.selector(map[string]string{labelApp: p.name(), labelName: p.databaseName()}),
			Ports:    []corev1.ServicePort{{Name: "postgresql", Port: defaultPostgresPort, TargetPort: intstr.FromInt32(defaultPostgresPort), Protocol: corev1.ProtocolTCP}},
		},
	}
	return append(at(stageNeeds, service, policy), at(stageServer, p.databaseDeployment())...)
}

func (p *planner) databaseDeployment() *appsv1.Deployment {
	annotations := map[string]string{}
	if p.seen.Inputs.Password != "" {
		annotations[annotationInputs] = p.seen.Inputs.Password
	}
	d := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: p.databaseMeta(p.databaseName()),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: p.databasePods()},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: p.databasePods(), Annotations: annotations},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: ptr.To(false),
					SecurityContext:              p.podSecurity(postgresGroup),
					Containers:                   []corev1.Container{p.databaseContainer()},
					Volumes: []corev1.Volume{{Name: "postgres-storage", VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(p.registry)}}}},
				},
			},
		},
	}
	p.heldDatabase.keep(d)
	return d
}

// databaseContainer runs an image that takes its settings from POSTGRESQL_ variables, and sets the password anew whenever
// it starts.
func (p *planner) databaseContainer() corev1.Container {
	credentials := func(key string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: p.name() + credentialsSuffix}, Key: key}}
	}
	check := func(delay int32, more ...string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:        corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: append([]string{"/usr/libexec/check-container"}, more...)}},
			InitialDelaySeconds: delay, PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3,
		}
	}
	return corev1.Container{
		Name:  "postgres",
		Image: cmp.Or(p.spec.Postgres.Image, p.seen.Settings.PostgresImage),
		Env: []corev1.EnvVar{
			{Name: "POSTGRESQL_DATABASE", Value: generatedDatabase},
			{Name: "POSTGRESQL_USER", ValueFrom: credentials(keyUsername)},
			{Name: "POSTGRESQL_PASSWORD", ValueFrom: credentials(keyPassword)},
		},
		Ports:          []corev1.ContainerPort{{Name: "postgresql", ContainerPort: defaultPostgresPort, Protocol: corev1.ProtocolTCP}},
		VolumeMounts:   []corev1.VolumeMount{{Name: "postgres-storage", MountPath: "/var/lib/pgsql/data"}},
		ReadinessProbe: check(5),
		LivenessProbe:  check(30, "--live"),
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("512Mi")},
		},
		SecurityContext: unprivileged(),
	}
}
