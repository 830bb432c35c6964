// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// InferenceGraph connects inference services to one service.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=inferencegraphs,shortName=ig,categories=models
// +kubebuilder:printcolumn:name="URL",type="string",JSONPath=".status.url"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type InferenceGraph struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +optional
	Spec InferenceGraphSpec `json:"spec,omitempty"`
	// Status is what was found.
	// +optional
	Status InferenceGraphStatus `json:"status,omitempty"`
}

// InferenceGraphList is a list of InferenceGraphs.
//
// +kubebuilder:object:root=true
type InferenceGraphList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []InferenceGraph `json:"items"`
}

// GraphRootNodeName is the node where every request starts.
const GraphRootNodeName = "root"

// InferenceGraphSpec describes the graph and the router that runs it.
type InferenceGraphSpec struct {
	// Nodes by name; requests start at the node root.
	Nodes map[string]InferenceRouter `json:"nodes"`
	// Resources requested by and limited for the router.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	// Affinity of the router pods.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// TimeoutSeconds is how long a request may take.
	// +optional
	TimeoutSeconds *int64 `json:"timeout,omitempty"`
	// RouterTimeouts are the time limits inside the router.
	// +optional
	RouterTimeouts *GraphRouterTimeouts `json:"routerTimeouts,omitempty"`
	// MinReplicas is the least number of router pods.
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// MaxReplicas is the greatest number of router pods.
	// +optional
	MaxReplicas int32 `json:"maxReplicas,omitempty"`
	// ScaleTarget is the value of the metric per pod to aim for.
	// +optional
	ScaleTarget *int32 `json:"scaleTarget,omitempty"`
	// ScaleMetric is what the router is scaled by.
	// +optional
	ScaleMetric *v1beta1.ScaleMetric `json:"scaleMetric,omitempty"`
	// Tolerations let the router run on tainted nodes.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// NodeSelector names labels that a node must have to run the router.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// NodeName pins the router to one node.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// ServiceAccountName is the identity the router runs as.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// GraphRouterTimeouts are the time limits inside the router, in seconds.
type GraphRouterTimeouts struct {
	// ServerRead limits reading a request.
	// +optional
	ServerRead *int64 `json:"serverRead,omitempty"`
	// ServerWrite limits writing a response.
	// +optional
	ServerWrite *int64 `json:"serverWrite,omitempty"`
	// ServerIdle limits how long an unused connection stays open.
	// +optional
	ServerIdle *int64 `json:"serverIdle,omitempty"`
	// ServiceClient limits each call to a step.
	// +optional
	ServiceClient *int64 `json:"serviceClient,omitempty"`
}

// InferenceRouterType tells how a node treats its steps.
//
// +kubebuilder:validation:Enum=Sequence;Splitter;Ensemble;Switch
type InferenceRouterType string

// How a node treats its steps.
const (
	Sequence InferenceRouterType = "Sequence"
	Splitter InferenceRouterType = "Splitter"
	Ensemble InferenceRouterType = "Ensemble"
	Switch   InferenceRouterType = "Switch"
)

// InferenceRouter is a node of the graph.
type InferenceRouter struct {
	// RouterType tells whether all steps run in turn, all at once, or one of them.
	RouterType InferenceRouterType `json:"routerType"`
	// Steps of the node.
	// +optional
	Steps []InferenceStep `json:"steps,omitempty"`
}

// InferenceStepDependencyType tells what the failure of a step means.
//
// +kubebuilder:validation:Enum=Soft;Hard
type InferenceStepDependencyType string

// What the failure of a step means.
const (
	Soft InferenceStepDependencyType = "Soft"
	Hard InferenceStepDependencyType = "Hard"
)

// InferenceStep is one step of a node; exactly one target is set.
type InferenceStep struct {
	// StepName is the name of the step, also in the response of an ensemble.
	// +optional
	StepName string `json:"name,omitempty"`

	InferenceTarget `json:",inline"`

	// Data tells whether the step gets the request or the response of the step before it.
	// +optional
	Data string `json:"data,omitempty"`
	// MapPredictionsToInstances turns the predictions of the step before it into instances.
	// +optional
	MapPredictionsToInstances bool `json:"mapPredictionsToInstances,omitempty"`
	// Weight is the share of requests in a splitter; all weights make 100.
	// +optional
	Weight *int64 `json:"weight,omitempty"`
	// Condition on the request that has the step run.
	// +optional
	Condition string `json:"condition,omitempty"`
	// Dependency is Hard when the failure of the step fails the request.
	// +optional
	Dependency InferenceStepDependencyType `json:"dependency,omitempty"`
}

// InferenceTarget is where a step sends its data.
type InferenceTarget struct {
	// NodeName is another node of the graph.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// ServiceName is an InferenceService of the namespace.
	// +optional
	ServiceName string `json:"serviceName,omitempty"`
	// ServiceURL is any other service.
	// +optional
	ServiceURL string `json:"serviceUrl,omitempty"`
}

// InferenceGraphStatus is what was found.
type InferenceGraphStatus struct {
	v1beta1.Status `json:",inline"`
	// URL of the graph.
	// +optional
	URL *string `json:"url,omitempty"`
	// DeploymentMode of the router.
	// +optional
	DeploymentMode string `json:"deploymentMode,omitempty"`
}
