// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// database is what runs in the Jobs.
//
//go:embed database.py
var database string

// launch looks for the Python that has MLflow: images may have several.
const launch = `for python in python3 python3.12 python; do
  if "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("mlflow") is None)' 2>/dev/null; then
    exec "$python" -c "$1" "$2"
  fi
done
echo "No Python of the image has MLflow. ` + unchanged + `" | tee "${MIGRATION_TERMINATION_LOG:-/dev/termination-log}"
exit 10
`

// container is the name of the one that works in the Jobs.
const container = "db-migrate"

// forcedAnnotation marks the Jobs of a migration that was forced.
const forcedAnnotation = "mlflow.opendatahub.io/forced"

// Bounds of the Jobs. A preflight only reads, so that whatever takes longer is
// stuck; a migration rewrites tables of any size.
const (
	preflightDeadline = 10 * time.Minute
	migrationDeadline = 4 * time.Hour
	startDeadline     = 10 * time.Minute
	migrationRetries  = 3
	defaultTTL        = 24 * 60 * 60
)

// step is one of the two Jobs.
type step struct {
	name     string // as database.py knows it
	short    string // in the name of the Job
	label    string
	deadline time.Duration
	retries  int32
}

var (
	preflightStep = step{name: "preflight", short: "pf", label: PreflightLabel, deadline: preflightDeadline}
	migrateStep   = step{name: "migrate", short: "mg", label: JobLabel, deadline: migrationDeadline, retries: migrationRetries}
)

// jobName is of one version and one generation, so that a change of either gets
// a Job of its own.
func (s step) jobName(server, version string, generation int64) string {
	short := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(version))
	end := fmt.Sprintf("-%s-%s-g%d", s.short, short, generation)
	const most = 63
	return server[:min(len(server), most-len(end))] + end
}

func (m *machine) job(s step) *batchv1.Job {
	pod := podFor(s, m.server, m.o.Supported)
	pod.Labels[InstanceLabel] = m.o.MLflow.Name
	if s == preflightStep {
		m.beside(&pod.Spec)
	}
	job := &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.server.Namespace, Name: s.jobName(m.server.Name, m.o.Supported, m.o.MLflow.Generation), Labels: maps.Clone(pod.Labels),
		},
		Spec: batchv1.JobSpec{
			BackoffLimit:            ptr.To(s.retries),
			ActiveDeadlineSeconds:   ptr.To(int64(s.deadline.Seconds())),
			TTLSecondsAfterFinished: ptr.To(m.ttl()),
			PodFailurePolicy:        giveUpOnTerminal(),
			Template:                pod,
		},
	}
	if m.forced {
		job.Annotations = map[string]string{forcedAnnotation: "true"}
	}
	return job
}

func (m *machine) ttl() int32 {
	if spec := m.o.MLflow.Spec.Migration; spec != nil && spec.TTLSecondsAfterFinished != nil {
		return *spec.TTLSecondsAfterFinished
	}
	return defaultTTL
}

// giveUpOnTerminal saves the time of retries that cannot help.
func giveUpOnTerminal() *batchv1.PodFailurePolicy {
	codes := slices.Sorted(maps.Keys(terminalCodes))
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action: batchv1.PodFailurePolicyActionFailJob,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			ContainerName: ptr.To(container), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: codes,
		},
	}}}
}

// podFor makes the server's pod one that works on the database and ends.
func podFor(s step, server *appsv1.Deployment, version string) corev1.PodTemplateSpec {
	from := server.Spec.Template.DeepCopy()
	work := serverContainer(from.Spec.Containers)
	work.Name = container
	work.Command = []string{"/bin/sh", "-ec"}
	work.Args = []string{launch, "sh", database, s.name}
	work.Ports, work.Lifecycle = nil, nil
	work.LivenessProbe, work.ReadinessProbe, work.StartupProbe = nil, nil, nil
	work.Resources.Claims = nil
	work.Env = withEnv(work.Env, map[string]string{"MLFLOW_READ_REPLICA_BACKEND_STORE_URI": "", "SUPPORTED_MLFLOW_VERSION": version})
	work.VolumeMounts = slices.DeleteFunc(work.VolumeMounts, func(v corev1.VolumeMount) bool { return unneeded[v.Name] })

	out := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: podLabels(from.Labels, s)}, Spec: from.Spec}
	out.Spec.Containers = []corev1.Container{work}
	out.Spec.InitContainers = slices.DeleteFunc(out.Spec.InitContainers, func(c corev1.Container) bool { return c.Name != "combine-ca-bundles" })
	out.Spec.ResourceClaims = nil
	out.Spec.RestartPolicy = corev1.RestartPolicyNever
	keepMounted(&out.Spec)
	return out
}

func serverContainer(containers []corev1.Container) corev1.Container {
	for _, c := range containers {
		if c.Name == "mlflow" {
			return c
		}
	}
	if len(containers) == 0 {
		return corev1.Container{}
	}
	return containers[0]
}

// unneeded are volumes of the server without which the database can be worked
// on, so that the Jobs do not wait for what they would never read.
var unneeded = map[string]bool{"mlflow-tls": true, "metrics": true, "trace-archival-config": true}

// podLabels leaves out what the server's Service and NetworkPolicy select.
func podLabels(from map[string]string, s step) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, from)
	delete(labels, "app")
	delete(labels, "app.kubernetes.io/instance")
	labels[ComponentLabel] = Component
	labels[s.label] = "true"
	return labels
}

// withEnv sets variables, in the order of their names, in place of what was
// said of them before.
func withEnv(env []corev1.EnvVar, set map[string]string) []corev1.EnvVar {
	out := slices.DeleteFunc(slices.Clone(env), func(e corev1.EnvVar) bool {
		_, ours := set[e.Name]
		return ours || e.Name == "MLFLOW_TRACE_ARCHIVAL_CONFIG"
	})
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, corev1.EnvVar{Name: name, Value: set[name]})
	}
	return out
}

func keepMounted(spec *corev1.PodSpec) {
	mounted := map[string]bool{}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, v := range c.VolumeMounts {
			mounted[v.Name] = true
		}
	}
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return !mounted[v.Name] })
}

// beside sends the preflight to the node of the running server when they share a
// volume that only one node can have.
func (m *machine) beside(spec *corev1.PodSpec) {
	if !m.mountsClaim() || m.sharedByNodes() || !slices.ContainsFunc(m.serverPods(), func(p corev1.Pod) bool { return p.Spec.NodeName != "" }) {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.PodAffinity == nil {
		spec.Affinity.PodAffinity = &corev1.PodAffinity{}
	}
	with := spec.Affinity.PodAffinity
	with.RequiredDuringSchedulingIgnoredDuringExecution = append(with.RequiredDuringSchedulingIgnoredDuringExecution, corev1.PodAffinityTerm{
		LabelSelector: m.server.Spec.Selector.DeepCopy(), TopologyKey: corev1.LabelHostname,
	})
}

func (m *machine) mountsClaim() bool {
	return slices.ContainsFunc(m.server.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
}

func (m *machine) sharedByNodes() bool { return m.claimHas(corev1.ReadWriteMany, corev1.ReadOnlyMany) }

func (m *machine) claimHas(modes ...corev1.PersistentVolumeAccessMode) bool {
	claim := m.o.MLflow.Spec.Storage
	return claim != nil && slices.ContainsFunc(claim.AccessModes, func(a corev1.PersistentVolumeAccessMode) bool { return slices.Contains(modes, a) })
}
