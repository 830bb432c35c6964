// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/kube"
)

func rawConditions(status map[string]any) []map[string]any {
	list, _ := status["conditions"].([]any)
	out := make([]map[string]any, 0, len(list))
	for _, item := range list {
		if c, ok := item.(map[string]any); ok {
			out = append(out, c)
		}
	}
	return out
}

// conditionsOf reads the part that metav1.Condition and Knative's condition share.
func conditionsOf(status map[string]any) kube.Conditions {
	raw := rawConditions(status)
	out := make(kube.Conditions, 0, len(raw))
	for _, c := range raw {
		text := func(k string) string { s, _ := c[k].(string); return s }
		out = append(out, kube.Condition{
			Type: text("type"), Status: metav1.ConditionStatus(text("status")), Reason: text("reason"),
			Message: text("message"), Severity: text("severity"),
		})
	}
	return out
}

// setCondition adds or overwrites one condition in an encoded status.
func setCondition(status map[string]any, typ string, value metav1.ConditionStatus, p *Problem) {
	c := map[string]any{"type": typ, "status": string(value), "reason": p.Reason, "message": shorten(p.Message, 32768)}
	list, _ := status["conditions"].([]any)
	for i, item := range list {
		if old, ok := item.(map[string]any); ok && old["type"] == typ {
			list[i] = c
			return
		}
	}
	status["conditions"] = append(list, c)
}

func dropCondition(status map[string]any, typ string) {
	list, ok := status["conditions"].([]any)
	if !ok {
		return
	}
	kept := make([]any, 0, len(list))
	for _, item := range list {
		if c, ok := item.(map[string]any); !ok || c["type"] != typ {
			kept = append(kept, item)
		}
	}
	status["conditions"] = kept
}

// statusOf encodes the status of an object, which every kind has in a field of
// that name.
func statusOf(obj client.Object) (map[string]any, error) {
	field := reflect.ValueOf(obj).Elem().FieldByName("Status")
	if !field.IsValid() {
		return nil, fmt.Errorf("%T has no status", obj)
	}
	if field.Kind() != reflect.Pointer {
		field = field.Addr()
	}
	status, err := encodeStatus(field.Interface())
	if status == nil {
		status = map[string]any{}
	}
	return status, err
}

// encodeStatus takes the status struct, or a pointer to it; nil gives nil.
func encodeStatus(status any) (map[string]any, error) {
	v := reflect.ValueOf(status)
	if status == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, nil
	}
	if v.Kind() != reflect.Pointer {
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		v = p
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v.Interface())
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	dropNulls(out)
	return out, nil
}

func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len("…")], "") + "…"
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
