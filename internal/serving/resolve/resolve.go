// SPDX-License-Identifier: Apache-2.0

// Package resolve turns the spec of an InferenceService, and the runtimes and settings of the platform that it refers to,
// into components: named pods with labels, annotations and bounds, ready to be run in whatever mode. It is the first
// step of a plan.
//
// It is pure. It knows no Deployment, Knative Service or route, and says nothing in a status: what becomes of the
// components is for the rooms of the modes.
package resolve

import (
	"slices"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// Components are what a service is made of. Parts that it does not have are nil; in ModelMesh mode it has no predictor,
// which is the mesh's own.
type Components struct {
	Predictor              *Component
	Canaries               []*Component
	Transformer, Explainer *Component

	// ImageVolumes says that some component mounts its model as an image.
	ImageVolumes bool
	// Images is how models come that are in images, for the status; empty if there is none or nothing is known.
	Images string
}

// List has the components in the order in which they are told of, without canaries.
func (c *Components) List() []*Component {
	return slices.DeleteFunc([]*Component{c.Predictor, c.Transformer, c.Explainer}, func(c *Component) bool { return c == nil })
}

// Service makes the components that a service asks for in its mode.
func Service(isvc *v1beta1.InferenceService, seen *observed.State) (*Components, *Failure) {
	b := &builder{isvc: isvc, seen: seen}
	out := &Components{}
	var f *Failure
	mesh := seen.Mode == config.ModeModelMesh
	if !mesh {
		if out.Predictor, f = b.predictor(&isvc.Spec.Predictor); f != nil {
			return nil, f
		}
		out.Canaries = b.canaries()
	}
	if isvc.Spec.Transformer != nil {
		if out.Transformer, f = b.transformer(mesh); f != nil {
			return nil, f
		}
	}
	if isvc.Spec.Explainer != nil {
		if out.Explainer, f = b.explainer(); f != nil {
			return nil, f
		}
	}
	for _, c := range append(out.List(), out.Canaries...) {
		if c.Failed == nil {
			c.keepDownloader(seen)
		}
	}
	out.ImageVolumes, out.Images = b.imageVolumes, b.images
	return out, nil
}

// Names makes the components of a service as far as judging what runs goes: by their names. It never fails.
func Names(isvc *v1beta1.InferenceService, seen *observed.State) *Components {
	part := func(of v1beta1.ComponentType, name string, scale v1beta1.ComponentExtensionSpec) *Component {
		return &Component{Part: workload.Part{Component: of, Name: name, Scale: scale}}
	}
	around := func(of v1beta1.ComponentType) string { return isvc.Name + "-" + string(of) }
	out := &Components{}
	spec := &isvc.Spec
	out.Predictor = part(v1beta1.PredictorComponent, PredictorName(isvc, spec.Predictor.Name), spec.Predictor.ComponentExtensionSpec)
	if worker := out.Predictor.Name + "-worker"; seen.Deployments[worker] != nil {
		out.Predictor.Part.Worker = &workload.Worker{Name: worker}
	}
	if t := spec.Transformer; t != nil {
		out.Transformer = part(v1beta1.TransformerComponent, around(v1beta1.TransformerComponent), t.ComponentExtensionSpec)
	}
	if e := spec.Explainer; e != nil {
		out.Explainer = part(v1beta1.ExplainerComponent, around(v1beta1.ExplainerComponent), e.ComponentExtensionSpec)
	}
	return out
}

// DeploymentNames are those that a service may have in the cluster.
func DeploymentNames(isvc *v1beta1.InferenceService) []string {
	stable := PredictorName(isvc, isvc.Spec.Predictor.Name)
	names := []string{stable, stable + "-worker", isvc.Name + "-transformer", isvc.Name + "-explainer"}
	for i := range isvc.Spec.Canary {
		names = append(names, PredictorName(isvc, isvc.Spec.Canary[i].Predictor.Name))
	}
	return names
}
