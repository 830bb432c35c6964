// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/kube/address"
)

var (
	trainedModelName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	// The agent beside the server fetches these and no others.
	trainedModelSchemes = []string{"gs://", "http://", "https://", "s3://"}
)

// validateTrainedModel refuses models that the agent could not fetch, and a
// change of memory, by which the model was given its place.
func validateTrainedModel(_ context.Context, old, obj client.Object) ([]string, error) {
	found := admission.Check(old, obj, examineTrainedModel)
	before, _ := old.(*v1alpha1.TrainedModel)
	memory := obj.(*v1alpha1.TrainedModel).Spec.Model.Memory
	if before != nil && before.Spec.Model.Memory.Cmp(memory) != 0 {
		found.Refuse(field.Invalid(field.NewPath("spec", "model", "memory"), memory.String(),
			"the memory is immutable, and was "+before.Spec.Model.Memory.String()+"; set it back, or delete the model and create it anew"))
	}
	return found.Result()
}

func examineTrainedModel(m *v1alpha1.TrainedModel) *report {
	found := &report{}
	name, at := m.Name, field.NewPath("metadata", "name")
	if name == "" && m.GenerateName != "" {
		name, at = m.GenerateName+"xxxxx", field.NewPath("metadata", "generateName")
	}
	if !trainedModelName.MatchString(name) {
		found.Refuse(field.Invalid(at, name, "must consist of letters, digits, '_' and '-'"))
	}
	uri := m.Spec.Model.StorageURI
	if !slices.ContainsFunc(trainedModelSchemes, func(scheme string) bool { return strings.HasPrefix(uri, scheme) }) {
		found.Refuse(field.Invalid(field.NewPath("spec", "model", "storageUri"), address.Shown(uri),
			"must start with one of "+strings.Join(trainedModelSchemes, ", ")+", which the agent can fetch from"))
	}
	return found
}
