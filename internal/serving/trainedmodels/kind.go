// SPDX-License-Identifier: Apache-2.0

package trainedmodels

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
)

// trained is the kind TrainedModel.
type trained struct{}

var _ engine.Kind[*v1alpha1.TrainedModel, Seen] = trained{}

// Controller of TrainedModels.
func Controller() engine.Controller {
	return engine.For[*v1alpha1.TrainedModel, Seen](trained{}, engine.Spec{
		Name:              "trainedmodel",
		KnativeConditions: true,
		OldFinalizers:     []string{v1beta1.FinalizerTrainedModel},
		ReadyEvent:        "TrainedModelReady",
		NotReadyEvent:     "TrainedModelNotReady",
		DeletesSelf:       true,
		Inputs: []engine.Input{
			{Object: &v1beta1.InferenceService{}},
			{Object: &v1alpha1.TrainedModel{}},
			{Object: &v1alpha1.ServingRuntime{}},
			{Object: &v1alpha1.ClusterServingRuntime{}},
		},
	})
}

// Seen is everything that the decision about a model depends on.
type Seen struct {
	// Service that the model names, nil if there is none.
	Service *v1beta1.InferenceService
	// Runtime that says which protocol the service speaks, where it does not.
	Runtime *v1alpha1.ServingRuntimeSpec
	// Models of the service, this one among them. They are looked at only where
	// a limit makes them compete.
	Models []v1alpha1.TrainedModel
}

// Observe implements engine.Kind.
func (trained) Observe(ctx context.Context, r engine.Reader, tm *v1alpha1.TrainedModel) (Seen, error) {
	seen := Seen{Models: []v1alpha1.TrainedModel{*tm}}
	isvc := &v1beta1.InferenceService{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: tm.Namespace, Name: tm.Spec.InferenceService}, isvc); err != nil {
		return seen, client.IgnoreNotFound(err)
	}
	seen.Service = isvc
	if name := RuntimeAsked(&isvc.Spec.Predictor); name != "" {
		var err error
		if seen.Runtime, err = ReadRuntime(ctx, r, isvc.Namespace, name); err != nil {
			return Seen{}, err
		}
	}
	if MultiModel(&isvc.Spec.Predictor) && MemoryLimit(isvc) != nil {
		err := readModels(ctx, r, tm, &seen)
		return seen, err
	}
	return seen, nil
}

func readModels(ctx context.Context, r engine.Reader, tm *v1alpha1.TrainedModel, seen *Seen) error {
	service := tm.Spec.InferenceService
	beside := func(obj client.Object) bool {
		other, ok := obj.(*v1alpha1.TrainedModel)
		return ok && other.Spec.InferenceService == service
	}
	list := &v1alpha1.TrainedModelList{}
	if err := r.List(ctx, list, client.InNamespace(tm.Namespace), engine.MatchingFunc(beside)); err != nil {
		return err
	}
	for i := range list.Items {
		if beside(&list.Items[i]) && list.Items[i].Name != tm.Name {
			seen.Models = append(seen.Models, list.Items[i])
		}
	}
	return nil
}

// fits tells whether the model is among those that the server has memory for.
func (s *Seen) fits(name string) bool {
	fits, _ := Fit(s.Models, MemoryLimit(s.Service))
	return slices.ContainsFunc(fits, func(tm v1alpha1.TrainedModel) bool { return tm.Name == name })
}
