// SPDX-License-Identifier: Apache-2.0

package validation

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

// What a ClusterStorageContainer may be for.
var workloadTypes = []v1alpha1.WorkloadType{v1alpha1.InitContainer, v1alpha1.LocalModelDownloadJob}

// validateStorageContainer refuses what would otherwise only show when a pod
// that needs the container is made, or never.
func validateStorageContainer(_ context.Context, old, obj client.Object) ([]string, error) {
	return admission.Check(old, obj, examineStorageContainer).Result()
}

func examineStorageContainer(c *v1alpha1.ClusterStorageContainer) *report {
	found := &report{}
	if w := c.Spec.WorkloadType; w != "" && !slices.Contains(workloadTypes, w) {
		found.Refuse(field.NotSupported(field.NewPath("spec", "workloadType"), w, workloadTypes))
	}
	formats := field.NewPath("spec", "supportedUriFormats")
	for i, f := range c.Spec.SupportedUriFormats {
		if f.Prefix == "" && f.Regex == "" {
			found.Refuse(field.Required(formats.Index(i), "set prefix or regex; an empty entry matches nothing"))
		}
		if f.Prefix != "" && f.Regex != "" {
			found.Warn(formats.Index(i).Child("regex"), "has no effect beside prefix; put it into an entry of its own")
		}
		if _, err := regexp.Compile(f.Regex); err != nil {
			found.Refuse(field.Invalid(formats.Index(i).Child("regex"), f.Regex, fmt.Sprintf("not a regular expression: %v", err)))
		}
	}
	return found
}
