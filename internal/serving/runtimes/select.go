// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// candidate points into Candidates, so that looking at many runtimes copies none.
type candidate struct {
	meta    *metav1.ObjectMeta
	spec    *v1alpha1.ServingRuntimeSpec
	cluster bool
}

// all yields the runtimes, those of the namespace first.
func (c Candidates) all(yield func(candidate) bool) {
	for i := range c.Namespaced {
		if !yield(candidate{meta: &c.Namespaced[i].ObjectMeta, spec: &c.Namespaced[i].Spec}) {
			return
		}
	}
	for i := range c.Cluster {
		if !yield(candidate{meta: &c.Cluster[i].ObjectMeta, spec: &c.Cluster[i].Spec, cluster: true}) {
			return
		}
	}
}

func (c candidate) runtime() *Runtime {
	return &Runtime{Name: c.meta.Name, Cluster: c.cluster, Annotations: c.meta.Annotations, Spec: *c.spec}
}

// Select chooses the runtime for a model: the one that it names, or else the
// best of those that may be chosen. multiNode tells whether the predictor has
// workers.
func Select(model *v1beta1.ModelSpec, multiNode bool, c Candidates) (*Runtime, *Failure) {
	if model.Runtime != nil && *model.Runtime != "" {
		return named(model, c)
	}
	return automatic(model, multiNode, c)
}

// named looks the runtime up. What decides automatic choice only (autoSelect,
// priorities, one model or many) does not bind a user who knows the runtime.
func named(model *v1beta1.ModelSpec, c Candidates) (*Runtime, *Failure) {
	for found := range c.all {
		if found.meta.Name != *model.Runtime {
			continue
		}
		if isTrue(found.spec.Disabled) {
			return nil, &Failure{Reason: v1beta1.RuntimeDisabled, Message: fmt.Sprintf(
				"%s is disabled: set its spec.disabled to false, or name another runtime in spec.predictor.model.runtime.",
				found.runtime())}
		}
		if p := model.ProtocolVersion; p != nil && !speaks(found.spec, *p) {
			return nil, &Failure{Reason: v1beta1.NoSupportingRuntime, Message: fmt.Sprintf(
				"%s does not speak protocol %s, only %s: change spec.predictor.model.protocolVersion or the runtime.",
				found.runtime(), clip(string(*p)), list(found.spec.ProtocolVersions))}
		}
		if !serves(found.spec, model.ModelFormat, false) {
			return nil, &Failure{Reason: v1beta1.NoSupportingRuntime, Message: fmt.Sprintf(
				"%s does not serve %s, only %s: change spec.predictor.model.modelFormat, or name another runtime.",
				found.runtime(), formatName(model.ModelFormat), formats(found.spec, ""))}
		}
		return found.runtime(), nil
	}
	return nil, notRecognized(model, c)
}

// automatic takes the best of the runtimes that may serve the model unasked.
func automatic(model *v1beta1.ModelSpec, multiNode bool, c Candidates) (*Runtime, *Failure) {
	protocol := protocolOf(model)
	var best candidate
	for found := range c.all {
		if obstacle(found.spec, model.ModelFormat, protocol, multiNode) != none {
			continue
		}
		if best.spec == nil || prefer(found, best, model.ModelFormat.Name) < 0 {
			best = found
		}
	}
	if best.spec == nil {
		return nil, noneFits(model, multiNode, c)
	}
	return best.runtime(), nil
}

// hindrance is why a runtime cannot be chosen. The further down, the nearer
// the runtime came to being the one.
type hindrance int

const (
	otherFormat hindrance = iota
	otherVersion
	notOffered
	manyModels
	otherProtocol
	noWorkers
	workersOnly
	disabled
	none
)

// obstacle tells why a runtime may not be chosen unasked.
func obstacle(rt *v1alpha1.ServingRuntimeSpec, format v1beta1.ModelFormat, protocol v1beta1.InferenceServiceProtocol, multiNode bool) hindrance {
	switch {
	case !serves(rt, v1beta1.ModelFormat{Name: format.Name}, false):
		return otherFormat
	case !serves(rt, format, false):
		return otherVersion
	case !serves(rt, format, true):
		return notOffered
	case isTrue(rt.MultiModel):
		return manyModels
	case !speaks(rt, protocol):
		return otherProtocol
	case multiNode && rt.WorkerSpec == nil:
		return noWorkers
	case !multiNode && rt.WorkerSpec != nil:
		return workersOnly
	case isTrue(rt.Disabled):
		return disabled
	}
	return none
}

