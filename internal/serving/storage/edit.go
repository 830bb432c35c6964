// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
)

func container(in []corev1.Container, name string) *corev1.Container {
	for i := range in {
		if in[i].Name == name {
			return &in[i]
		}
	}
	return nil
}

// setEnv sets a variable, whole: what it was before does not show through.
func setEnv(c *corev1.Container, vars ...corev1.EnvVar) {
	for _, v := range vars {
		if i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == v.Name }); i >= 0 {
			c.Env[i] = v
			continue
		}
		c.Env = append(c.Env, v)
	}
}

// defaultEnv sets a variable unless somebody did before.
func defaultEnv(c *corev1.Container, vars ...corev1.EnvVar) {
	for _, v := range vars {
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == v.Name }) {
			c.Env = append(c.Env, v)
		}
	}
}

func fromSecret(name, secret, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key,
	}}}
}

// addVolume adds a volume unless there is one of that name.
func addVolume(volumes *[]corev1.Volume, v corev1.Volume) {
	if !slices.ContainsFunc(*volumes, func(o corev1.Volume) bool { return o.Name == v.Name }) {
		*volumes = append(*volumes, v)
	}
}

// addMount adds a mount unless the container has that volume already.
func addMount(c *corev1.Container, m corev1.VolumeMount) {
	if !slices.ContainsFunc(c.VolumeMounts, func(o corev1.VolumeMount) bool { return o.Name == m.Name }) {
		c.VolumeMounts = append(c.VolumeMounts, m)
	}
}

// mountedAt finds what a container has at a place.
func mountedAt(c *corev1.Container, place string) *corev1.VolumeMount {
	for i := range c.VolumeMounts {
		if path.Clean(c.VolumeMounts[i].MountPath) == path.Clean(place) {
			return &c.VolumeMounts[i]
		}
	}
	return nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// placeVolume adds a volume named after the place it is mounted at and returns
// its name. A place that makes no name, or whose name another volume has, gets a
// name with a digest, so that it is the same the next time.
func placeVolume(pod *corev1.PodSpec, place, fallback string, source corev1.VolumeSource) string {
	place = path.Clean(place)
	name := strings.ReplaceAll(strings.Trim(place, "/"), "/", "-")
	if name == "" {
		name = fallback
	}
	if !usable(pod, name, place, source) {
		digest := sha256.Sum256([]byte(place))
		clean := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-")
		name = strings.Trim(clean[:min(len(clean), 54)], "-") + "-" + hex.EncodeToString(digest[:4])
		name = strings.TrimLeft(name, "-")
	}
	addVolume(&pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	return name
}

// usable is true for a name that is free, or whose volume was added for the same
// place before.
func usable(pod *corev1.PodSpec, name, place string, source corev1.VolumeSource) bool {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return false
	}
	i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if i < 0 {
		return true
	}
	elsewhere := func(m corev1.VolumeMount) bool { return m.Name == name && path.Clean(m.MountPath) != place }
	return equality.Semantic.DeepEqual(pod.Volumes[i].VolumeSource, source) &&
		!slices.ContainsFunc(slices.Concat(pod.Containers, pod.InitContainers), func(c corev1.Container) bool {
			return slices.ContainsFunc(c.VolumeMounts, elsewhere)
		})
}
