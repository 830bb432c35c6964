// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
			kinds[i].Validate = validateGraph
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
type report struct {
	errs     field.ErrorList
	warnings []string
}

func (r *report) refuse(errs ...*field.Error) { r.errs = append(r.errs, errs...) }

func (r *report) warn(path *field.Path, format string, args ...any) {
	r.warnings = append(r.warnings, path.String()+": "+fmt.Sprintf(format, args...))
}

// since turns what the stored object already had into warnings.
func (r *report) since(before *report) *report {
	had := map[string]int{}
	for _, err := range before.errs {
		had[key(err)]++
	}
	out := &report{warnings: r.warnings}
	for _, err := range r.errs {
		if had[key(err)] > 0 {
			had[key(err)]--
			out.warnings = append(out.warnings, err.Error()+" (was so before this change)")
			continue
		}
		out.refuse(err)
	}
	return out
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// key names a problem apart from its position in a list. The value belongs to
// it, also where the message does not show it: who changes a wrong value is
// asked for a right one.
func key(err *field.Error) string {
	text := indexes.ReplaceAllString(err.Error(), "[]")
	if err.Type != field.ErrorTypeForbidden {
		return text
	}
	value, encodeErr := json.Marshal(err.BadValue)
	if encodeErr != nil {
		return text
	}
	return text + string(value)
}

// explain adds what to do to an error that only says what is wrong.
func explain(err *field.Error, advice string) *field.Error {
	err.Detail = advice
	return err
}

func (r *report) result() ([]string, error) { return r.warnings, r.errs.ToAggregate() }

// check runs the rules of a kind on an object and, on an update, on the stored
// one for comparison.
func check[T client.Object](old, obj client.Object, rules func(T) *report) *report {
	found := rules(obj.(T))
	if before, ok := old.(T); ok {
		return found.since(rules(before))
	}
	return found
}
