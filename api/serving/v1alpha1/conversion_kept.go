// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha2"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// What one version cannot say is carried in an annotation of the other. The names
// belong to conversion alone: each direction consumes one, writes the other and
// drops what it cannot read, because a conversion that fails on one object would
// make lists of all of them fail.
const (
	// KeptFromV1alpha2 stands on v1alpha1 objects, in the annotations of the object
	// for the spec and in those of the status for the status.
	KeptFromV1alpha2 = "internal." + v1beta1.Group + "/kept-from-v1alpha2"

	// KeptFromV1alpha1 stands on v1alpha2 objects and holds the criticalities of
	// adapters of adapters, by position such as "0.1". The positions of the adapters
	// themselves stand in the annotation that is there for them.
	KeptFromV1alpha1 = "internal." + v1beta1.Group + "/kept-from-v1alpha1"
)

// keptSpec is what a v1alpha1 spec cannot say.
type keptSpec struct {
	Model                    *keptModel                      `json:"model,omitempty"`
	KVCacheOffloading        *v1alpha2.KVCacheOffloadingSpec `json:"kvCacheOffloading,omitempty"`
	PrefillKVCacheOffloading *v1alpha2.KVCacheOffloadingSpec `json:"prefillKVCacheOffloading,omitempty"`
	AppProtocol              inferencev1.AppProtocol         `json:"appProtocol,omitempty"`
	MoreTargetPorts          []inferencev1.Port              `json:"moreTargetPorts,omitempty"`
}

// keptModel is what a v1alpha1 model cannot say; adapters go by name, so that
// nothing is given to the wrong one when the list changes meanwhile.
type keptModel struct {
	Confidential *v1beta1.ConfidentialSpec `json:"confidential,omitempty"`
	Adapters     map[string]*keptModel     `json:"adapters,omitempty"`
}

func keptSpecOf(in *v1alpha2.LLMInferenceServiceSpec) keptSpec {
	kept := keptSpec{Model: keptModelOf(&in.Model), KVCacheOffloading: in.KVCacheOffloading}
	if in.Prefill != nil {
		kept.PrefillKVCacheOffloading = in.Prefill.KVCacheOffloading
	}
	if pool := poolOf(in); pool != nil {
		kept.AppProtocol = pool.AppProtocol
		if len(pool.TargetPorts) > 1 {
			kept.MoreTargetPorts = pool.TargetPorts[1:]
		}
	}
	return kept
}

func (k keptSpec) restore(spec *v1alpha2.LLMInferenceServiceSpec) {
	k.Model.restore(&spec.Model)
	spec.KVCacheOffloading = k.KVCacheOffloading
	if spec.Prefill != nil {
		spec.Prefill.KVCacheOffloading = k.PrefillKVCacheOffloading
	}
	if pool := poolOf(spec); pool != nil {
		pool.AppProtocol = k.AppProtocol
		for _, port := range k.MoreTargetPorts {
			if !slices.Contains(pool.TargetPorts, port) {
				pool.TargetPorts = append(pool.TargetPorts, port)
			}
		}
	}
}

func poolOf(spec *v1alpha2.LLMInferenceServiceSpec) *inferencev1.InferencePoolSpec {
	if spec.Router == nil || spec.Router.Scheduler == nil || spec.Router.Scheduler.Pool == nil {
		return nil
	}
	return spec.Router.Scheduler.Pool.Spec
}

// keptModelOf returns nil when v1alpha1 can say it all.
func keptModelOf(in *v1alpha2.LLMModelSpec) *keptModel {
	kept := keptModel{Confidential: in.Confidential, Adapters: map[string]*keptModel{}}
	if in.LoRA != nil {
		for i := range in.LoRA.Adapters {
			if adapter := keptModelOf(&in.LoRA.Adapters[i]); adapter != nil {
				kept.Adapters[adapterKey(i, in.LoRA.Adapters[i].Name)] = adapter
			}
		}
	}
	if kept.Confidential == nil && len(kept.Adapters) == 0 {
		return nil
	}
	return &kept
}

func (k *keptModel) restore(model *v1alpha2.LLMModelSpec) {
	if k == nil {
		return
	}
	model.Confidential = k.Confidential
	if model.LoRA == nil {
		return
	}
	for i := range model.LoRA.Adapters {
		k.Adapters[adapterKey(i, model.LoRA.Adapters[i].Name)].restore(&model.LoRA.Adapters[i])
	}
}

// adapterKey falls back to the position for an adapter without a name, which
// admission refuses but an old object may have.
func adapterKey(position int, name *string) string {
	if name == nil {
		return "#" + strconv.Itoa(position)
	}
	return *name
}

// keptStatus is what a v1alpha1 status of either kind cannot say.
type keptStatus struct {
	Addresses      []keptAddress                     `json:"addresses,omitempty"`
	Group          *v1alpha2.RouteGroupStatus        `json:"group,omitempty"`
	Workloads      *v1alpha2.WorkloadsStatus         `json:"workloads,omitempty"`
	AppliedConfigs []v1alpha2.AppliedConfig          `json:"appliedConfigs,omitempty"`
	ReferencedBy   []v1alpha2.UntypedObjectReference `json:"referencedBy,omitempty"`
}

