// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
)

// failing are the conditions whose causes are told in events.
var failing = []string{PredictorReady, TransformerReady, ExplainerReady, IngressReady, LatestReady, CanaryReady}

// Events tell each cause once, in the words of its condition: when it is found, and not again while it stays, however
// often a container is restarted. What took the readiness of a service away is told by the engine, and so is a problem.
func (j Judge) Events(s *v1beta1.InferenceServiceStatus, problem *engine.Problem) []engine.Event {
	ready, _ := j.Before(v1beta1.ConditionReady)
	lost := ready.Status == metav1.ConditionTrue && isFalse(s, v1beta1.ConditionReady)
	var out []engine.Event
	for _, c := range s.Conditions {
		if !slices.Contains(failing, c.Type) || c.Status != corev1.ConditionFalse || lost && c.Type != CanaryReady {
			continue
		}
		if c.Type == LatestReady && (j.Seen.Mode == config.ModeKnative || isFalse(s, CanaryReady)) { // only repeats these
			continue
		}
		before, _ := j.Before(c.Type)
		said := before.Status == metav1.ConditionFalse && before.Reason == c.Reason && before.Message == c.Message
		if said || problem != nil && problem.Message == c.Message {
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
