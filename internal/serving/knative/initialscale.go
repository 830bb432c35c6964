// SPDX-License-Identifier: Apache-2.0

package knative

import (
	"fmt"
	"maps"
	"strconv"
)

// allowZero is the setting of Knative's autoscaler that lets a revision begin without pods.
const allowZero = "allow-zero-initial-scale"

// InitialScale leaves out an initial scale that Knative would refuse, and with it the whole component: one that is
// not a number, or zero where the platform does not allow it. The note tells a person what was left out; it is empty
// when nothing was. autoscaler is the data of Knative's config-autoscaler ConfigMap, nil when there is none.
func InitialScale(annotations, autoscaler map[string]string) (kept map[string]string, note string) {
	value, asked := annotations[annotationInitialScale]
	if !asked {
		return annotations, ""
	}
	scale, err := strconv.Atoi(value)
	switch {
	case err != nil || scale < 0:
		note = fmt.Sprintf("The annotation %s is %q, which is not a number of pods; it is left out. Set it to a whole number or remove it.",
			annotationInitialScale, value)
	case scale == 0 && !zeroAllowed(autoscaler):
		note = fmt.Sprintf("The annotation %s is 0, which this platform's Knative does not allow; it is left out. "+
			"Set %s to true in Knative's ConfigMap config-autoscaler, or remove the annotation.", annotationInitialScale, allowZero)
	default:
		return annotations, ""
	}
	kept = maps.Clone(annotations)
	delete(kept, annotationInitialScale)
	return kept, note
}

func zeroAllowed(autoscaler map[string]string) bool {
	allowed, err := strconv.ParseBool(autoscaler[allowZero])
	return err == nil && allowed
}
