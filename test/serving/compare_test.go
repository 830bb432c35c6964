// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// missing lists what was decided and is not so in the cluster, where more may be said: the API server fills in defaults
// and the engine marks what is its own. An empty value is the same as none.
func missing(path string, want, have any) []string {
	switch want := want.(type) {
	case map[string]any:
		fields, _ := have.(map[string]any)
		var out []string
		for name, value := range want {
			out = append(out, missing(path+"."+name, value, fields[name])...)
		}
		slices.Sort(out)
		return out
	case []any:
		items, _ := have.([]any)
		if len(items) != len(want) {
			break
		}
		var out []string
		for i := range want {
			out = append(out, missing(fmt.Sprintf("%s[%d]", path, i), want[i], items[i])...)
		}
		return out
	}
	if cmp.Equal(want, have) {
		return nil
	}
	return []string{fmt.Sprintf("%s should be %v and is %v", path, want, have)}
}

func TestMissing(t *testing.T) {
	type object = map[string]any
	for _, c := range []struct {
		name       string
		want, have any
		says       []string
	}{
		{"the same", object{"a": "x", "b": []any{int64(1)}}, object{"a": "x", "b": []any{int64(1)}}, nil},
		{"defaults", object{"a": object{}}, object{"a": object{"b": "default"}, "c": true}, nil},
		{"empty", object{"a": object{}, "b": []any{}}, object{}, nil},
		{"gone", object{"a": object{"b": "x"}}, object{}, []string{"o.a.b should be x and is <nil>"}},
		{"inside a list", object{"a": []any{object{"b": "x"}}}, object{"a": []any{object{"b": "y"}}}, []string{"o.a[0].b should be x and is y"}},
		{"a longer list", object{"a": []any{"x"}}, object{"a": []any{"x", "y"}}, []string{"o.a should be [x] and is [x y]"}},
		{"another shape", object{"a": object{"b": "x"}}, object{"a": "x"}, []string{"o.a.b should be x and is <nil>"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.says, missing("o", c.want, c.have)); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
		})
	}
}
