// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// Annotations and labels that belong to a service itself and never reach its children. Unlike in other implementations
// they hold whether or not anything is configured.
var (
	blockedAnnotations = []string{
		"autoscaling.knative.dev/min-scale",
		"autoscaling.knative.dev/max-scale",
		v1beta1.AnnotationStorageSourceURI,
		corev1.LastAppliedConfigAnnotation,
		v1beta1.AnnotationModelFormat,
	}
	blockedLabels = []string{v1beta1.LabelKnativeVisibility}
)

// AnnotationBlocked tells whether an annotation of a service stays off its children.
func (c *Config) AnnotationBlocked(key string) bool {
	return slices.Contains(blockedAnnotations, key) ||
		slices.Contains(c.InferenceService.ServiceAnnotationDisallowedList, key)
}

// LabelBlocked tells whether a label of a service stays off Knative revisions and HTTPRoutes.
func (c *Config) LabelBlocked(key string) bool {
	return slices.Contains(blockedLabels, key) || slices.Contains(c.InferenceService.ServiceLabelDisallowedList, key)
}

// FilterAnnotations copies what may reach children. The result is never nil and the caller's to change.
func (c *Config) FilterAnnotations(in map[string]string) map[string]string {
	return without(in, c.AnnotationBlocked)
}

// FilterLabels does the same for labels.
func (c *Config) FilterLabels(in map[string]string) map[string]string {
	return without(in, c.LabelBlocked)
}

func without(in map[string]string, blocked func(string) bool) map[string]string {
	out := make(map[string]string, len(in))
	for k, v := range in {
		if !blocked(k) {
			out[k] = v
		}
	}
	return out
}
