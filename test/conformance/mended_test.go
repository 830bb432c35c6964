// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mendedKinds are the kinds whose every refused case must name an accepted one that differs from it in one place. A
// refusal alone does not show that its rule lets anything through, nor that it was this field it looked at.
var mendedKinds = []string{
	"components.platform.opendatahub.io MLflowOperator",
	"mlflow.kubeflow.org MLflowConfig",
	"mlflow.opendatahub.io MLflow",
}

// TestEveryRuleIsMended wants, for each rule of mendedKinds, a refused case with its message and an accepted case
// that differs from it in one place, at the field the rule stands on or below it: two fields may carry rules with
// the same message. TestRules is what has the API server judge both.
func TestEveryRuleIsMended(t *testing.T) {
	cases, defs := map[string]*celCase{}, readDefinitions(t)
	for _, tc := range readCases(t) {
		cases[tc.name] = tc
	}
	places := map[string][][]string{}
	for _, tc := range cases {
		if slices.Contains(mendedKinds, tc.kind()) && !tc.accepted && len(tc.mended) == 0 {
			t.Errorf("%s: name the accepted case that mends it in a line \"# mended: \"", tc.name)
		}
		for _, name := range tc.mended {
			place := tc.mendedAt(t, cases[path.Join(path.Dir(tc.name), name)], name)
			for _, message := range tc.refused {
				places[tc.kind()+message] = append(places[tc.kind()+message], place)
			}
		}
	}
	for _, kind := range mendedKinds {
		def, ok := defs[kind]
		if !ok {
			t.Errorf("there is no definition of %s", kind)
			continue
		}
		for _, r := range rulesOf(def) {
			if !slices.ContainsFunc(places[kind+r.message], r.reaches) {
				t.Errorf("%s: no accepted case mends, at %q or below it, one refused with %q",
					kind, strings.Join(r.path, "."), r.message)
			}
		}
	}
}

// mendedAt returns the one place where the case differs from the accepted one that mends it, nil if there is no such
// place.
func (c *celCase) mendedAt(t *testing.T, mend *celCase, name string) []string {
	t.Helper()
	if mend == nil || !mend.accepted || len(mend.objects) != len(c.objects) {
		t.Errorf("%s: %s must be an accepted case in the same folder, with as many documents", c.name, name)
		return nil
	}
	var found [][]string
	for i, obj := range c.objects {
		found = append(found, whereTheyPart(obj.Object, mend.objects[i].Object, nil)...)
	}
	if len(found) != 1 {
		t.Errorf("%s differs from %s, which mends it, in %d places and must in one: %v", c.name, name, len(found), found)
		return nil
	}
	return found[0]
}

// reaches says whether the rule looks at place.
func (r celRule) reaches(place []string) bool {
	if len(place) == 0 || len(place) < len(r.path) {
		return false
	}
	for i, name := range r.path {
		if name != "*" && name != place[i] {
			return false
		}
	}
	return true
}

// whereTheyPart lists the places where a and b differ. A field or entry that only one of them has is one place,
// whatever is in it.
func whereTheyPart(a, b any, at []string) [][]string {
	inA, inB := children(a), children(b)
	if inA == nil || inB == nil {
		if reflect.DeepEqual(a, b) {
			return nil
		}
		return [][]string{at}
	}
	var found [][]string
	for name, value := range inA {
		if other, ok := inB[name]; ok {
			found = append(found, whereTheyPart(value, other, below(at, name))...)
		} else {
			found = append(found, below(at, name))
		}
	}
	for name := range inB {
		if _, ok := inA[name]; !ok {
			found = append(found, below(at, name))
		}
	}
	return found
}

// children returns the fields of an object or the entries of a list, nil for a value that has neither.
func children(value any) map[string]any {
	switch value := value.(type) {
	case map[string]any:
		return value
	case []any:
		entries := map[string]any{}
		for i, entry := range value {
			entries[strconv.Itoa(i)] = entry
		}
		return entries
	}
	return nil
}
