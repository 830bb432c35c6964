// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/modelplane/modelplane/internal/engine"
)

// annotationHeld, on a Deployment, is the checksum of the pods that we would have made when we took those over that another
// controller left. As long as we would make the same, they stay.
const annotationHeld = "modelplane.dev/held-for"

// hold keeps the pods of a Deployment that another controller left: nobody need be restarted only because somebody else
// looks after them now. It puts them into the Deployment that was planned.
func (p *planner) hold(d *appsv1.Deployment) bool {
	whole := p.place.Whole
	if whole == nil || whole.Spec.Selector == nil || p.runtime.annotations[AnnotationKeepPods] == "false" {
		return false
	}
	digest := digestOf(&d.Spec.Template)
	left := whole.Labels[engine.LabelOwner] == "" && whole.Labels[labelManagedBy] == controllerName
	since := p.place.Child != nil && p.place.Child.Annotations[annotationHeld] == digest
	if !left && !since {
		return false
	}
	d.Spec.Template, d.Spec.Strategy = *whole.Spec.Template.DeepCopy(), *whole.Spec.Strategy.DeepCopy()
	d.Spec.Selector = whole.Spec.Selector.DeepCopy()
	annotations := map[string]string{annotationHeld: digest}
	maps.Copy(annotations, d.Annotations)
	d.Annotations = annotations
	return true
}

func digestOf(of any) string {
	raw, err := json.Marshal(of)
	if err != nil {
		return "" // never: it came from JSON
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}
