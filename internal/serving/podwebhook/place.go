// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/serving/storage"
)

const (
	gpuResource         = "nvidia.com/gpu"
	acceleratorSelector = "cloud.google.com/gke-accelerator"
)

// selectAccelerator sends pods with a GPU to nodes with the asked-for kind.
func selectAccelerator(pod *corev1.Pod) {
	kind, ok := pod.Annotations[v1beta1.AnnotationGKEAccelerator]
	if !ok {
		return
	}
	for i := range pod.Spec.Containers {
		if _, ok := pod.Spec.Containers[i].Resources.Limits[gpuResource]; !ok {
			continue
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[acceleratorSelector] = kind
		return
	}
}

// What Istio leaves in a pod, and the user that its sidecar has by default.
const (
	istioInit         = "istio-init"
	istioInterception = "sidecar.istio.io/interceptionMode"
	istioStatus       = "sidecar.istio.io/status"
	istioRedirect     = "REDIRECT"
	istioUID          = int64(1337)
)

// passSidecar lets the download reach the network past a sidecar that does not
// run yet: with Istio's CNI plugin, traffic of the sidecar's own user is not
// captured. An annotation names the user where it cannot be told.
func passSidecar(pod *corev1.Pod) error {
	var initializer *corev1.Container
	captured := true
	for i := range pod.Spec.InitContainers {
		switch c := &pod.Spec.InitContainers[i]; c.Name {
		case storage.InitializerName:
			initializer = c
		case istioInit: // rules are set up in the pod, after which nothing needs passing
			captured = false
		}
	}
	if initializer == nil {
		return nil
	}
	if value, ok := pod.Annotations[v1beta1.AnnotationStorageInitializerUID]; ok {
		uid, err := strconv.ParseInt(value, 10, 64)
		if err != nil || uid < 0 {
			return fmt.Errorf("annotation %s: %q is no user id; set it to a number such as %d, or remove it",
				v1beta1.AnnotationStorageInitializerUID, value, istioUID)
		}
		runAs(initializer, uid)
		return nil
	}
	if !captured || pod.Annotations[istioInterception] != istioRedirect {
		return nil
	}
	sidecar, err := sidecarOf(pod)
	if err != nil || sidecar == nil {
		return err
	}
	uid := istioUID
	if s := sidecar.SecurityContext; s != nil && s.RunAsUser != nil {
		uid = *s.RunAsUser
	}
	runAs(initializer, uid)
	return nil
}

// sidecarOf finds the container that Istio's status names first.
func sidecarOf(pod *corev1.Pod) (*corev1.Container, error) {
	raw, ok := pod.Annotations[istioStatus]
	if !ok {
		return nil, nil
	}
	var status struct {
		Containers []string `json:"containers"`
	}
	if json.Unmarshal([]byte(raw), &status) != nil {
		return nil, fmt.Errorf("annotation %s, which Istio writes, is no JSON object that lists containers; "+
			"set the user of the download with annotation %s", istioStatus, v1beta1.AnnotationStorageInitializerUID)
	}
	if len(status.Containers) == 0 {
		return nil, nil
	}
	return container(pod, status.Containers[0]), nil
}

func runAs(c *corev1.Container, uid int64) {
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	c.SecurityContext.RunAsUser = &uid
}
