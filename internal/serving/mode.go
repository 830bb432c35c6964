// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"strings"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// modeOf decides how a service is run. A mode that was recorded once stays: its
// children, and the addresses that clients have, depend on it.
func modeOf(isvc *v1beta1.InferenceService, cfg *config.Config) string {
	return cfg.Mode(isvc.Status.DeploymentMode, isvc.Annotations[v1beta1.AnnotationDeploymentMode])
}

// stopped tells whether the user wants nothing to run.
func stopped(isvc *v1beta1.InferenceService) bool {
	return strings.EqualFold(isvc.Annotations[v1beta1.AnnotationStop], "true")
}

func isTrue(isvc *v1beta1.InferenceService, condition string) bool {
	for _, c := range isvc.Status.Conditions {
		if c.Type == condition {
			return c.Status == "True"
		}
	}
	return false
}
