// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/ingress"
)

// checkIngress refuses annotations by which the Ingress of a service would reach beyond it.
func (s *service) checkIngress() {
	if s.mode != config.ModeStandard {
		return // has no Ingress
	}
	for _, r := range ingress.Refusals(s.isvc.Annotations, s.cfg) {
		err := field.Forbidden(annotations.Key(r.Annotation), r.Advice())
		err.BadValue = s.isvc.Annotations[r.Annotation] // another one is another problem
		s.Refuse(err)
	}
}
