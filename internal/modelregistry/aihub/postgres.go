// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// Keys of the Secret of the database.
const (
	keyDatabase = "database-name"
	keyUser     = "database-user"
	keyPassword = "database-password"
)

func (p *planner) databaseMeta() metav1.ObjectMeta {
	meta := p.meta(databaseName)
	meta.Labels = labelsOf(databaseName)
	return meta
}

// database is what images of others keep the catalog in. All of it is read from the sources again, so that it may go with its
// pod. Our own server needs none, but that of an earlier operator does until ours has taken over.
func (p *planner) database() []engine.Child {
	own := p.seen.Settings.own()
	switch {
	case p.seen.Settings.SkipDatabase, own && p.seen.Database.Live() == nil:
		return nil
	case !own, p.held.On():
		return p.databaseChildren()
	case rolledOut(p.seen.Server):
		return nil
	}
	var out []engine.Child
	for _, c := range p.databaseChildren() {
		out = append(out, engine.Child{Object: c.Object, Unmanaged: true})
	}
	return out
}

func (p *planner) databaseChildren() []engine.Child {
	secret := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: p.databaseMeta(), Type: corev1.SecretTypeOpaque}
	if p.seen.NewPassword != "" {
		secret.Data = map[string][]byte{
			keyDatabase: []byte(p.seen.Settings.PostgresDatabase), keyUser: []byte(p.seen.Settings.PostgresUser), keyPassword: []byte(p.seen.NewPassword),
		}
	}
	pods := p.heldDatabase.Selector(podsOf(databaseName))
	out := []engine.Child{{Object: secret, Stage: stageNeeds, CreateOnly: true}}
	out = append(out, at(stageNeeds,
		platform.DatabaseService(p.databaseMeta(), pods),
		platform.OnlyPort(p.databaseMeta(), pods, platform.PortPostgres, platform.FromPods(p.held.Selector(podsOf(name)))))...)
	return append(out, workload(p.databaseDeployment(), p.seen.Database))
}

func (p *planner) databaseDeployment() *appsv1.Deployment {
	limit := resource.MustParse("5Gi")
	if d := p.catalog.Spec.Database; d != nil && d.Volume != nil && d.Volume.SizeLimit != nil {
		limit = *d.Volume.SizeLimit
	}
	labels := podsOf(databaseName)
	labels["sidecar.istio.io/inject"] = "false"
	d := &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: p.databaseMeta(),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: podsOf(databaseName)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: ptr.To(false),
					SecurityContext:              platform.PodSecurity(p.seen.OpenShift, platform.PostgresGroup),
					Containers:                   []corev1.Container{p.databaseContainer()},
					Volumes: []corev1.Volume{{Name: "postgres-data", VolumeSource: corev1.VolumeSource{
						EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}}}},
				},
			},
		},
	}
	p.heldDatabase.Keep(d)
	return d
}

// fromSecret is a variable whose value is in the Secret of the database.
func fromSecret(variable, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: databaseName}, Key: key}}}
}

// databaseEnv is how a server finds its database.
func (p *planner) databaseEnv() []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "PGHOST", Value: databaseName}, fromSecret("PGDATABASE", keyDatabase), fromSecret("PGUSER", keyUser), fromSecret("PGPASSWORD", keyPassword),
	}
}

func (p *planner) databaseContainer() corev1.Container {
	check := func(delay, period int32, script string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:        corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/bash", "-c", script}}},
			InitialDelaySeconds: delay, TimeoutSeconds: period, PeriodSeconds: 10, FailureThreshold: 3,
		}
	}
	c := corev1.Container{
		Name: "postgresql", Image: p.seen.Settings.PostgresImage,
		Env: []corev1.EnvVar{
			fromSecret("POSTGRESQL_DATABASE", keyDatabase), fromSecret("POSTGRESQL_USER", keyUser), fromSecret("POSTGRESQL_PASSWORD", keyPassword),
		},
		Ports:           []corev1.ContainerPort{{Name: "postgresql", ContainerPort: platform.PortPostgres, Protocol: corev1.ProtocolTCP}},
		VolumeMounts:    []corev1.VolumeMount{{Name: "postgres-data", MountPath: "/var/lib/pgsql/data"}},
		LivenessProbe:   check(30, 2, `exec pg_isready -h 127.0.0.1 -p 5432 -q`),
		ReadinessProbe:  check(10, 5, `exec psql -w -U "${POSTGRESQL_USER}" -d "${POSTGRESQL_DATABASE}" -c 'SELECT 1'`),
		SecurityContext: platform.Unprivileged(),
		Resources:       *platform.DatabaseResources(),
	}
	if r := p.catalog.Spec.Resources; r != nil && r.Postgres != nil && len(r.Postgres.Requests)+len(r.Postgres.Limits) > 0 {
		c.Resources = *r.Postgres.DeepCopy()
	}
	return c
}
