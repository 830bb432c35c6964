// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// condition is what all kinds of conditions have in common.
type condition struct {
	typ, status, reason, message string
	since                        *metav1.Time
	generation                   int64
}

func conditionsOf(u *unstructured.Unstructured) []condition {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	var out []condition
	for _, item := range list {
		raw, ok := item.(map[string]any)
		if !ok {
			continue
		}
		text := func(key string) string { s, _ := raw[key].(string); return s }
		c := condition{typ: text("type"), status: text("status"), reason: text("reason"), message: text("message")}
		if t, err := time.Parse(time.RFC3339, text("lastTransitionTime")); err == nil {
			c.since = &metav1.Time{Time: t}
		}
		c.generation, _, _ = unstructured.NestedInt64(raw, "observedGeneration")
		out = append(out, c)
	}
	return out
}

func find(conditions []condition, typ string) *condition {
	for i := range conditions {
		if conditions[i].typ == typ {
			return &conditions[i]
		}
	}
	return nil
}

// summaries are the conditions by which kinds say that they work.
var summaries = []string{"Ready", "Available", "Complete", "Accepted", "Programmed"}

// conditionState is for kinds of which nothing more is known.
func conditionState(u *unstructured.Unstructured) (state string, health Health, reason string) {
	all := conditionsOf(u)
	for _, typ := range summaries {
		c := find(all, typ)
		if c == nil {
			continue
		}
		switch c.status {
		case string(metav1.ConditionTrue):
			return strings.ToLower(typ), Well, ""
		case string(metav1.ConditionFalse):
			return "not " + strings.ToLower(typ), Failing, c.reason
		}
		return "not " + strings.ToLower(typ) + " yet", Pending, c.reason
	}
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	return phase, "", ""
}
