// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/kube/cause"
)

// TrimDeployment keeps of a live Deployment what tells how far it is, and with which image its pods fetch models, where
// the template says that. All controllers that make Deployments share what is kept of them, so they all use this.
func TrimDeployment(obj client.Object) {
	d, ok := obj.(*appsv1.Deployment)
	if !ok {
		return
	}
	kept := appsv1.DeploymentSpec{Replicas: d.Spec.Replicas, Paused: d.Spec.Paused}
	for _, c := range d.Spec.Template.Spec.InitContainers {
		if c.Name == downloader {
			kept.Template.Spec.InitContainers = []corev1.Container{{Name: c.Name, Image: c.Image, Command: c.Command}}
		}
	}
	if _, router := d.Labels[ofGraph]; router {
		for _, c := range d.Spec.Template.Spec.Containers {
			kept.Template.Spec.Containers = append(kept.Template.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image, Command: c.Command})
		}
	}
	d.Spec = kept
}

// downloader is the init container that fetches models, and ofGraph the label of routers of graphs: what runs there is
// compared with what would be made now.
const (
	downloader = "storage-initializer"
	ofGraph    = "serving.kserve.io/inferencegraph"
)

// TrimService keeps of a live Service what tells whether it has to be made anew, and what of its selector is ours alone.
func TrimService(obj client.Object) {
	s, ok := obj.(*corev1.Service)
	if !ok {
		return
	}
	kept := corev1.ServiceSpec{ClusterIP: s.Spec.ClusterIP}
	for key, value := range s.Spec.Selector {
		if strings.HasPrefix(key, "modelplane.dev/") {
			kept.Selector = map[string]string{key: value}
		}
	}
	s.Spec, s.Status = kept, corev1.ServiceStatus{}
}

// AnnotationIgnoredSecrets, on a pod, names the Secrets of its service account in which no credentials were found. Whoever
// makes the pod ready for its model has read them; nobody else needs to.
const AnnotationIgnoredSecrets = "modelplane.dev/ignored-secrets"

// TrimPod keeps of a live pod what tells why it is not ready.
func TrimPod(obj client.Object) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	pod.Spec = cause.Needed(&pod.Spec)
	ignored, noted := pod.Annotations[AnnotationIgnoredSecrets]
	if pod.Annotations = nil; noted {
		pod.Annotations = map[string]string{AnnotationIgnoredSecrets: ignored}
	}
	pod.Status.PodIPs, pod.Status.HostIPs = nil, nil
}
