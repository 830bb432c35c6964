// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lost lists what was sent and is not in what came back, or is different there. What came back may say more: defaults.
func lost(path string, sent, back any) []string {
	switch sent := sent.(type) {
	case map[string]any:
		fields, ok := back.(map[string]any)
		if !ok {
			break
		}
		var out []string
		for name, value := range sent {
			have, there := fields[name]
			if !there {
				out = append(out, fmt.Sprintf("%s.%s is gone", path, name))
				continue
			}
			out = append(out, lost(path+"."+name, value, have)...)
		}
		slices.Sort(out)
		return out
	case []any:
		items, ok := back.([]any)
		if !ok || len(items) != len(sent) {
			break
		}
		var out []string
		for i := range sent {
			out = append(out, lost(fmt.Sprintf("%s[%d]", path, i), sent[i], items[i])...)
		}
		return out
	}
	if cmp.Equal(sent, back) {
		return nil
	}
	return []string{fmt.Sprintf("%s was %v and is %v", path, sent, back)}
}

func TestLost(t *testing.T) {
	type object = map[string]any
	for _, tc := range []struct {
		name       string
		sent, back any
		want       []string
	}{
		{"the same", object{"a": "x", "b": []any{int64(1)}}, object{"a": "x", "b": []any{int64(1)}}, nil},
		{"defaults", object{"a": object{}}, object{"a": object{"b": "default"}, "c": true}, nil},
		{"pruned", object{"a": object{"b": "x", "c": "y"}}, object{"a": object{}}, []string{"o.a.b is gone", "o.a.c is gone"}},
		{"changed", object{"a": "1"}, object{"a": int64(1)}, []string{"o.a was 1 and is 1"}},
		{"inside a list", object{"a": []any{object{"b": "x"}}}, object{"a": []any{object{}}}, []string{"o.a[0].b is gone"}},
		{"a shorter list", object{"a": []any{"x", "y"}}, object{"a": []any{"x"}}, []string{"o.a was [x y] and is [x]"}},
		{"another shape", object{"a": object{}}, object{"a": "x"}, []string{"o.a was map[] and is x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, lost("o", tc.sent, tc.back)); diff != "" {
				t.Errorf("lost (-want +have):\n%s", diff)
			}
		})
	}
}
