// SPDX-License-Identifier: Apache-2.0

// Package v1alpha2 holds the wire types of serving.kserve.io/v1alpha2:
// LLMInferenceService and LLMInferenceServiceConfig. It is the version in which
// both kinds are stored, and the one that others convert to.
//
// It describes what travels over the wire and nothing else. Defaults, bounds and
// rules are markers; decisions belong to the controllers. It imports nothing of
// the project but the types that the versions of the group share.
//
// +kubebuilder:object:generate=true
// +groupName=serving.kserve.io
package v1alpha2
