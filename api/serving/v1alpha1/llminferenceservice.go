// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha2"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// LLMInferenceService serves one large language model.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=llminferenceservices,shortName=llmisvc,categories=models
// +kubebuilder:printcolumn:name="URL",type="string",JSONPath=".status.url"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="URLs",type="string",JSONPath=".status.addresses[*].url",priority=1
type LLMInferenceService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +optional
	Spec LLMInferenceServiceSpec `json:"spec,omitempty"`
	// Status is what was found.
	// +optional
	Status LLMInferenceServiceStatus `json:"status,omitempty"`
}

// LLMInferenceServiceList is a list of LLMInferenceServices.
//
// +kubebuilder:object:root=true
type LLMInferenceServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LLMInferenceService `json:"items"`
}

// LLMInferenceServiceConfig is a part of a spec that LLMInferenceServices refer
// to. Text in it may hold template actions, so names under the router are not
// held to their patterns here but in the service that comes of it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=llminferenceserviceconfigs
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type LLMInferenceServiceConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec that is merged into the services.
	// +optional
	Spec LLMInferenceServiceSpec `json:"spec,omitempty"`
	// Status is what was found.
	// +optional
	Status LLMInferenceServiceConfigStatus `json:"status,omitempty"`
}

// LLMInferenceServiceConfigList is a list of LLMInferenceServiceConfigs.
//
// +kubebuilder:object:root=true
type LLMInferenceServiceConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LLMInferenceServiceConfig `json:"items"`
}

// LLMInferenceServiceConfigStatus is what was found.
type LLMInferenceServiceConfigStatus struct {
	v1beta1.Status `json:",inline"`
}

// LLMInferenceServiceSpec describes the model, the pods that serve it and the way
// to them.
type LLMInferenceServiceSpec struct {
	// Model to serve.
	// +optional
	Model LLMModelSpec `json:"model,omitzero"`
	// StorageInitializer fetches the model before the server starts.
	// +optional
	StorageInitializer *v1alpha2.StorageInitializerSpec `json:"storageInitializer,omitempty"`

	WorkloadSpec `json:",inline"`

	// Prefill describes pods of their own for the first pass over a prompt.
	// +optional
	Prefill *WorkloadSpec `json:"prefill,omitempty"`
	// Router describes the way to the pods.
	// +optional
	Router *RouterSpec `json:"router,omitempty"`
	// Tracing sends traces of requests elsewhere.
	// +optional
	Tracing *v1alpha2.TracingSpec `json:"tracing,omitempty"`
	// BaseRefs name configs that are merged in order; this spec comes last.
	// +optional
	BaseRefs []corev1.LocalObjectReference `json:"baseRefs,omitempty"`
}

// Criticality tells how much a request matters when there is too much to do.
//
// +kubebuilder:validation:Enum=Critical;Standard;Sheddable
type Criticality string

// How much a request matters.
const (
	Critical  Criticality = "Critical"
	Standard  Criticality = "Standard"
	Sheddable Criticality = "Sheddable"
)

// LLMModelSpec describes a model or an adapter.
type LLMModelSpec struct {
	// URI is where the model is.
	URI string `json:"uri"`
	// Name that requests use; the name of the object when empty.
	// +optional
	Name *string `json:"name,omitempty"`
	// Criticality of the requests to the model.
	// +optional
	Criticality *Criticality `json:"criticality,omitempty"`
	// LoRA lists adapters that are served with the model.
	// +optional
	LoRA *LoRASpec `json:"lora,omitempty"`
}

// LoRASpec lists the adapters of a model.
type LoRASpec struct {
	// Adapters to serve; each is described like a model.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Adapters []LLMModelSpec `json:"adapters,omitempty"`
	// MaxRank is the greatest rank an adapter may have.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxRank *int32 `json:"maxRank,omitempty"`
	// MaxAdapters is how many adapters an accelerator holds at once.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxAdapters *int32 `json:"maxAdapters,omitempty"`
	// MaxCPUAdapters is how many adapters main memory holds at once.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxCPUAdapters *int32 `json:"maxCpuAdapters,omitempty"`
}

