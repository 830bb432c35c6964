// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	webhook "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

var (
	annotations    = field.NewPath("metadata", "annotations")
	modeAnnotation = annotations.Key(v1beta1.AnnotationDeploymentMode)
)

// translated is a mode in its present spelling, or nothing if there is no such
// mode.
func translated(said string) string {
	mode, _ := config.TranslateMode(said)
	return mode
}

// recordedMode is the mode that the service has and keeps, or nothing for a new
// one. While defaults are filled in, the request alone knows the stored object;
// what a client sends as status counts only where no API server watches over it.
func recordedMode(ctx context.Context, isvc *v1beta1.InferenceService) string {
	req, err := webhook.RequestFromContext(ctx)
	if err != nil {
		return translated(isvc.Status.DeploymentMode)
	}
	var old struct {
		Status struct {
			DeploymentMode string `json:"deploymentMode"`
		} `json:"status"`
	}
	if len(req.OldObject.Raw) == 0 || json.Unmarshal(req.OldObject.Raw, &old) != nil {
		return ""
	}
	return translated(old.Status.DeploymentMode)
}

// modeOf is the mode that the service will be run in.
func modeOf(isvc *v1beta1.InferenceService, recorded string, cfg *config.Config) string {
	return cfg.Mode(recorded, isvc.Annotations[v1beta1.AnnotationDeploymentMode])
}

// checkMode looks at the annotation alone. What it says must be known, and must
// be what the service is already run in.
func (s *service) checkMode() {
	said, ok := s.isvc.Annotations[v1beta1.AnnotationDeploymentMode]
	if !ok {
		return
	}
	switch mode := translated(said); {
	case s.recorded != "" && mode != s.recorded:
		s.Refuse(field.Invalid(modeAnnotation, said, fmt.Sprintf("the deployment mode is immutable: deploymentMode cannot be "+
			"changed from '%s' to '%s'; to do so, delete the service and create it anew", s.recorded, said)))
	case mode == "":
		s.Warn(modeAnnotation, "%q is not a deployment mode; %s is used. Choose Standard, Knative or ModelMesh", said, s.mode)
	}
}
