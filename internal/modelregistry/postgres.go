// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// Keys of the Secret of a generated database.
const (
	keyUsername = "username"
	keyPassword = "password"
)

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
	policy := platform.OnlyPort(p.databaseMeta(p.databaseName()), p.heldDatabase.Selector(p.databasePods()), defaultPostgresPort,
		platform.FromPods(p.held.Selector(p.selector())))
	service := platform.DatabaseService(p.databaseMeta(p.databaseName()),
		p.heldDatabase.Selector(map[string]string{labelApp: p.name(), labelName: p.databaseName()}))
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
					SecurityContext:              platform.PodSecurity(p.seen.OpenShift, platform.PostgresGroup),
					Containers:                   []corev1.Container{p.databaseContainer()},
					Volumes: []corev1.Volume{{Name: "postgres-storage", VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(p.registry)}}}},
				},
			},
		},
	}
	p.heldDatabase.Keep(d)
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
		Ports:           []corev1.ContainerPort{{Name: "postgresql", ContainerPort: defaultPostgresPort, Protocol: corev1.ProtocolTCP}},
		VolumeMounts:    []corev1.VolumeMount{{Name: "postgres-storage", MountPath: "/var/lib/pgsql/data"}},
		ReadinessProbe:  check(5),
		LivenessProbe:   check(30, "--live"),
		Resources:       *platform.DatabaseResources(),
		SecurityContext: platform.Unprivileged(),
	}
}
