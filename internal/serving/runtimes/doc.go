// SPDX-License-Identifier: Apache-2.0

// Package runtimes decides which runtime serves a model and what the pods of a
// predictor look like once runtime and InferenceService are put together.
//
// It is pure: it reads no cluster, no clock and no environment, and never
// changes what it is given. Where the model comes from (storage), the objects
// around the pods (workload) and what a status says are not its business.
package runtimes

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// Names of containers that runtimes and services agree on.
const (
	mainContainer        = "kserve-container"
	transformerContainer = "transformer-container"
	workerContainer      = "worker-container"
)

// modelsDir is where the model is found in every container.
const modelsDir = "/mnt/models"

// Candidates are the runtimes that a service could use: those of its namespace
// and those of the cluster.
type Candidates struct {
	Namespaced []v1alpha1.ServingRuntime
	Cluster    []v1alpha1.ClusterServingRuntime
}

// Runtime is the one that was chosen. Its maps and lists are those of the
// candidate, so they are for reading only.
type Runtime struct {
	Name string
	// Cluster tells that it is a ClusterServingRuntime.
	Cluster bool
	// Annotations are those of its metadata, not those meant for pods.
	Annotations map[string]string
	Spec        v1alpha1.ServingRuntimeSpec
}

// String names the runtime as people write it.
func (r *Runtime) String() string {
	return kindOf(r.Cluster) + " " + clip(r.Name)
}

func kindOf(cluster bool) string {
	if cluster {
		return "ClusterServingRuntime"
	}
	return "ServingRuntime"
}

// Failure says why there is no predictor, and what to do about it.
type Failure struct {
	Reason  v1beta1.FailureReason
	Message string
	// Condition is the reason for the predictor's condition where clients know a
	// word other than Reason; empty otherwise.
	Condition string
}

// InvalidGPUAllocation is the condition's reason when nodes and accelerators do
// not add up.
const InvalidGPUAllocation = "InvalidGPUAllocation"

func (f *Failure) Error() string { return f.Message }

// Merged is a predictor, put together.
type Merged struct {
	Pod corev1.PodSpec
	// Labels and Annotations come from the runtime; those of the InferenceService
	// are the caller's to add. They include the labels that a server needs.
	Labels, Annotations map[string]string
	// Protocol that clients of the predictor speak.
	Protocol v1beta1.InferenceServiceProtocol
	// Worker is nil unless the predictor spans several nodes.
	Worker *Worker
}

// Worker describes the pods beside the head of a predictor that spans nodes.
type Worker struct {
	Pod                 corev1.PodSpec
	Labels, Annotations map[string]string
	Replicas            int32
}
