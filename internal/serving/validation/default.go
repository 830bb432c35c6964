// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// Names of containers that model servers and users know.
const (
	mainContainer        = "kserve-container"
	transformerContainer = "transformer-container"
	workerContainer      = "worker-container"
)

// defaultService fills in what users may leave out. It runs on every write, and
// a second time changes nothing.
func (r Rules) defaultService(ctx context.Context, obj client.Object) error {
	cfg, err := r.config(ctx)
	if err != nil {
		return err
	}
	isvc := obj.(*v1beta1.InferenceService)
	fill(isvc, recordedMode(ctx, isvc), cfg)
	return nil
}

func fill(isvc *v1beta1.InferenceService, recorded string, cfg *config.Config) {
	mesh := translated(isvc.Annotations[v1beta1.AnnotationDeploymentMode]) == config.ModeModelMesh
	fillMode(isvc, recorded, cfg)
	predictor := &isvc.Spec.Predictor
	if !mesh {
		fillModel(predictor)
		for i := range isvc.Spec.Canary {
			fillModel(&isvc.Spec.Canary[i].Predictor.PredictorSpec)
		}
		if m := predictor.Model; m != nil && m.ModelFormat.Name != "" {
			annotate(isvc, v1beta1.AnnotationModelFormat, m.ModelFormat.Name)
		}
		fillPredictor(predictor, cfg)
	}
	if t := isvc.Spec.Transformer; t != nil && len(t.Containers) > 0 {
		fillContainer(&t.Containers[0], cfg)
	}
	fillExplainer(isvc.Spec.Explainer, cfg)
	if !cfg.Security.AutoMountServiceAccountToken {
		withholdToken(isvc)
	}
}

// fillMode writes the mode in its present spelling. Knative is the mode that is
// not written: services without the annotation have always been run in it.
func fillMode(isvc *v1beta1.InferenceService, recorded string, cfg *config.Config) {
	if said, ok := isvc.Annotations[v1beta1.AnnotationDeploymentMode]; ok {
		if mode := translated(said); mode != "" {
			isvc.Annotations[v1beta1.AnnotationDeploymentMode] = mode
		}
		return
	}
	if recorded == "" && cfg.FirstUnusable(config.KeyDeploy) != nil {
		return // it would be kept for good, and nobody knows
	}
	if mode := modeOf(isvc, recorded, cfg); mode != config.ModeKnative {
		annotate(isvc, v1beta1.AnnotationDeploymentMode, mode)
	}
}

// annotate adds an annotation unless there is one.
func annotate(isvc *v1beta1.InferenceService, key, value string) {
	if _, ok := isvc.Annotations[key]; ok {
		return
	}
	if isvc.Annotations == nil {
		isvc.Annotations = map[string]string{}
	}
	isvc.Annotations[key] = value
}

// fillModel turns the framework block into a model of that format. It takes the
// place of a model that is already there: that one came from the block when it
// was applied before. Several blocks are left for validation to complain about.
func fillModel(p *v1beta1.PredictorSpec) {
	if set := frameworksOf(p); len(set) == 1 {
		f := set[0]
		p.Model = &v1beta1.ModelSpec{
			ModelFormat:            v1beta1.ModelFormat{Name: f.name},
			PredictorExtensionSpec: **f.spec,
		}
		*f.spec = nil
		if f.v2 && p.Model.ProtocolVersion == nil {
			p.Model.ProtocolVersion = ptr.To(v1beta1.ProtocolV2)
		}
	}
	if m := p.Model; m != nil && m.ProtocolVersion == nil && (m.ModelFormat.Name == "triton" || m.ModelFormat.Name == "vLLM") {
		m.ProtocolVersion = ptr.To(v1beta1.ProtocolV2)
	}
}

// fillPredictor looks at containers of the user. Resources of a model come from
// its runtime and are not filled in: it would restart the pods of services that
// have always run without.
func fillPredictor(p *v1beta1.PredictorSpec, cfg *config.Config) {
	if found := implementations(p); len(found) != 1 || found[0] != customContainers {
		return
	}
	first := &p.Containers[0]
	if len(p.Containers) == 1 || first.Name == "" {
		first.Name = mainContainer
	}
	fillResources(&first.Resources, cfg)
}

func fillExplainer(e *v1beta1.ExplainerSpec, cfg *config.Config) {
	switch {
	case e == nil, e.ART != nil && len(e.Containers) > 0:
	case e.ART != nil:
		fillContainer(e.ART.Core(), cfg)
		if e.ART.RuntimeVersion == nil && cfg.Explainers.Art.DefaultImageVersion != "" {
			e.ART.RuntimeVersion = ptr.To(cfg.Explainers.Art.DefaultImageVersion)
		}
	case len(e.Containers) > 0:
		fillContainer(&e.Containers[0], cfg)
	}
}

func fillContainer(c *corev1.Container, cfg *config.Config) {
	c.Name = mainContainer
	fillResources(&c.Resources, cfg)
}

// fillResources adds what is not said, unless it contradicts what is said: a
// limit below the user's request would only be refused later.
func fillResources(r *corev1.ResourceRequirements, cfg *config.Config) {
	defaults := cfg.InferenceService.Resource.Requirements()
	said := r.DeepCopy()
	for name, limit := range defaults.Limits {
		if request, ok := said.Requests[name]; !ok || request.Cmp(limit) <= 0 {
			put(&r.Limits, name, limit)
		}
	}
	for name, request := range defaults.Requests {
		if limit, ok := said.Limits[name]; !ok || request.Cmp(limit) <= 0 {
			put(&r.Requests, name, request)
		}
	}
}

func put(list *corev1.ResourceList, name corev1.ResourceName, amount resource.Quantity) {
	if _, ok := (*list)[name]; ok {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = amount
}

// withholdToken keeps credentials for the API server out of pods that do not
// ask for them; a model server hardly ever needs any.
func withholdToken(isvc *v1beta1.InferenceService) {
	pods := []*v1beta1.PodSpec{&isvc.Spec.Predictor.PodSpec}
	if t := isvc.Spec.Transformer; t != nil {
		pods = append(pods, &t.PodSpec)
	}
	if e := isvc.Spec.Explainer; e != nil {
		pods = append(pods, &e.PodSpec)
	}
	for _, pod := range pods {
		if pod.AutomountServiceAccountToken == nil {
			pod.AutomountServiceAccountToken = ptr.To(false)
		}
	}
}
