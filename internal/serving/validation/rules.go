// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/config"
)

// Rules are the rules of the serving kinds.
type Rules struct {
	// Config is where the settings come from. Without it, or while it has none,
	// they are read from the ConfigMap among the objects of the request's reader,
	// which is how it is without a cluster.
	Config config.Source
}

// Apply adds the rules to the kinds that have some.
func (r Rules) Apply(kinds []admission.Kind) {
	for i := range kinds {
		switch kinds[i].GVK {
		case v1beta1.GroupVersion.WithKind("InferenceService"):
			kinds[i].Default, kinds[i].Validate = r.defaultService, r.validateService
		case v1alpha1.GroupVersion.WithKind("ServingRuntime"), v1alpha1.GroupVersion.WithKind("ClusterServingRuntime"):
			kinds[i].Validate = r.validateRuntime
		case v1alpha1.GroupVersion.WithKind("InferenceGraph"):
			kinds[i].Validate = r.validateGraph
		case v1alpha1.GroupVersion.WithKind("TrainedModel"):
			kinds[i].Validate = validateTrainedModel
		case v1alpha1.GroupVersion.WithKind("ClusterStorageContainer"):
			kinds[i].Validate = validateStorageContainer
		}
	}
}

func (r Rules) config(ctx context.Context) (*config.Config, error) {
	if r.Config != nil {
		if cfg := r.Config.Current(); cfg != nil {
			return cfg, nil
		}
	}
	reader := admission.ReaderFrom(ctx)
	if reader == nil {
		return config.Default(), nil
	}
	var maps corev1.ConfigMapList
	if err := reader.List(ctx, &maps); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	for i := range maps.Items {
		if maps.Items[i].Name == config.Name {
			cfg, _ := config.Parse(maps.Items[i].Data, nil)
			return cfg, nil
		}
	}
	return config.Default(), nil
}

// report collects what is to be said about one object.
type report = admission.Report

// explain adds what to do to an error that only says what is wrong.
func explain(err *field.Error, advice string) *field.Error {
	err.Detail = advice
	return err
}
