// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// maxMerged bounds the lists that are merged by key, since the time that takes
// grows with the square of their length.
const maxMerged = 500

// mergeContainer lays a container of the user over that of the runtime. The
// user's arguments follow the runtime's; the name stays the runtime's.
func mergeContainer(base, overlay *corev1.Container) (*corev1.Container, error) {
	if reflect.DeepEqual(*overlay, corev1.Container{Name: overlay.Name}) {
		return base.DeepCopy(), nil
	}
	for _, l := range []struct {
		what string
		n    int
	}{
		{"env", len(base.Env) + len(overlay.Env)},
		{"ports", len(base.Ports) + len(overlay.Ports)},
		{"volumeMounts", len(base.VolumeMounts) + len(overlay.VolumeMounts)},
		{"volumeDevices", len(base.VolumeDevices) + len(overlay.VolumeDevices)},
	} {
		if l.n > maxMerged {
			return nil, tooMany(l.what, l.n)
		}
	}
	var merged corev1.Container
	if err := patch(base, overlay, &merged); err != nil {
		return nil, err
	}
	merged.Name = base.Name
	merged.Args = slices.Concat(base.Args, overlay.Args)
	settleEnv(merged.Env, overlay.Env)
	settleProbe(merged.LivenessProbe, overlay.LivenessProbe)
	settleProbe(merged.ReadinessProbe, overlay.ReadinessProbe)
	settleProbe(merged.StartupProbe, overlay.StartupProbe)
	settleLifecycle(merged.Lifecycle, overlay.Lifecycle)
	return &merged, nil
}

// mergePod lays the pod settings of the user over those of the runtime.
// Containers are not part of it.
func mergePod(rt *v1alpha1.ServingRuntimePodSpec, own *v1beta1.PodSpec) (*corev1.PodSpec, error) {
	base := &corev1.PodSpec{
		NodeSelector:     rt.NodeSelector,
		Affinity:         rt.Affinity,
		Tolerations:      rt.Tolerations,
		Volumes:          rt.Volumes,
		ImagePullSecrets: rt.ImagePullSecrets,
		HostIPC:          rt.HostIPC,
		SchedulerName:    rt.SchedulerName,
		ResourceClaims:   rt.ResourceClaims,
	}
	overlay := *own
	overlay.Containers = nil
	if reflect.DeepEqual(overlay, v1beta1.PodSpec{}) {
		return base.DeepCopy(), nil
	}
	for _, l := range []struct {
		what string
		n    int
	}{
		{"volumes", len(base.Volumes) + len(overlay.Volumes)},
		{"imagePullSecrets", len(base.ImagePullSecrets) + len(overlay.ImagePullSecrets)},
		{"resourceClaims", len(base.ResourceClaims) + len(overlay.ResourceClaims)},
	} {
		if l.n > maxMerged {
			return nil, tooMany(l.what, l.n)
		}
	}
	var merged corev1.PodSpec
	if err := patch(base, &overlay, &merged); err != nil {
		return nil, err
	}
	merged.Containers = nil
	settleVolumes(merged.Volumes, overlay.Volumes)
	return &merged, nil
}

func tooMany(what string, n int) error {
	return fmt.Errorf("%s of the runtime and of the predictor are %d together, and at most %d can be merged: list fewer", what, n, maxMerged)
}

// patch is a strategic merge, which keeps the order that existing pods have.
func patch[T any](base *T, overlay any, merged *T) error {
	baseJSON, err := json.Marshal(base)
	if err != nil {
		return err
	}
	overlayJSON, err := json.Marshal(overlay)
	if err != nil {
		return err
	}
	out, err := strategicpatch.StrategicMergePatch(baseJSON, overlayJSON, *merged)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, merged)
}

// A strategic merge knows nothing of fields that exclude each other: it would
// keep the runtime's beside the user's, and the API server would refuse the pod.
// The functions below let the user's choice replace the runtime's.

func settleEnv(merged, overlay []corev1.EnvVar) {
	own := make(map[string]*corev1.EnvVar, len(overlay))
	for i := range overlay {
		if overlay[i].Value != "" || overlay[i].ValueFrom != nil {
			own[overlay[i].Name] = &overlay[i]
		}
	}
	for i := range merged {
		if e, ok := own[merged[i].Name]; ok {
			e.DeepCopyInto(&merged[i])
		}
	}
}

func settleProbe(merged, overlay *corev1.Probe) {
	if merged != nil && overlay != nil {
		settle(&merged.ProbeHandler, &overlay.ProbeHandler)
	}
}

func settleLifecycle(merged, overlay *corev1.Lifecycle) {
	if merged == nil || overlay == nil {
		return
	}
	if overlay.PostStart != nil {
		settle(merged.PostStart, overlay.PostStart)
	}
	if overlay.PreStop != nil {
		settle(merged.PreStop, overlay.PreStop)
	}
}

func settleVolumes(merged, overlay []corev1.Volume) {
	own := make(map[string]*corev1.Volume, len(overlay))
	for i := range overlay {
		own[overlay[i].Name] = &overlay[i]
	}
	for i := range merged {
		if v, ok := own[merged[i].Name]; ok {
			settle(&merged[i].VolumeSource, &v.VolumeSource)
		}
	}
}

// settle works on a struct of pointers of which one may be set: if the overlay
// sets one, those that it does not set are dropped.
func settle[T any](merged, overlay *T) {
	m, o := reflect.ValueOf(merged).Elem(), reflect.ValueOf(overlay).Elem()
	if o.IsZero() {
		return
	}
	for i := range o.NumField() {
		if o.Field(i).IsZero() {
			m.Field(i).SetZero()
		}
	}
}