// keptAddress belongs to the address at the same position.
type keptAddress struct {
	Origin *gatewayv1.ObjectReference `json:"origin,omitempty"`
	Models []v1alpha2.AddressModel    `json:"models,omitempty"`
}

func keptStatusOf(in *v1alpha2.LLMInferenceServiceStatus) keptStatus {
	kept := keptStatus{Workloads: in.Workloads, AppliedConfigs: in.AppliedConfigs}
	said := true
	for _, address := range in.Addresses {
		said = said && address.Origin == nil && len(address.Models) == 0
		kept.Addresses = append(kept.Addresses, keptAddress{Origin: address.Origin, Models: address.Models})
	}
	if said {
		kept.Addresses = nil
	}
	if in.Router != nil {
		kept.Group = in.Router.Group
	}
	return kept
}

func (k keptStatus) restore(status *v1alpha2.LLMInferenceServiceStatus) {
	status.Workloads, status.AppliedConfigs = k.Workloads, k.AppliedConfigs
	if len(k.Addresses) == len(status.Addresses) {
		for i, kept := range k.Addresses {
			status.Addresses[i].Origin, status.Addresses[i].Models = kept.Origin, kept.Models
		}
	}
	if status.Router != nil {
		status.Router.Group = k.Group
	}
}

// keepCriticality moves the criticalities, which v1alpha2 has no field for, to
// annotations.
func keepCriticality(annotations *map[string]string, model *LLMModelSpec) {
	if model.Criticality != nil {
		set(annotations, v1beta1.AnnotationModelCriticality, string(*model.Criticality))
	} else {
		remove(annotations, v1beta1.AnnotationModelCriticality)
	}
	direct, nested := map[string]Criticality{}, map[string]Criticality{}
	eachAdapter(model, "", func(position string, adapter *LLMModelSpec) {
		switch {
		case adapter.Criticality == nil:
		case strings.Contains(position, "."):
			nested[position] = *adapter.Criticality
		default:
			direct[position] = *adapter.Criticality
		}
	})
	setCriticalities(annotations, v1beta1.AnnotationLoRACriticalities, direct)
	setCriticalities(annotations, KeptFromV1alpha1, nested)
}

func setCriticalities(annotations *map[string]string, key string, by map[string]Criticality) {
	if len(by) == 0 {
		remove(annotations, key)
		return
	}
	text, err := json.Marshal(by)
	if err != nil {
		panic(fmt.Sprintf("a map of strings has no JSON: %v", err))
	}
	set(annotations, key, string(text))
}

// restoreCriticality moves the criticalities back to where they belong.
func restoreCriticality(annotations *map[string]string, model *LLMModelSpec) {
	if text, ok := (*annotations)[v1beta1.AnnotationModelCriticality]; ok {
		criticality := Criticality(text)
		model.Criticality = &criticality
	}
	by := map[string]Criticality{}
	for _, key := range []string{v1beta1.AnnotationLoRACriticalities, KeptFromV1alpha1} {
		_ = json.Unmarshal([]byte((*annotations)[key]), &by)
		remove(annotations, key)
	}
	remove(annotations, v1beta1.AnnotationModelCriticality)
	eachAdapter(model, "", func(position string, adapter *LLMModelSpec) {
		if criticality, ok := by[position]; ok {
			adapter.Criticality = &criticality
		}
	})
}

// eachAdapter visits the adapters of a model and theirs in turn, with the
// position of each.
func eachAdapter(model *LLMModelSpec, prefix string, visit func(position string, adapter *LLMModelSpec)) {
	if model.LoRA == nil {
		return
	}
	for i := range model.LoRA.Adapters {
		position := prefix + strconv.Itoa(i)
		visit(position, &model.LoRA.Adapters[i])
		eachAdapter(&model.LoRA.Adapters[i], position+".", visit)
	}
}

func takeSpec(annotations *map[string]string) (kept keptSpec) {
	take(annotations, &kept)
	return kept
}

func takeStatus(annotations *map[string]string) (kept keptStatus) {
	take(annotations, &kept)
	return kept
}

// take reads and removes what was kept; text that cannot be read counts as none.
func take[T any](annotations *map[string]string, kept *T) {
	if err := json.Unmarshal([]byte((*annotations)[KeptFromV1alpha2]), kept); err != nil {
		*kept = *new(T)
	}
	remove(annotations, KeptFromV1alpha2)
}

// put keeps what the version cannot say, or nothing when it can say it all.
func put[T any](annotations *map[string]string, kept T) error {
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	if string(text) == "{}" {
		remove(annotations, KeptFromV1alpha2)
		return nil
	}
	set(annotations, KeptFromV1alpha2, string(text))
	return nil
}

func set(annotations *map[string]string, key, value string) {
	if *annotations == nil {
		*annotations = map[string]string{}
	}
	(*annotations)[key] = value
}

// remove leaves no empty map behind, so that an object without annotations comes
// back without them.
func remove(annotations *map[string]string, key string) {
	if _, ok := (*annotations)[key]; !ok {
		return
	}
	delete(*annotations, key)
	if len(*annotations) == 0 {
		*annotations = nil
	}
}
