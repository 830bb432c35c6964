// SPDX-License-Identifier: Apache-2.0

package kube

// LabelsRegistryID are the labels of an InferenceService in which its number in a model registry is written down when the
// registry has heard of it.
var LabelsRegistryID = []string{"modelregistry.kubeflow.org/inference-service-id", "modelregistry.opendatahub.io/inference-service-id"}
