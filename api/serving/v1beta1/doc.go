// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the wire types of serving.kserve.io/v1beta1, the kind
// InferenceService, and the types that the other versions of the group share:
// pod templates, conditions, addresses and the well-known keys.
//
// It describes what travels over the wire and nothing else. Defaults, bounds and
// rules are markers; decisions belong to the controllers. It imports nothing of
// the project.
//
// +kubebuilder:object:generate=true
// +groupName=serving.kserve.io
package v1beta1
