// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InferenceServiceStatus is what was found.
type InferenceServiceStatus struct {
	Status `json:",inline"`
	// Address inside the cluster.
	// +optional
	Address *Addressable `json:"address,omitempty"`
	// URL of the service.
	// +optional
	URL *string `json:"url,omitempty"`
	// Components by name.
	// +optional
	Components map[ComponentType]ComponentStatusSpec `json:"components,omitempty"`
	// ModelStatus tells how far the model is.
	// +optional
	ModelStatus *ModelStatus `json:"modelStatus,omitempty"`
	// CanaryStatuses tell how far the canaries are.
	// +optional
	// +listType=atomic
	CanaryStatuses []CanaryStatus `json:"canaryStatuses,omitempty"`
	// DeploymentMode that the service was created with and keeps.
	// +optional
	DeploymentMode string `json:"deploymentMode,omitempty"`
	// ServingRuntimeName is the runtime in use, if it is one of the namespace.
	// +optional
	ServingRuntimeName string `json:"servingRuntimeName,omitempty"`
	// ClusterServingRuntimeName is the runtime in use, if it is one of the cluster.
	// +optional
	ClusterServingRuntimeName string `json:"clusterServingRuntimeName,omitempty"`
}

// CanaryStatus tells how far a canary is.
type CanaryStatus struct {
	// Name of the canary.
	Name string `json:"name"`
	// Ready tells whether it takes requests.
	Ready bool `json:"ready"`
	// TrafficPercent is the share of requests it gets.
	TrafficPercent int32 `json:"trafficPercent"`
	// ModelStatus tells how far its model is.
	// +optional
	ModelStatus *ModelStatus `json:"modelStatus,omitempty"`
}

// ComponentStatusSpec tells how far a component is.
type ComponentStatusSpec struct {
	// LatestReadyRevision is the newest revision that works.
	// +optional
	LatestReadyRevision string `json:"latestReadyRevision,omitempty"`
	// LatestCreatedRevision is the newest revision.
	// +optional
	LatestCreatedRevision string `json:"latestCreatedRevision,omitempty"`
	// PreviousRolledoutRevision had all the traffic before the latest one.
	// +optional
	PreviousRolledoutRevision string `json:"previousRolledoutRevision,omitempty"`
	// LatestRolledoutRevision is the newest revision that had all the traffic.
	// +optional
	LatestRolledoutRevision string `json:"latestRolledoutRevision,omitempty"`
	// Traffic by revision.
	// +optional
	Traffic []TrafficTarget `json:"traffic,omitempty"`
	// URL of the component.
	// +optional
	URL *string `json:"url,omitempty"`
	// RestURL of the component.
	// +optional
	RestURL *string `json:"restUrl,omitempty"`
	// GrpcURL of the component.
	// +optional
	GrpcURL *string `json:"grpcUrl,omitempty"`
	// Address inside the cluster.
	// +optional
	Address *Addressable `json:"address,omitempty"`
}

// TrafficTarget is a share of the traffic.
type TrafficTarget struct {
	// Tag that the revision can be addressed by.
	// +optional
	Tag string `json:"tag,omitempty"`
	// RevisionName that the share goes to.
	// +optional
	RevisionName string `json:"revisionName,omitempty"`
	// ConfigurationName whose latest revision the share goes to.
	// +optional
	ConfigurationName string `json:"configurationName,omitempty"`
	// LatestRevision tells that the share follows the latest revision.
	// +optional
	LatestRevision *bool `json:"latestRevision,omitempty"`
	// Percent of the traffic.
	// +optional
	Percent *int64 `json:"percent,omitempty"`
	// URL of the tag.
	// +optional
	URL *string `json:"url,omitempty"`
}

// TransitionStatus tells whether what runs is what was asked for.
//
// +kubebuilder:validation:Enum="";UpToDate;InProgress;BlockedByFailedLoad;InvalidSpec
type TransitionStatus string

// How a change is getting on.
const (
	UpToDate            TransitionStatus = "UpToDate"
	InProgress          TransitionStatus = "InProgress"
	BlockedByFailedLoad TransitionStatus = "BlockedByFailedLoad"
	InvalidSpec         TransitionStatus = "InvalidSpec"
)

// ModelState is how far a model is.
//
// +kubebuilder:validation:Enum="";Pending;Standby;Loading;Loaded;FailedToLoad
type ModelState string

// How far a model is.
const (
	Pending      ModelState = "Pending"
	Standby      ModelState = "Standby"
	Loading      ModelState = "Loading"
	Loaded       ModelState = "Loaded"
	FailedToLoad ModelState = "FailedToLoad"
)

// FailureReason says in one word why a model does not load.
//
// +kubebuilder:validation:Enum=ModelLoadFailed;RuntimeUnhealthy;RuntimeDisabled;NoSupportingRuntime;RuntimeNotRecognized;InvalidPredictorSpec
type FailureReason string

// Why a model does not load.
const (
	ModelLoadFailed      FailureReason = "ModelLoadFailed"
	RuntimeUnhealthy     FailureReason = "RuntimeUnhealthy"
	RuntimeDisabled      FailureReason = "RuntimeDisabled"
	NoSupportingRuntime  FailureReason = "NoSupportingRuntime"
	RuntimeNotRecognized FailureReason = "RuntimeNotRecognized"
	InvalidPredictorSpec FailureReason = "InvalidPredictorSpec"
)

// ModelStatus tells how far a model is.
type ModelStatus struct {
	// TransitionStatus tells whether what runs is what was asked for.
	// +kubebuilder:default=UpToDate
	TransitionStatus TransitionStatus `json:"transitionStatus"`
	// ModelRevisionStates are the states of the running and the wanted model.
	// +optional
	ModelRevisionStates *ModelRevisionStates `json:"states,omitempty"`
	// LastFailureInfo describes the last failure.
	// +optional
	LastFailureInfo *FailureInfo `json:"lastFailureInfo,omitempty"`
	// ModelCopies counts the copies.
	// +optional
	ModelCopies *ModelCopies `json:"copies,omitempty"`
}

// ModelRevisionStates are the states of the running and the wanted model.
type ModelRevisionStates struct {
	// ActiveModelState of the model that takes requests.
	// +kubebuilder:default=Pending
	ActiveModelState ModelState `json:"activeModelState"`
	// TargetModelState of the model that will take its place.
	// +optional
	// +kubebuilder:default=""
	TargetModelState ModelState `json:"targetModelState,omitempty"`
}

// ModelCopies counts the copies of a model.
type ModelCopies struct {
	// FailedCopies is how many did not load.
	// +kubebuilder:default=0
	FailedCopies int `json:"failedCopies"`
	// TotalCopies is how many there are.
	// +optional
	TotalCopies int `json:"totalCopies,omitempty"`
}

// FailureInfo describes a failure.
type FailureInfo struct {
	// Location of the failure, usually a pod.
	// +optional
	Location string `json:"location,omitempty"`
	// Reason in one word.
	// +optional
	Reason FailureReason `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
	// ModelRevisionName of the model that failed.
	// +optional
	ModelRevisionName string `json:"modelRevisionName,omitempty"`
	// Time of the failure.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// ExitCode of the container that failed.
	// +optional
	ExitCode int32 `json:"exitCode,omitempty"`
}
