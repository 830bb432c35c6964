// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"
)

// mutate answers one request for the mutating path. The patch holds what Default
// changed and nothing else: fields the Go type does not know, or writes in
// another form, stay as the user wrote them.
func (k Kind) mutate(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	seen, refused := k.read(req)
	if refused != nil {
		return *refused
	}
	if seen.deleting() {
		return admission.Allowed("")
	}
	result, err := edit(req.Object.Raw, seen.object, func() error {
		return k.Default(admission.NewContextWithRequest(ctx, req), seen.object)
	})
	if err != nil {
		return k.answer(req, nil, err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, result)
}

// edit returns raw with the changes that change makes to obj, and nothing else
// touched: fields the Go type does not know, or writes in another form, stay as
// they were.
func edit(raw []byte, obj client.Object, change func() error) ([]byte, error) {
	before, err := generic(obj)
	if err != nil {
		return nil, err
	}
	if err := change(); err != nil {
		return nil, err
	}
	after, err := generic(obj)
	if err != nil {
		return nil, err
	}
	var original any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &original); err != nil {
		return nil, err
	}
	return json.Marshal(carry(original, before, after))
}

// generic returns an object as it looks on the wire.
func generic(obj client.Object) (any, error) {
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var out any
	err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &out)
	return out, err
}

// carry applies to original the changes between before and after. Lists are
// compared by position; one that became shorter is taken over whole.
func carry(original, before, after any) any {
	if reflect.DeepEqual(before, after) {
		return original
	}
	switch after := after.(type) {
	case map[string]any:
		if o, b, ok := both[map[string]any](original, before); ok {
			return carryMap(o, b, after)
		}
	case []any:
		if o, b, ok := both[[]any](original, before); ok && len(o) == len(b) && len(after) >= len(b) {
			return carryList(o, b, after)
		}
	}
	return after
}

func both[T any](original, before any) (o, b T, ok bool) {
	b, okB := before.(T)
	if original == nil {
		return o, b, okB && reflect.ValueOf(b).Len() == 0
	}
	o, okO := original.(T)
	return o, b, okO && okB
}

func carryMap(original, before, after map[string]any) map[string]any {
	out := make(map[string]any, len(original))
	for key, value := range original {
		if _, was := before[key]; was && !has(after, key) {
			continue
		}
		out[key] = value
	}
	for key, value := range after {
		if was, ok := before[key]; ok && reflect.DeepEqual(was, value) {
			continue
		}
		out[key] = carry(original[key], before[key], value)
	}
	return out
}

func has(m map[string]any, key string) bool {
	_, ok := m[key]
	return ok
}

func carryList(original, before, after []any) []any {
	out := make([]any, 0, len(after))
	for i := range before {
		out = append(out, carry(original[i], before[i], after[i]))
	}
	return append(out, after[len(before):]...)
}
