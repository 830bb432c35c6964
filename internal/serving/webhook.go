// SPDX-License-Identifier: Apache-2.0

// Package serving turns InferenceServices and what they refer to into running
// model servers. It decides; reading and writing the cluster is the engine's,
// and other domains are not its business.
package serving

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/admission"
)

// Admission returns the kinds of the domain with the rules that their schemas
// cannot express.
func Admission() ([]admission.Kind, error) {
	kinds, err := admission.Kinds(admission.Serving)
	if err != nil {
		return nil, err
	}
	for i := range kinds {
		if kinds[i].GVK == v1alpha1.GroupVersion.WithKind("ClusterStorageContainer") {
			kinds[i].Validate = validateStorageContainer
		}
	}
	return kinds, nil
}

// What a ClusterStorageContainer may be for.
var workloadTypes = []v1alpha1.WorkloadType{v1alpha1.InitContainer, v1alpha1.LocalModelDownloadJob}

// validateStorageContainer refuses what would otherwise only show when a pod
// that needs the container is made, or never.
func validateStorageContainer(_ context.Context, _, obj client.Object) ([]string, error) {
	c := obj.(*v1alpha1.ClusterStorageContainer)
	var problems field.ErrorList
	if w := c.Spec.WorkloadType; w != "" && !slices.Contains(workloadTypes, w) {
		problems = append(problems, field.NotSupported(field.NewPath("spec", "workloadType"), w, workloadTypes))
	}
	formats := field.NewPath("spec", "supportedUriFormats")
	for i, f := range c.Spec.SupportedUriFormats {
		if f.Prefix == "" && f.Regex == "" {
			problems = append(problems, field.Required(formats.Index(i), "set prefix or regex; an empty entry matches nothing"))
		}
		if _, err := regexp.Compile(f.Regex); err != nil {
			problems = append(problems, field.Invalid(formats.Index(i).Child("regex"), f.Regex, fmt.Sprintf("not a regular expression: %v", err)))
		}
	}
	return nil, problems.ToAggregate()
}
