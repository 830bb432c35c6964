// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/conversion"

	"github.com/modelplane/modelplane/api/serving/v1alpha2"
)

var (
	_ conversion.Convertible = (*LLMInferenceService)(nil)
	_ conversion.Convertible = (*LLMInferenceServiceConfig)(nil)
)

// ConvertTo writes the service in the hub version.
func (s *LLMInferenceService) ConvertTo(hub conversion.Hub) error {
	dst, ok := hub.(*v1alpha2.LLMInferenceService)
	if !ok {
		return fmt.Errorf("convert LLMInferenceService v1alpha1 to %T: only v1alpha2 is known", hub)
	}
	src := s.DeepCopy()
	dst.ObjectMeta, dst.Spec = src.ObjectMeta, specToHub(&src.Spec)
	takeSpec(&dst.Annotations).restore(&dst.Spec)
	keepCriticality(&dst.Annotations, &src.Spec.Model)
	dst.Status = statusToHub(&src.Status)
	takeStatus(&dst.Status.Annotations).restore(&dst.Status)
	return nil
}

// ConvertFrom reads the service from the hub version.
func (s *LLMInferenceService) ConvertFrom(hub conversion.Hub) error {
	from, ok := hub.(*v1alpha2.LLMInferenceService)
	if !ok {
		return fmt.Errorf("convert LLMInferenceService v1alpha1 from %T: only v1alpha2 is known", hub)
	}
	src := from.DeepCopy()
	s.ObjectMeta, s.Spec = src.ObjectMeta, specFromHub(&src.Spec)
	restoreCriticality(&s.Annotations, &s.Spec.Model)
	if err := put(&s.Annotations, keptSpecOf(&src.Spec)); err != nil {
		return fmt.Errorf("convert the spec of %s/%s: %w", s.Namespace, s.Name, err)
	}
	s.Status = statusFromHub(&src.Status)
	if err := put(&s.Status.Annotations, keptStatusOf(&src.Status)); err != nil {
		return fmt.Errorf("convert the status of %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// ConvertTo writes the config in the hub version.
func (c *LLMInferenceServiceConfig) ConvertTo(hub conversion.Hub) error {
	dst, ok := hub.(*v1alpha2.LLMInferenceServiceConfig)
	if !ok {
		return fmt.Errorf("convert LLMInferenceServiceConfig v1alpha1 to %T: only v1alpha2 is known", hub)
	}
	src := c.DeepCopy()
	dst.ObjectMeta, dst.Spec = src.ObjectMeta, specToHub(&src.Spec)
	takeSpec(&dst.Annotations).restore(&dst.Spec)
	keepCriticality(&dst.Annotations, &src.Spec.Model)
	dst.Status = v1alpha2.LLMInferenceServiceConfigStatus{Status: src.Status.Status}
	dst.Status.ReferencedBy = takeStatus(&dst.Status.Annotations).ReferencedBy
	return nil
}

// ConvertFrom reads the config from the hub version.
func (c *LLMInferenceServiceConfig) ConvertFrom(hub conversion.Hub) error {
	from, ok := hub.(*v1alpha2.LLMInferenceServiceConfig)
	if !ok {
		return fmt.Errorf("convert LLMInferenceServiceConfig v1alpha1 from %T: only v1alpha2 is known", hub)
	}
	src := from.DeepCopy()
	c.ObjectMeta, c.Spec = src.ObjectMeta, specFromHub(&src.Spec)
	restoreCriticality(&c.Annotations, &c.Spec.Model)
	if err := put(&c.Annotations, keptSpecOf(&src.Spec)); err != nil {
		return fmt.Errorf("convert the spec of %s/%s: %w", c.Namespace, c.Name, err)
	}
	c.Status = LLMInferenceServiceConfigStatus{Status: src.Status.Status}
	if err := put(&c.Status.Annotations, keptStatus{ReferencedBy: src.Status.ReferencedBy}); err != nil {
		return fmt.Errorf("convert the status of %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}

func specToHub(in *LLMInferenceServiceSpec) v1alpha2.LLMInferenceServiceSpec {
	return v1alpha2.LLMInferenceServiceSpec{
		Model:              modelToHub(&in.Model),
		StorageInitializer: in.StorageInitializer,
		WorkloadSpec:       *workloadToHub(&in.WorkloadSpec),
		Prefill:            workloadToHub(in.Prefill),
		Router:             routerToHub(in.Router),
		Tracing:            in.Tracing,
		BaseRefs:           in.BaseRefs,
	}
}

func specFromHub(in *v1alpha2.LLMInferenceServiceSpec) LLMInferenceServiceSpec {
	return LLMInferenceServiceSpec{
		Model:              modelFromHub(&in.Model),
		StorageInitializer: in.StorageInitializer,
		WorkloadSpec:       *workloadFromHub(&in.WorkloadSpec),
		Prefill:            workloadFromHub(in.Prefill),
		Router:             routerFromHub(in.Router),
		Tracing:            in.Tracing,
		BaseRefs:           in.BaseRefs,
	}
}

func modelToHub(in *LLMModelSpec) v1alpha2.LLMModelSpec {
	out := v1alpha2.LLMModelSpec{URI: in.URI, Name: in.Name}
	if in.LoRA == nil {
		return out
	}
	out.LoRA = &v1alpha2.LoRASpec{
		MaxRank: in.LoRA.MaxRank, MaxAdapters: in.LoRA.MaxAdapters, MaxCPUAdapters: in.LoRA.MaxCPUAdapters,
	}
	for i := range in.LoRA.Adapters {
		out.LoRA.Adapters = append(out.LoRA.Adapters, modelToHub(&in.LoRA.Adapters[i]))
	}
	return out
}

func modelFromHub(in *v1alpha2.LLMModelSpec) LLMModelSpec {
	out := LLMModelSpec{URI: in.URI, Name: in.Name}
	if in.LoRA == nil {
		return out
	}
	out.LoRA = &LoRASpec{
		MaxRank: in.LoRA.MaxRank, MaxAdapters: in.LoRA.MaxAdapters, MaxCPUAdapters: in.LoRA.MaxCPUAdapters,
	}
	for i := range in.LoRA.Adapters {
		out.LoRA.Adapters = append(out.LoRA.Adapters, modelFromHub(&in.LoRA.Adapters[i]))
	}
	return out
}

func workloadToHub(in *WorkloadSpec) *v1alpha2.WorkloadSpec {
	if in == nil {
		return nil
	}
	return &v1alpha2.WorkloadSpec{
		Replicas: in.Replicas, Scaling: in.Scaling, Parallelism: in.Parallelism,
		Labels: in.Labels, Annotations: in.Annotations,
		Template: in.Template, Worker: in.Worker, RolloutStrategy: in.RolloutStrategy,
	}
}

func workloadFromHub(in *v1alpha2.WorkloadSpec) *WorkloadSpec {
	if in == nil {
		return nil
	}
	return &WorkloadSpec{
		Replicas: in.Replicas, Scaling: in.Scaling, Parallelism: in.Parallelism,
		Labels: in.Labels, Annotations: in.Annotations,
		Template: in.Template, Worker: in.Worker, RolloutStrategy: in.RolloutStrategy,
	}
}

func statusToHub(in *LLMInferenceServiceStatus) v1alpha2.LLMInferenceServiceStatus {
	out := v1alpha2.LLMInferenceServiceStatus{Status: in.Status, URL: in.URL, Address: in.Address}
	for _, address := range in.Addresses {
		out.Addresses = append(out.Addresses, v1alpha2.AddressStatus{Addressable: address})
	}
	if in.Router != nil {
		out.Router = &v1alpha2.RouterStatus{Gateways: in.Router.Gateways, Scheduler: in.Router.Scheduler}
	}
	return out
}

func statusFromHub(in *v1alpha2.LLMInferenceServiceStatus) LLMInferenceServiceStatus {
	out := LLMInferenceServiceStatus{Status: in.Status, URL: in.URL, Address: in.Address}
	for _, address := range in.Addresses {
		out.Addresses = append(out.Addresses, address.Addressable)
	}
	if in.Router != nil {
		out.Router = &RouterStatus{Gateways: in.Router.Gateways, Scheduler: in.Router.Scheduler}
	}
	return out
}
