// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// LatestReady is the condition that speaks of the newest pods of a service while they have not taken over.
const LatestReady = "LatestDeploymentReady"

// NewPods is how it begins: with the generation that the pods are of. The one in the status is then that of the pods that
// answer, so that this is where the newest generation is told that something was made of.
func NewPods(isvc *v1beta1.InferenceService) string {
	return fmt.Sprintf("The new pods of generation %d", isvc.Generation)
}

// Changed tells whether a service was changed by its user since something was last made of it. While its newest pods are on
// their way, it was not.
func Changed(isvc *v1beta1.InferenceService) bool {
	return isvc.Status.ObservedGeneration != isvc.Generation && !slices.ContainsFunc(isvc.Status.Conditions, func(c v1beta1.Condition) bool {
		return c.Type == LatestReady && strings.HasPrefix(c.Message, NewPods(isvc)+" ")
	})
}
