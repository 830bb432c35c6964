// SPDX-License-Identifier: Apache-2.0

// Package knative turns a component of an InferenceService into a Knative Service and reads what became of it.
//
// Status comes first: it reads the live Knative Service and remembers which revisions had all the traffic. Service is
// then made from what Status returned, because a canary shares the traffic with the last of these revisions. A
// component without a live Knative Service has no revisions to go back to, and Status says so.
//
// Everything here is a pure function. Only the few fields that are needed are known here; Knative's own webhook fills
// in the rest and checks it, so that nothing is written down that the user did not ask for. The package must not talk
// to anything, and knows nothing of routes outside Knative.
package knative

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// APIVersion and Kind of a Knative Service.
const (
	APIVersion = "serving.knative.dev/v1"
	Kind       = "Service"
)

// The conditions of a Knative Service that Status passes on.
const (
	ConditionReady               = "Ready"
	ConditionRoutesReady         = "RoutesReady"
	ConditionConfigurationsReady = "ConfigurationsReady"
)

// Annotations that Knative's autoscaler reads.
const (
	annotationClass        = "autoscaling.knative.dev/class"
	annotationMinScale     = "autoscaling.knative.dev/min-scale"
	annotationMaxScale     = "autoscaling.knative.dev/max-scale"
	annotationTarget       = "autoscaling.knative.dev/target"
	annotationMetric       = "autoscaling.knative.dev/metric"
	annotationInitialScale = "autoscaling.knative.dev/initial-scale"

	classKPA = "kpa.autoscaling.knative.dev"
)

// Part is one component of a service, decided.
type Part struct {
	Component v1beta1.ComponentType
	// Name of the Knative Service.
	Name, Namespace string
	// Labels and Annotations are complete.
	Labels, Annotations map[string]string
	// Pod as the user and the runtime want it, without the defaults of a Deployment: Knative has its own and refuses
	// some of Kubernetes'.
	Pod   corev1.PodSpec
	Scale v1beta1.ComponentExtensionSpec
}
