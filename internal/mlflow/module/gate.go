// SPDX-License-Identifier: Apache-2.0

package module

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/components/v1alpha1"
)

// Condition of an MLflow that says whether the module lets it go on.
const Condition = "MLflowOperatorReady"

// Gate judges the module on behalf of an MLflow; m is nil while there is none.
// Serving tells that nothing but the module's own deletion is in the way, so that
// the server is as it was.
func Gate(m *v1alpha1.MLflowOperator) (c metav1.Condition, open, serving bool) {
	c = metav1.Condition{Type: Condition, Status: metav1.ConditionFalse}
	if m == nil {
		c.Reason, c.Message = "MLflowOperatorMissing", "There is no MLflowOperator "+v1alpha1.MLflowOperatorName+". Let the platform create it."
		return c, false, false
	}
	said := find(m, ready)
	switch {
	case said == nil:
		c.Reason, c.Message = "MLflowOperatorNotReady", "The MLflowOperator has not said yet whether it is ready. Wait for it."
	case m.DeletionTimestamp == nil && (m.Status.ObservedGeneration != m.Generation || said.ObservedGeneration != m.Generation):
		c.Reason, c.Message = "MLflowOperatorStatusStale", "The status of the MLflowOperator speaks of an earlier spec. Wait for it."
	case said.Status == metav1.ConditionTrue:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ready, "The MLflowOperator is ready."
		return c, true, true
	default:
		c.Reason, c.Message = said.Reason, said.Message
		if c.Reason == "" {
			c.Reason = "MLflowOperatorNotReady"
		}
	}
	return c, false, c.Reason == stillInUse
}

func find(m *v1alpha1.MLflowOperator, typ string) *v1alpha1.Condition {
	for i := range m.Status.Conditions {
		if m.Status.Conditions[i].Type == typ {
			return &m.Status.Conditions[i]
		}
	}
	return nil
}

// Domain is where people reach the gateway, as an address; empty if the module
// does not say.
func Domain(m *v1alpha1.MLflowOperator) string {
	if m == nil || m.Spec.Gateway == nil || m.Spec.Gateway.Domain == "" {
		return ""
	}
	domain := strings.TrimRight(m.Spec.Gateway.Domain, "/")
	if strings.Contains(domain, "://") {
		return domain
	}
	return "https://" + domain
}
