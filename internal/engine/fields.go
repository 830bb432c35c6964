// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownedFields returns the raw managed-fields entry of an applier, nil if it has
// none.
func ownedFields(managed []metav1.ManagedFieldsEntry, fieldOwner string) []byte {
	for _, m := range managed {
		if m.Manager == fieldOwner && m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == "" && m.FieldsV1 != nil {
			return m.FieldsV1.GetRawBytes()
		}
	}
	return nil
}

// covers tells whether a managed-fields entry still owns every field of an
// intent. It reads the wire form (f: fields, k: list items by key, v: set
// items) against the intent and so needs no schema.
func covers(raw []byte, intent map[string]any) bool {
	var tree map[string]any
	if len(raw) == 0 || json.Unmarshal(raw, &tree) != nil {
		return false
	}
	for name, value := range intent {
		switch name {
		case "apiVersion", "kind":
			continue // never owned
		case "metadata":
			value = withoutIdentity(value)
		}
		node, ok := tree["f:"+name].(map[string]any)
		if !ok || !coversValue(node, value) {
			return false
		}
	}
	return true
}

// withoutIdentity drops the fields of metadata that the API server never
// records as owned.
func withoutIdentity(metadata any) any {
	m, ok := metadata.(map[string]any)
	if !ok {
		return metadata
	}
	out := make(map[string]any, len(m))
	for k, v := range m {
		if k != "name" && k != "namespace" {
			out[k] = v
		}
	}
	return out
}

func coversValue(node map[string]any, value any) bool {
	if len(node) == 0 {
		return true // a leaf: the value as a whole is owned
	}
	switch value := value.(type) {
	case map[string]any:
		for k, v := range value {
			child, ok := node["f:"+k].(map[string]any)
			if !ok || !coversValue(child, v) {
				return false
			}
		}
		return true
	case []any:
		for _, item := range value {
			if !coversItem(node, item) {
				return false
			}
		}
		return true
	}
	return true
}

// coversItem finds the entry of one list item. Keys that the API server
// defaulted (a port's protocol) are not in the intent and do not count.
func coversItem(node map[string]any, item any) bool {
	for name, child := range node {
		switch {
		case strings.HasPrefix(name, "k:"):
			m, isMap := item.(map[string]any)
			sub, isNode := child.(map[string]any)
			if isMap && isNode && keyMatches(name[2:], m) {
				return coversValue(sub, item)
			}
		case strings.HasPrefix(name, "v:"):
			var v any
			if json.Unmarshal([]byte(name[2:]), &v) == nil && reflect.DeepEqual(v, normal(item)) {
				return true
			}
		}
	}
	return false
}

func keyMatches(rawKey string, item map[string]any) bool {
	var key map[string]any
	if json.Unmarshal([]byte(rawKey), &key) != nil {
		return false
	}
	for k, want := range key {
		if have, ok := item[k]; ok && !reflect.DeepEqual(normal(have), want) {
			return false
		}
	}
	return true
}

// normal gives numbers the one type that JSON decoding gives them.
func normal(v any) any {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case int:
		return float64(v)
	}
	return v
}
