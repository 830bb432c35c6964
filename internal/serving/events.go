// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
)

// failing are the conditions whose causes are told in events.
var failing = []string{predictorReady, transformerReady, explainerReady, ingressReady, canaryReady}

// failures tell each cause once, in the words of its condition: when it is found, and not again while it stays, however
// often a container is restarted. What took the readiness of a service away is told by the engine, and so is a problem.
func (p *planner) failures(s *v1beta1.InferenceServiceStatus) []engine.Event {
	ready, _ := p.before(v1beta1.ConditionReady)
	lost := ready.Status == metav1.ConditionTrue && isFalse(s, v1beta1.ConditionReady)
	var out []engine.Event
	for _, c := range s.Conditions {
		if !slices.Contains(failing, c.Type) || c.Status != corev1.ConditionFalse || lost && c.Type != canaryReady {
			continue
		}
		before, _ := p.before(c.Type)
		said := before.Status == metav1.ConditionFalse && before.Reason == c.Reason && before.Message == c.Message
		if said || p.problem != nil && p.problem.Message == c.Message {
			continue
		}
		event := engine.Event{Warning: true, Reason: c.Reason, Message: c.Message}
		if !slices.Contains(out, event) {
			out = append(out, event)
		}
	}
	return out
}

func isFalse(s *v1beta1.InferenceServiceStatus, typ string) bool {
	return slices.ContainsFunc(s.Conditions, func(c v1beta1.Condition) bool {
		return c.Type == typ && c.Status == corev1.ConditionFalse
	})
}
