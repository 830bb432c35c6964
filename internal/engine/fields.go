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
	return len(uncovered(raw, intent, 1)) == 0
}

// uncovered names fields of an intent that a managed-fields entry does not own,
// up to a number, in no order.
func uncovered(raw []byte, intent map[string]any, most int) []string {
	tree := map[string]any{}
	if err := json.Unmarshal(raw, &tree); err != nil {
		return []string{"all fields"} // there is no entry
	}
	g := &gaps{most: most}
	for name, value := range intent {
		switch name {
		case "apiVersion", "kind":
			continue // never owned
		case "metadata":
			value = withoutIdentity(value)
		}
		g.field(tree, name, value, nil)
	}
	return g.found
}

// gaps collects fields that are not owned.
type gaps struct {
	found []string
	most  int
}

func (g *gaps) add(path []string) {
	if len(g.found) < g.most {
		g.found = append(g.found, strings.Join(path, "."))
	}
}

func (g *gaps) field(node map[string]any, name string, value any, path []string) {
	if len(g.found) == g.most {
		return
	}
	path = append(path, name)
	if child, owned := node["f:"+name].(map[string]any); owned {
		g.value(child, value, path)
		return
	}
	g.add(path)
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

func (g *gaps) value(node map[string]any, value any, path []string) {
	if len(node) == 0 {
		return // a leaf: the value as a whole is owned
	}
	switch value := value.(type) {
	case map[string]any:
		for k, v := range value {
			g.field(node, k, v, path)
		}
	case []any:
		for _, item := range value {
			g.item(node, item, path)
		}
	}
}

// item finds the entry of one list item. Keys that the API server
// defaulted (a port's protocol) are not in the intent and do not count.
func (g *gaps) item(node map[string]any, item any, path []string) {
	for name, child := range node {
		switch {
		case strings.HasPrefix(name, "k:"):
			m, isMap := item.(map[string]any)
			sub, isNode := child.(map[string]any)
			if isMap && isNode && keyMatches(name[2:], m) {
				g.value(sub, item, path)
				return
			}
		case strings.HasPrefix(name, "v:"):
			var v any
			if json.Unmarshal([]byte(name[2:]), &v) == nil && reflect.DeepEqual(v, normal(item)) {
				return
			}
		}
	}
	g.add(path)
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
