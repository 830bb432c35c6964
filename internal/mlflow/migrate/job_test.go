// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
)

// fullServer has everything that a server may have.
func fullServer() *machine {
	server := plannedServer("mlflow:new")
	pod := &server.Spec.Template
	pod.Annotations = map[string]string{"team": "red"}
	pod.Labels["team"] = "red"
	mount := func(name string) corev1.VolumeMount { return corev1.VolumeMount{Name: name, MountPath: "/" + name} }
	pod.Spec.Containers = []corev1.Container{{Name: "ca-bundle-watcher"}, {
		Name: "mlflow", Image: "mlflow:new", Command: []string{"mlflow"}, Args: []string{"server"},
		Env: []corev1.EnvVar{
			{Name: "MLFLOW_TRACE_ARCHIVAL_CONFIG", Value: "/etc/mlflow/trace-archival.yaml"}, {Name: "MLFLOW_BACKEND_STORE_URI", Value: "postgresql://db"},
			{Name: "MLFLOW_READ_REPLICA_BACKEND_STORE_URI", Value: "postgresql://copy"}, {Name: "SUPPORTED_MLFLOW_VERSION", Value: "1"},
		},
		EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}},
		Ports:   []corev1.ContainerPort{{ContainerPort: 8443}}, ReadinessProbe: &corev1.Probe{}, LivenessProbe: &corev1.Probe{},
		Resources:    corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
		VolumeMounts: []corev1.VolumeMount{mount("tmp"), mount("mlflow-storage"), mount("mlflow-tls"), mount("metrics"), mount("trace-archival-config"), mount("combined-ca-bundle")},
	}}
	pod.Spec.InitContainers = []corev1.Container{{Name: "combine-ca-bundles", VolumeMounts: []corev1.VolumeMount{mount("ca-bundle-0")}}, {Name: "other"}}
	pod.Spec.ServiceAccountName = "mlflow-sa"
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
	for _, name := range []string{"tmp", "mlflow-storage", "mlflow-tls", "metrics", "trace-archival-config", "combined-ca-bundle", "ca-bundle-0"} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name})
	}
	pod.Spec.Volumes[1].PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "mlflow-pvc"}
	o := Observed{Supported: "3.14.0", MLflow: &mlflowv1.MLflow{}, Pods: []corev1.Pod{{Spec: corev1.PodSpec{NodeName: "node"}}}}
	o.MLflow.Name, o.MLflow.Generation = "mlflow", 7
	o.Pods[0].Namespace, o.Pods[0].Labels = "ns", map[string]string{"app": "mlflow"}
	return newMachine(o, server)
}

func TestMigrationJob(t *testing.T) {
	m := fullServer()
	before := m.server.DeepCopy()
	job := m.job(migrateStep)
	if job.Name != "mlflow-mg-3140-g7" || job.Namespace != "ns" {
		t.Errorf("it is %s/%s", job.Namespace, job.Name)
	}
	labels := map[string]string{"component": "mlflow-migration", JobLabel: "true", InstanceLabel: "mlflow", "team": "red"}
	pod := job.Spec.Template
	for _, diff := range []string{cmp.Diff(labels, job.Labels), cmp.Diff(labels, pod.Labels), cmp.Diff(before, m.server)} {
		if diff != "" {
			t.Error(diff)
		}
	}
	if len(pod.Annotations) != 0 || pod.Spec.RestartPolicy != corev1.RestartPolicyNever || pod.Spec.ServiceAccountName != "mlflow-sa" ||
		len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) != 1 || len(pod.Spec.ResourceClaims) != 0 || pod.Spec.Affinity != nil {
		t.Errorf("the pod is %+v", pod.Spec)
	}
	work := pod.Spec.Containers[0]
	if work.Name != "db-migrate" || work.Image != "mlflow:new" || work.ReadinessProbe != nil || work.Ports != nil || len(work.EnvFrom) != 1 ||
		len(work.Resources.Claims) != 0 || work.Args[3] != "migrate" {
		t.Errorf("the container is %+v", work)
	}
	if diff := cmp.Diff([]corev1.EnvVar{
		{Name: "MLFLOW_BACKEND_STORE_URI", Value: "postgresql://db"}, {Name: "MLFLOW_READ_REPLICA_BACKEND_STORE_URI"}, {Name: "SUPPORTED_MLFLOW_VERSION", Value: "3.14.0"},
	}, work.Env); diff != "" {
		t.Error(diff)
	}
	var volumes []string
	for _, v := range pod.Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	if diff := cmp.Diff([]string{"tmp", "mlflow-storage", "combined-ca-bundle", "ca-bundle-0"}, volumes); diff != "" {
		t.Error(diff)
	}
	if *job.Spec.BackoffLimit != 3 || *job.Spec.TTLSecondsAfterFinished != 86400 || *job.Spec.ActiveDeadlineSeconds != 14400 {
		t.Errorf("the Job is %+v", job.Spec)
	}
	m.o.MLflow.Spec.Migration = &mlflowv1.Migration{TTLSecondsAfterFinished: ptr.To[int32](3600)}
	if ttl := *m.job(migrateStep).Spec.TTLSecondsAfterFinished; ttl != 3600 {
		t.Errorf("it is kept for %d seconds", ttl)
	}
}

func TestPreflightJob(t *testing.T) {
	m := fullServer()
	job := m.job(preflightStep)
	if job.Name != "mlflow-pf-3140-g7" || job.Labels[JobLabel] != "" || job.Labels[PreflightLabel] != "true" || *job.Spec.BackoffLimit != 0 ||
		*job.Spec.ActiveDeadlineSeconds != 600 || job.Spec.Template.Spec.Containers[0].Args[3] != "preflight" {
		t.Errorf("the Job is %+v", job)
	}
	near := func() bool {
		a := m.job(preflightStep).Spec.Template.Spec.Affinity
		return a != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) == 1
	}
	if !near() {
		t.Error("a volume of one node needs the server's node")
	}
	m.o.MLflow.Spec.Storage = &corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}}
	if near() {
		t.Error("a volume of many nodes does not")
	}
	m.o.MLflow.Spec.Storage, m.o.Pods[0].Spec.NodeName = nil, ""
	if near() {
		t.Error("nor does a server that is nowhere yet")
	}
}

// TestVolumeOfOnePod: no second pod can have it, so that the look is part of the
// migration itself.
func TestVolumeOfOnePod(t *testing.T) {
	s := newSim(t, "3.13.0")
	s.o.MLflow.Spec.Storage = &corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}}
	s.migrations = []ending{{code: 14, message: "newer. " + unchanged}}
	s.until("MigrationFailed")
	s.rest()
	s.wantJobs(mg1)
	s.wantServer("mlflow:old", 2)
}

func TestScriptSaysWhatIsUnderstood(t *testing.T) {
	for _, sentence := range []string{unchanged, maybeChanged, nothingToMigrate} {
		if !strings.Contains(database, `"`+sentence) {
			t.Errorf("database.py does not say %q", sentence)
		}
	}
}