// WorkloadSpec describes a set of pods that serve the model.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.scaling))",message="replicas and scaling exclude each other; remove replicas to scale automatically"
type WorkloadSpec struct {
	// Replicas is the number of servers.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// Scaling changes the number of servers with the load.
	// +optional
	Scaling *v1alpha2.ScalingSpec `json:"scaling,omitempty"`
	// Parallelism spreads the model over accelerators and nodes.
	// +optional
	Parallelism *v1alpha2.ParallelismSpec `json:"parallelism,omitempty"`
	// Labels for the pods.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations for the pods.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Template of the pods, or of the leader where there are workers.
	// +optional
	Template *v1alpha2.PodSpec `json:"template,omitempty"`
	// Worker is the template of the workers of a server that spans several nodes.
	// +optional
	Worker *v1alpha2.PodSpec `json:"worker,omitempty"`
	// RolloutStrategy tells how old pods are replaced by new ones.
	// +optional
	RolloutStrategy *v1alpha2.RolloutStrategySpec `json:"rolloutStrategy,omitempty"`
}

// RouterSpec describes the way to the pods. An empty block asks for a managed
// object.
type RouterSpec struct {
	// Route through a gateway.
	// +optional
	Route *v1alpha2.GatewayRoutesSpec `json:"route,omitempty"`
	// Gateway that the route belongs to.
	// +optional
	Gateway *v1alpha2.GatewaySpec `json:"gateway,omitempty"`
	// Ingress in place of route and gateway.
	// +optional
	Ingress *v1alpha2.IngressSpec `json:"ingress,omitempty"`
	// Scheduler picks the best pod for each request.
	// +optional
	Scheduler *SchedulerSpec `json:"scheduler,omitempty"`
}

// SchedulerSpec describes the endpoint picker, which picks the best pod for each
// request.
type SchedulerSpec struct {
	// Pool of pods to pick from.
	// +optional
	Pool *InferencePoolSpec `json:"pool,omitempty"`
	// Template of the picker's pods.
	// +optional
	Template *v1alpha2.PodSpec `json:"template,omitempty"`
	// Config of the picker.
	// +optional
	Config *v1alpha2.SchedulerConfigSpec `json:"config,omitempty"`
	// Replicas of the picker.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Labels for the picker's pods.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations for the picker's pods.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Tokenizer turns prompts into tokens for the picker.
	// +optional
	Tokenizer *v1alpha2.TokenizerSpec `json:"tokenizer,omitempty"`
}

// InferencePoolSpec is a pool of the user; spec and ref exclude each other.
type InferencePoolSpec struct {
	// Spec of the pool to create.
	// +optional
	Spec *PoolSpec `json:"spec,omitempty"`
	// Ref names a pool that exists.
	// +optional
	Ref *corev1.LocalObjectReference `json:"ref,omitempty"`
}

// PoolSpec is the pool in the form that the first version of its API had.
type PoolSpec struct {
	// Selector names the labels of the pods.
	Selector map[string]LabelValue `json:"selector"`
	// TargetPortNumber is the port of the pods.
	TargetPortNumber int32 `json:"targetPortNumber"`
	// ExtensionRef names the endpoint picker.
	// +optional
	ExtensionRef *ExtensionReference `json:"extensionRef,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MinLength=0
// +kubebuilder:validation:MaxLength=63
type LabelValue string

// ExtensionReference names an endpoint picker.
type ExtensionReference struct {
	// Group of the object; empty for a Service.
	// +optional
	Group *gatewayv1.Group `json:"group,omitempty"`
	// Kind of the object, Service when empty.
	// +optional
	Kind *gatewayv1.Kind `json:"kind,omitempty"`
	// Name of the object.
	Name gatewayv1.ObjectName `json:"name"`
	// PortNumber of the picker.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	PortNumber *int32 `json:"portNumber,omitempty"`
	// FailureMode tells what happens to requests when the picker does not answer.
	// +kubebuilder:validation:Enum=FailOpen;FailClose
	FailureMode string `json:"failureMode"`
}

// LLMInferenceServiceStatus is what was found.
type LLMInferenceServiceStatus struct {
	v1beta1.Status `json:",inline"`
	// URL of the service.
	// +optional
	URL *string `json:"url,omitempty"`
	// Address inside the cluster.
	// +optional
	Address *v1beta1.Addressable `json:"address,omitempty"`
	// Addresses are all the ways to reach the service.
	// +optional
	Addresses []v1beta1.Addressable `json:"addresses,omitempty"`
	// Router lists the objects on the way to the pods.
	// +optional
	Router *RouterStatus `json:"router,omitempty"`
}

// RouterStatus lists the objects on the way to the pods.
type RouterStatus struct {
	// Gateways in use.
	// +optional
	// +listType=atomic
	Gateways []v1alpha2.GatewayStatus `json:"gateways,omitempty"`
	// Scheduler in use.
	// +optional
	Scheduler *v1alpha2.SchedulerStatus `json:"scheduler,omitempty"`
}
