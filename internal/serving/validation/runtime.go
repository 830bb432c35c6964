// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/config"
)

// runtimeView is a runtime of a namespace or of the cluster.
type runtimeView struct {
	kind, name, namespace string
	spec                  *v1alpha1.ServingRuntimeSpec
}

func viewRuntime(obj client.Object) *runtimeView {
	switch r := obj.(type) {
	case *v1alpha1.ServingRuntime:
		return &runtimeView{"ServingRuntime", r.Name, r.Namespace, &r.Spec}
	case *v1alpha1.ClusterServingRuntime:
		return &runtimeView{"ClusterServingRuntime", r.Name, "", &r.Spec}
	}
	return nil
}

// validateRuntime refuses runtimes that could not be chosen or started
// reliably.
func (r Rules) validateRuntime(ctx context.Context, old, obj client.Object) ([]string, error) {
	cfg, err := r.config(ctx)
	if err != nil {
		return nil, err
	}
	view := viewRuntime(obj)
	others, err := otherRuntimes(ctx, view)
	if err != nil {
		return nil, err
	}
	found := examineRuntime(view, others, cfg)
	if before := viewRuntime(old); before != nil {
		found = found.Since(examineRuntime(before, others, cfg))
		if before.spec.WorkerSpec != nil && view.spec.WorkerSpec == nil {
			found.Refuse(field.Required(field.NewPath("spec", "workerSpec"), "removing workerSpec where it already exists is not allowed, "+
				"because services that span several nodes may use it; create a runtime under another name"))
		}
	}
	return found.Result()
}

// otherRuntimes are those that compete with a runtime.
func otherRuntimes(ctx context.Context, r *runtimeView) ([]*runtimeView, error) {
	reader := admission.ReaderFrom(ctx)
	if reader == nil {
		return nil, nil
	}
	var out []*runtimeView
	if r.kind == "ServingRuntime" {
		var list v1alpha1.ServingRuntimeList
		if err := reader.List(ctx, &list, client.InNamespace(r.namespace)); err != nil {
			return nil, fmt.Errorf("read the other runtimes: %w", err)
		}
		for i := range list.Items {
			out = append(out, viewRuntime(&list.Items[i]))
		}
	} else {
		var list v1alpha1.ClusterServingRuntimeList
		if err := reader.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("read the other runtimes: %w", err)
		}
		for i := range list.Items {
			out = append(out, viewRuntime(&list.Items[i]))
		}
	}
	out = slices.DeleteFunc(out, func(other *runtimeView) bool { return other.name == r.name })
	slices.SortFunc(out, func(a, b *runtimeView) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

func examineRuntime(r *runtimeView, others []*runtimeView, cfg *config.Config) *report {
	found := &report{}
	root := field.NewPath("spec")
	found.Refuse(priorities(r.spec, root.Child("supportedModelFormats"))...)
	for _, c := range listed(r.spec.Containers, root.Child("containers")) {
		found.Refuse(pythonPath(c)...)
	}
	if r.spec.WorkerSpec != nil {
		examineWorker(found, r.spec, root, cfg)
	}
	if ptr.Deref(r.spec.Disabled, false) {
		return found // it competes with nobody
	}
	for _, other := range others {
		found.Refuse(conflicts(r, other, root.Child("supportedModelFormats"))...)
	}
	return found
}

// priorities wants one priority per format: it is looked up by the name of the
// format alone.
func priorities(spec *v1alpha1.ServingRuntimeSpec, at *field.Path) field.ErrorList {
	var out field.ErrorList
	first := map[string]int32{}
	for i, f := range spec.SupportedModelFormats {
		if !ptr.Deref(f.AutoSelect, false) || f.Priority == nil {
			continue
		}
		if p, ok := first[f.Name]; ok && p != *f.Priority {
			out = append(out, field.Invalid(at.Index(i).Child("priority"), *f.Priority, fmt.Sprintf(
				"different priorities assigned for the model format %s, which has %d above; give all its versions the same", f.Name, p)))
			continue
		}
		first[f.Name] = *f.Priority
	}
	return out
}

// conflicts are formats for which nobody could tell which of two runtimes is to
// be chosen.
func conflicts(r, other *runtimeView, at *field.Path) field.ErrorList {
	if ptr.Deref(other.spec.Disabled, false) || ptr.Deref(r.spec.MultiModel, false) != ptr.Deref(other.spec.MultiModel, false) ||
		!slices.ContainsFunc(r.spec.ProtocolVersions, func(v v1beta1.InferenceServiceProtocol) bool {
			return slices.Contains(other.spec.ProtocolVersions, v)
		}) {
		return nil
	}
	var out field.ErrorList
	for i, f := range r.spec.SupportedModelFormats {
		if slices.ContainsFunc(other.spec.SupportedModelFormats, func(g v1alpha1.SupportedModelFormat) bool { return sameRank(f, g) }) {
			out = append(out, field.Invalid(at.Index(i).Child("priority"), *f.Priority, fmt.Sprintf(
				"same priority assigned for the model format %s in the %s %s; choose another priority, or set autoSelect to false", f.Name, other.kind, other.name)))
		}
	}
	return out
}

func sameRank(a, b v1alpha1.SupportedModelFormat) bool {
	sameVersion := (a.Version == nil) == (b.Version == nil) && ptr.Deref(a.Version, "") == ptr.Deref(b.Version, "")
	return ptr.Deref(a.AutoSelect, false) && ptr.Deref(b.AutoSelect, false) && strings.EqualFold(a.Name, b.Name) && sameVersion &&
		a.Priority != nil && b.Priority != nil && *a.Priority == *b.Priority
}

// examineWorker looks at a runtime for models that span several nodes.
func examineWorker(found *report, spec *v1alpha1.ServingRuntimeSpec, root *field.Path, cfg *config.Config) {
	at, worker := root.Child("workerSpec"), spec.WorkerSpec
	known, err := acceleratorsFor(cfg.MultiNode.CustomGPUResourceTypeList, spec.Annotations[v1beta1.AnnotationGPUResourceTypes],
		root.Child("annotations").Key(v1beta1.AnnotationGPUResourceTypes))
	if err != nil {
		found.Refuse(err)
	}
	for _, c := range listed(spec.Containers, root.Child("containers")) {
		if c.Name == mainContainer {
			found.Refuse(sizesInEnv(c)...)
			found.Refuse(known.unknown(c)...)
		}
	}
	if len(worker.Containers) == 0 {
		found.Refuse(field.Required(at.Child("containers"), "add the container of the workers, named "+workerContainer))
	}
	found.Refuse(severalWorkers(worker.Containers, at.Child("containers"))...)
	for _, c := range listed(worker.Containers, at.Child("containers")) {
		found.Refuse(pythonPath(c)...)
		if c.Name == workerContainer {
			found.Refuse(known.unknown(c)...)
		}
	}
	found.Refuse(sizes(at, worker.PipelineParallelSize, worker.TensorParallelSize)...)
}
