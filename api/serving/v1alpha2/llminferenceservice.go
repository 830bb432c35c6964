// SPDX-License-Identifier: Apache-2.0

package v1alpha2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// LLMInferenceService serves one large language model.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
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

// Hub marks the version that others convert to.
func (*LLMInferenceService) Hub() {}

// LLMInferenceServiceList is a list of LLMInferenceServices.
//
// +kubebuilder:object:root=true
type LLMInferenceServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LLMInferenceService `json:"items"`
}

// LLMInferenceServiceSpec describes the model, the pods that serve it and the way
// to them.
type LLMInferenceServiceSpec struct {
	// Model to serve.
	// +optional
	Model LLMModelSpec `json:"model,omitzero"`
	// StorageInitializer fetches the model before the server starts.
	// +optional
	StorageInitializer *StorageInitializerSpec `json:"storageInitializer,omitempty"`

	WorkloadSpec `json:",inline"`

	// Prefill describes pods of their own for the first pass over a prompt.
	// +optional
	Prefill *WorkloadSpec `json:"prefill,omitempty"`
	// Router describes the way to the pods.
	// +optional
	Router *RouterSpec `json:"router,omitempty"`
	// Tracing sends traces of requests elsewhere.
	// +optional
	Tracing *TracingSpec `json:"tracing,omitempty"`
	// BaseRefs name configs that are merged in order; this spec comes last.
	// +optional
	BaseRefs []corev1.LocalObjectReference `json:"baseRefs,omitempty"`
}

// LLMModelSpec describes a model or an adapter.
type LLMModelSpec struct {
	// URI is where the model is.
	URI string `json:"uri"`
	// Name that requests use; the name of the object when empty.
	// +optional
	Name *string `json:"name,omitempty"`
	// LoRA lists adapters that are served with the model.
	// +optional
	LoRA *LoRASpec `json:"lora,omitempty"`
	// Confidential asks for a model that is decrypted where it runs.
	// +optional
	Confidential *v1beta1.ConfidentialSpec `json:"confidential,omitempty"`
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

// StorageInitializerSpec controls the container that fetches the model.
type StorageInitializerSpec struct {
	// Enabled is true when empty.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// TracingSpec sends traces of requests elsewhere.
type TracingSpec struct {
	// ExporterEndpoint that receives the traces.
	// +optional
	ExporterEndpoint *string `json:"exporterEndpoint,omitempty"`
	// Exporter that sends them.
	// +optional
	Exporter *string `json:"exporter,omitempty"`
	// Sampler that chooses which requests are traced.
	// +optional
	Sampler *string `json:"sampler,omitempty"`
	// SamplerArg is the setting of the sampler.
	// +optional
	SamplerArg *string `json:"samplerArg,omitempty"`
}
