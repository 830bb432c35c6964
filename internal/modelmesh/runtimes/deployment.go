// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

// Labels of everything that is made for the mesh, as other tools know them.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	controllerName = "modelmesh-controller"
)

// ServiceLabels are those of what belongs to the mesh of a Service.
func ServiceLabels(service string) map[string]string {
	return map[string]string{
		LabelService: service, labelManagedBy: controllerName,
		"app.kubernetes.io/instance": controllerName, "app.kubernetes.io/name": controllerName,
	}
}

// gracePeriod is how long a pod may take to hand its models to others.
const gracePeriod = 90

// Volumes of ours.
const (
	volumeModels  = "models-dir"
	volumeStorage = "storage-config"
	volumeEtcd    = "etcd-config"
	volumeTypes   = "tc-config"
	volumeSockets = "domain-socket"
	volumeTLS     = "tls-certs"
)

func (p *planner) deployment() *appsv1.Deployment {
	labels := ServiceLabels(p.config.InferenceServiceName)
	labels["name"] = p.name()
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.place.Namespace, Name: p.name(), Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelService: p.config.InferenceServiceName, "name": p.name()}},
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxSurge: ptr.To(intstr.FromString("75%")), MaxUnavailable: ptr.To(intstr.FromString("15%")),
				},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					// What finds the pods is not for anybody to change.
					Labels:      over(p.config.RuntimePodLabels, p.spec.Labels, labels),
					Annotations: over(p.scraped(), p.config.RuntimePodAnnotations, p.spec.Annotations),
				},
				Spec: p.pod(),
			},
		},
	}
}

// over puts maps over each other, the later over the earlier.
func over(layers ...map[string]string) map[string]string {
	var out map[string]string
	for _, layer := range layers {
		if len(layer) == 0 {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		maps.Copy(out, layer)
	}
	return out
}

// scraped tells a Prometheus without an operator where the metrics are.
func (p *planner) scraped() map[string]string {
	m := p.config.Metrics
	if !m.Enabled {
		return nil
	}
	return map[string]string{
		"prometheus.io/path": "/metrics", "prometheus.io/port": strconv.Itoa(int(m.Port)), "prometheus.io/scheme": m.Scheme, "prometheus.io/scrape": "true",
	}
}

func (p *planner) pod() corev1.PodSpec {
	return corev1.PodSpec{
		Containers:                    p.containers(),
		Volumes:                       p.volumes(),
		TerminationGracePeriodSeconds: ptr.To[int64](gracePeriod),
		ServiceAccountName:            p.config.ServiceAccountName,
		NodeSelector:                  p.spec.NodeSelector,
		Affinity:                      onKnownMachines(p.spec.Affinity),
		Tolerations:                   p.spec.Tolerations,
		ImagePullSecrets:              p.pullSecrets(),
		HostIPC:                       p.spec.HostIPC,
		SchedulerName:                 p.spec.SchedulerName,
		ResourceClaims:                p.spec.ResourceClaims,
	}
}

// pullSecrets are those of the runtime and of the configuration, each once.
func (p *planner) pullSecrets() []corev1.LocalObjectReference {
	out := slices.Clone(p.spec.ImagePullSecrets)
	for _, s := range p.config.ImagePullSecrets {
		if ref := (corev1.LocalObjectReference{Name: s.Name}); !slices.Contains(out, ref) {
			out = append(out, ref)
		}
	}
	return out
}

// onKnownMachines keeps pods to the kinds of machines that there are images for, beside what the user asks for. A term
// that speaks of them itself is left alone.
func onKnownMachines(user *corev1.Affinity) *corev1.Affinity {
	const arch = corev1.LabelArchStable
	known := corev1.NodeSelectorRequirement{Key: arch, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64", "arm64", "s390x"}}
	out := user.DeepCopy()
	if out == nil {
		out = &corev1.Affinity{}
	}
	if out.NodeAffinity == nil {
		out.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := out.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		if !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return r.Key == arch }) {
			term.MatchExpressions = append(term.MatchExpressions, known)
		}
	}
	out.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	return out
}

// volumes are the user's and ours.
func (p *planner) volumes() []corev1.Volume {
	out := slices.Clone(p.spec.Volumes)
	add := func(name string, source corev1.VolumeSource) {
		out = append(out, corev1.Volume{Name: name, VolumeSource: source})
	}
	secret := func(name string) *corev1.SecretVolumeSource { return &corev1.SecretVolumeSource{SecretName: name} }
	add(volumeModels, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: p.modelSpace()}})
	if p.sockets() != "" {
		add(volumeSockets, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	}
	if p.adapted() || p.pulled() {
		stored := secret(p.config.StorageSecretName)
		stored.Optional = ptr.To(true) // models on claims and on the web need none
		add(volumeStorage, corev1.VolumeSource{Secret: stored})
	}
	for _, claim := range p.place.Claims {
		add(claimVolume(claim, p.spec.Volumes), corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: true}})
	}
	add(volumeTypes, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: volumeTypes}}})
	add(volumeEtcd, corev1.VolumeSource{Secret: secret(p.seen.EtcdSecret)})
	if p.config.TLS.SecretName != "" {
		add(volumeTLS, corev1.VolumeSource{Secret: secret(p.config.TLS.SecretName)})
	}
	return out
}

// claimVolume is the name of a claim's volume: that of the claim, unless it cannot be or is taken.
func claimVolume(claim string, taken []corev1.Volume) string {
	ours := []string{volumeModels, volumeStorage, volumeEtcd, volumeTypes, volumeSockets, volumeTLS}
	if len(validation.IsDNS1123Label(claim)) == 0 && !slices.Contains(ours, claim) &&
		!slices.ContainsFunc(taken, func(v corev1.Volume) bool { return v.Name == claim }) {
		return claim
	}
	sum := sha256.Sum256([]byte(claim))
	return "pvc-" + hex.EncodeToString(sum[:8])
}

// modelSpace is the room for models on disk: half as much again as the runtime may have in memory, or no bound.
func (p *planner) modelSpace() *resource.Quantity {
	var memory int64
	for _, c := range p.spec.Containers {
		memory += c.Resources.Limits.Memory().Value()
	}
	if memory == 0 {
		return nil
	}
	return resource.NewQuantity(memory+memory/2, resource.BinarySI)
}
