// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"maps"
	"strconv"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/serving/runtimes"
	"github.com/modelplane/modelplane/internal/serving/storage"
	"github.com/modelplane/modelplane/internal/serving/trainedmodels"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// PredictorName is the name of the predictor's Deployment and Service.
func PredictorName(isvc *v1beta1.InferenceService, named string) string {
	if named != "" {
		return isvc.Name + "-" + named + "-predictor"
	}
	return isvc.Name + "-predictor"
}

// predictor makes the stable predictor or, from its effective spec, a canary.
func (b *builder) predictor(spec *v1beta1.PredictorSpec) (*Component, *Failure) {
	const of = v1beta1.PredictorComponent
	merged, rt, err := b.merge(spec)
	if err != nil {
		return nil, b.failed(of, err)
	}
	src := predictorSource(spec)
	internal, err := b.fetch(of, src, &merged.Pod)
	if err != nil {
		return nil, b.failed(of, err)
	}
	if internal == nil {
		internal = map[string]string{}
	}
	maps.Copy(internal, b.helpers(of, spec.ComponentExtensionSpec))
	if trainedmodels.MultiModel(spec) {
		maps.Copy(internal, b.agent())
	}
	c := &Component{Runtime: rt, Protocol: merged.Protocol}
	c.Part = workload.Part{
		IsvcName:    b.isvc.Name,
		Component:   of,
		Name:        PredictorName(b.isvc, spec.Name),
		Namespace:   b.isvc.Namespace,
		Labels:      b.labels(of, merged.Labels, b.ownLabels(), spec.Labels),
		Annotations: b.annotations(merged.Annotations, internal, spec.Annotations),
		Pod:         merged.Pod,
		Scale:       spec.ComponentExtensionSpec,
		Generation:  b.isvc.Generation,
	}
	if merged.Worker != nil {
		b.addWorker(c, merged.Worker)
	}
	return c, nil
}

// addWorker makes the predictor span several nodes. The generation in labels
// and names keeps the workers of one version with their own head.
func (b *builder) addWorker(c *Component, w *runtimes.Worker) {
	c.Labels[v1beta1.LabelGeneration] = strconv.FormatInt(b.isvc.Generation, 10)
	labels := b.labels(v1beta1.PredictorComponent, w.Labels, b.ownLabels())
	labels[v1beta1.LabelGeneration] = c.Labels[v1beta1.LabelGeneration]
	c.Part.Worker = &workload.Worker{
		Name:        c.Name + "-worker",
		Labels:      labels,
		Annotations: maps.Clone(c.Annotations),
		Pod:         w.Pod,
		Replicas:    w.Replicas,
	}
	maps.Copy(c.Part.Worker.Annotations, b.seen.Config.FilterAnnotations(w.Annotations))
}

// merge joins what the user wrote with the runtime that serves it.
func (b *builder) merge(spec *v1beta1.PredictorSpec) (*runtimes.Merged, *runtimes.Runtime, error) {
	if spec.Model == nil {
		merged, failure := runtimes.Custom(b.isvc, spec)
		if failure != nil {
			return nil, nil, failure
		}
		return merged, nil, nil
	}
	rt, failure := runtimes.Select(spec.Model, spec.WorkerSpec != nil, b.seen.Runtimes)
	if failure != nil {
		return nil, nil, failure
	}
	merged, failure := runtimes.Merge(b.isvc, spec, rt, b.seen.Config.MultiNode.CustomGPUResourceTypeList)
	if failure != nil {
		return nil, nil, failure
	}
	return merged, rt, nil
}

// predictorSource is where the model comes from.
func predictorSource(spec *v1beta1.PredictorSpec) storage.Source {
	src := storage.Source{URIs: spec.StorageUris, ContainerName: spec.StorageContainerName}
	ext := trainedmodels.Block(spec)
	if ext == nil {
		src.URI = envOf(spec.Containers, mainContainer, envStorageURI)
		return src
	}
	if ext.StorageURI != nil {
		src.URI = *ext.StorageURI
	}
	if ext.Storage != nil {
		src.Spec = &ext.Storage.StorageSpec
	}
	src.Confidential = ext.Confidential
	return src
}

// agent tells the pod webhook to add the container that fetches TrainedModels.
func (b *builder) agent() map[string]string {
	return map[string]string{
		v1beta1.AnnotationAgent:            "true",
		v1beta1.AnnotationConfigVolumeName: ModelConfigName(b.isvc),
		v1beta1.AnnotationConfigMountPath:  configsDir,
		v1beta1.AnnotationModelDir:         modelsDir,
	}
}

// ModelConfigName is the name of the ConfigMap that lists the models of a server that takes several.
func ModelConfigName(isvc *v1beta1.InferenceService) string { return "modelconfig-" + isvc.Name + "-0" }
