// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the wire types of serving.kserve.io/v1alpha1: runtimes,
// graphs, trained models, storage containers, local models, predictors of the
// model mesh, and the first version of LLMInferenceService.
//
// It describes what travels over the wire and how the first version of
// LLMInferenceService maps to the second. Defaults, bounds and rules are markers;
// decisions belong to the controllers. Parts that are the same in several
// versions are taken from the newer package.
//
// +kubebuilder:object:generate=true
// +groupName=serving.kserve.io
package v1alpha1