// prefer orders two runtimes that could both serve: the namespace before the
// cluster, then priority, the plainer protocol, the newer one, the name.
func prefer(a, b candidate, format string) int {
	if a.cluster != b.cluster {
		if b.cluster {
			return -1
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(priority(b.spec, format), priority(a.spec, format)),
		cmp.Compare(lowestRank(a.spec), lowestRank(b.spec)),
		b.meta.CreationTimestamp.Compare(a.meta.CreationTimestamp.Time),
		cmp.Compare(a.meta.Name, b.meta.Name),
	)
}

// priority is what the first entry of the format says, whatever its version;
// zero, which no entry can ask for, stands for none.
func priority(rt *v1alpha1.ServingRuntimeSpec, format string) int32 {
	for i := range rt.SupportedModelFormats {
		f := &rt.SupportedModelFormats[i]
		if f.Name != format {
			continue
		}
		if f.Priority == nil {
			return 0
		}
		return *f.Priority
	}
	return 0
}

// serves tells whether a runtime takes a format. A model without a version
// takes any; one with a version takes exactly that one. Unasked counts only
// what the runtime offers for automatic choice.
func serves(rt *v1alpha1.ServingRuntimeSpec, format v1beta1.ModelFormat, unasked bool) bool {
	for i := range rt.SupportedModelFormats {
		f := &rt.SupportedModelFormats[i]
		if f.Name != format.Name || unasked && !isTrue(f.AutoSelect) {
			continue
		}
		if format.Version == nil || f.Version != nil && *f.Version == *format.Version {
			return true
		}
	}
	return false
}

// speaks tells whether a runtime knows a protocol; one that lists none is taken
// to know all.
func speaks(rt *v1alpha1.ServingRuntimeSpec, p v1beta1.InferenceServiceProtocol) bool {
	return len(rt.ProtocolVersions) == 0 || slices.Contains(rt.ProtocolVersions, p)
}

func protocolOf(model *v1beta1.ModelSpec) v1beta1.InferenceServiceProtocol {
	if model.ProtocolVersion != nil {
		return *model.ProtocolVersion
	}
	return v1beta1.ProtocolV1
}

// ranked lists the protocols from the plainest on.
var ranked = []v1beta1.InferenceServiceProtocol{
	v1beta1.ProtocolV1, v1beta1.ProtocolV2, v1beta1.ProtocolGRPCV1, v1beta1.ProtocolGRPCV2,
}

// rank is the place of a protocol in that list, and after it if it is unknown.
func rank(p v1beta1.InferenceServiceProtocol) int {
	if i := slices.Index(ranked, p); i >= 0 {
		return i
	}
	return len(ranked)
}

// lowestRank is that of the plainest protocol that a runtime speaks.
func lowestRank(rt *v1alpha1.ServingRuntimeSpec) int {
	lowest := len(ranked)
	for _, p := range rt.ProtocolVersions {
		lowest = min(lowest, rank(p))
	}
	return lowest
}

// Concerns tells which runtimes may matter to a model, so that a change to any
// other wakes nobody: the one it names, or all that know its format.
func Concerns(model *v1beta1.ModelSpec) func(client.Object) bool {
	if model.Runtime != nil && *model.Runtime != "" {
		name := *model.Runtime
		return func(obj client.Object) bool { return obj.GetName() == name }
	}
	format := v1beta1.ModelFormat{Name: model.ModelFormat.Name}
	return func(obj client.Object) bool {
		switch rt := obj.(type) {
		case *v1alpha1.ServingRuntime:
			return serves(&rt.Spec, format, false)
		case *v1alpha1.ClusterServingRuntime:
			return serves(&rt.Spec, format, false)
		}
		return false
	}
}

func isTrue(b *bool) bool { return b != nil && *b }
