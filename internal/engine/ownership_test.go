// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestOwnershipOfSomeObjects: a controller that decides one entry of a map, of objects of one mode, leaves the rest of it and
// all other objects to the first.
func TestOwnershipOfSomeObjects(t *testing.T) {
	second := &StatusOwnership{
		Conditions: []string{"Part"}, Fields: []string{"parts.mine"},
		Where: func(obj client.Object) bool { return obj.GetName() == "shared" },
	}
	all := &lookers{specs: []Spec{{Name: "first"}, {Name: "second", Ready: "Part", Status: second}}}
	shared, own := &corev1.ConfigMap{}, &corev1.ConfigMap{}
	shared.Name, own.Name = "shared", "own"
	condition := func(typ, status string) map[string]any { return map[string]any{"type": typ, "status": status} }
	live := func() map[string]any {
		return map[string]any{"parts": map[string]any{"mine": "m", "other": "o"}, "conditions": []any{condition("Part", "True"), condition("Ready", "True")}}
	}
	planned := map[string]any{"parts": map[string]any{"mine": "M", "other": "O"}, "conditions": []any{condition("Part", "False"), condition("Ready", "False")}}
	for name, c := range map[string]struct {
		owns          *StatusOwnership
		of            client.Object
		mine, others  any
		part, summary string
	}{
		"the second of its objects":   {second, shared, "M", "o", "False", "True"},
		"the first of these":          {nil, shared, "m", "O", "True", "False"},
		"the second of other objects": {second, own, "m", "o", "True", "True"},
		"the first of those":          {nil, own, "M", "O", "False", "False"},
	} {
		p := part{owns: c.owns, all: all}.on(c.of)
		want := map[string]any{"parts": map[string]any{"mine": c.mine, "other": c.others}, "conditions": []any{condition("Part", c.part), condition("Ready", c.summary)}}
		if diff := cmp.Diff(want, p.merge(live(), planned)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		gone := p.merge(live(), map[string]any{})
		if parts, _ := gone["parts"].(map[string]any); (parts["mine"] == nil) != (c.mine == "M") || (parts["other"] == nil) != (c.others == "O") {
			t.Errorf("%s: what is no longer planned leaves %v", name, gone)
		}
	}
	if diff := cmp.Diff(map[string]any{"parts": map[string]any{"mine": "m", "other": "o"}}, map[string]any{"parts": live()["parts"]}); diff != "" {
		t.Errorf("what was there was changed: %s", diff)
	}
}
