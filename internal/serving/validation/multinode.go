// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/kube/address"
)

const gpuNvidia = corev1.ResourceName("nvidia.com/gpu")

// plainResources are those that are no accelerator.
var plainResources = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage,
}

// accelerators are the resources that count as GPUs.
type accelerators []corev1.ResourceName

// acceleratorsFor adds what the configuration and the annotation of an object
// name to the well-known ones. An annotation that cannot be read is reported.
func acceleratorsFor(configured []string, annotation string, at *field.Path) (accelerators, *field.Error) {
	known := accelerators{gpuNvidia, "amd.com/gpu", "intel.com/gpu", "habana.ai/gaudi"}
	for _, name := range configured {
		known = append(known, corev1.ResourceName(name))
	}
	if annotation == "" {
		return known, nil
	}
	var extra []corev1.ResourceName
	if err := json.Unmarshal([]byte(annotation), &extra); err != nil {
		return known, field.Invalid(at, annotation, `must be a list in JSON, for example ["example.com/gpu"]`)
	}
	return append(known, extra...), nil
}

// unknown are resources of a container of which nobody knows whether to count
// them as GPUs, so that the number of nodes cannot be told.
func (known accelerators) unknown(c placed) field.ErrorList {
	var out field.ErrorList
	for _, list := range []struct {
		name string
		corev1.ResourceList
	}{{"limits", c.Resources.Limits}, {"requests", c.Resources.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.ResourceList)) {
			plain := slices.Contains(plainResources, name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
			if plain || slices.Contains(known, name) {
				continue
			}
			out = append(out, field.Invalid(c.path.Child("resources", list.name).Key(string(name)), string(name), fmt.Sprintf(
				"unknown GPU resource type; if it is one, name it in the annotation %s, for example '[%q]'", v1beta1.AnnotationGPUResourceTypes, name)))
		}
	}
	return out
}

// sizes refuses parallel sizes below 1.
func sizes(at *field.Path, pipeline, tensor *int) field.ErrorList {
	var out field.ErrorList
	for _, size := range []struct {
		name  string
		value *int
	}{{"pipelineParallelSize", pipeline}, {"tensorParallelSize", tensor}} {
		if size.value != nil && *size.value < 1 {
			out = append(out, field.Invalid(at.Child(size.name), *size.value, "cannot be less than 1"))
		}
	}
	return out
}

// sizesInEnv refuses variables that are set from the sizes.
func sizesInEnv(c placed) field.ErrorList {
	var out field.ErrorList
	for i, e := range c.Env {
		name, ok := map[string]string{envPipelineSize: "pipelineParallelSize", envTensorSize: "tensorParallelSize"}[e.Name]
		if ok {
			out = append(out, field.Forbidden(c.path.Child("env").Index(i),
				fmt.Sprintf("setting %s in environment variables is not allowed; set workerSpec.%s", e.Name, name)))
		}
	}
	return out
}

// severalWorkers refuses more than one container for workers.
func severalWorkers(containers []corev1.Container, at *field.Path) field.ErrorList {
	if len(containers) <= 1 {
		return nil
	}
	return field.ErrorList{explain(field.TooMany(at, len(containers), 1),
		"setting multiple containers in workerSpec is not allowed; keep "+workerContainer+" alone")}
}

// checkWorkers looks at a predictor that spans several nodes.
func (s *service) checkWorkers() {
	p := s.parts[0]
	worker := p.predictor.WorkerSpec
	if worker == nil {
		return
	}
	at := p.path.Child("workerSpec")
	known, err := acceleratorsFor(s.cfg.MultiNode.CustomGPUResourceTypeList,
		s.isvc.Annotations[v1beta1.AnnotationGPUResourceTypes], annotations.Key(v1beta1.AnnotationGPUResourceTypes))
	if err != nil {
		s.Refuse(err)
	}
	s.Refuse(severalWorkers(worker.Containers, at.Child("containers"))...)
	s.Refuse(sizes(at, worker.PipelineParallelSize, worker.TensorParallelSize)...)
	for _, c := range listed(worker.Containers, at.Child("containers")) {
		s.Refuse(known.unknown(c)...)
	}
	if len(worker.EphemeralContainers) > 0 {
		s.Refuse(ephemeral(at))
	}
	if m := p.predictor.Model; m != nil {
		model := placed{m.Core(), p.path.Child("model")}
		s.Refuse(sizesInEnv(model)...)
		s.Refuse(known.unknown(model)...)
		s.checkSharedModel(model.path, m)
		s.checkFixed()
	}
}

// ephemeral refuses containers that Kubernetes takes on running pods only.
func ephemeral(at *field.Path) *field.Error {
	return field.Forbidden(at.Child("ephemeralContainers"), "a pod template cannot have ephemeral containers; remove the field, and use kubectl debug on a running pod")
}

// checkSharedModel wants all nodes to reach the same model without fetching it
// one by one.
func (s *service) checkSharedModel(at *field.Path, m *v1beta1.ModelSpec) {
	if m.StorageURI == nil {
		s.Refuse(field.Required(at.Child("storageUri"), "StorageURI must be set for multinode enabled; name a model that starts with pvc:// or oci://"))
		return
	}
	if scheme, _, _ := strings.Cut(*m.StorageURI, "://"); scheme != "pvc" && scheme != "oci" {
		s.Refuse(field.Invalid(at.Child("storageUri"), address.Shown(*m.StorageURI), "multinode supports only models that all nodes can mount; "+
			"put it on a claim (pvc://) or into an image (oci://)"))
	}
}

func (s *service) checkFixed() {
	if class := s.isvc.Annotations[v1beta1.AnnotationAutoscalerClass]; class != classNone {
		s.Refuse(field.Invalid(classAnnotation, class, "multinode only supports the 'none' autoscaler, because workers belong to one head; set the annotation to none"))
	}
}
