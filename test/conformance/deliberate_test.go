// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strings"
	"testing"
)

// A difference is a place where the definitions say something else than the
// tables on purpose. Kind "*" stands for every kind; What and Have may end in
// "*", which stands for any rest.
type difference struct {
	Kind, What, Have, Reason string
}

var differences = []difference{
	{"*", "categories", "models", "kubectl get models lists every kind at once; no client reads categories"},
	{"*", "column", "Reason string *", "kubectl get says why something is not ready; clients address columns by path, not by position"},
	{
		isvc, "spec.canary[].predictor.*.name", "string",
		"a canary has the type of the predictor itself, for which the table does not require a container name",
	},
	{
		isvc, "spec.canary[].predictor.model.modelFormat", "object",
		"a canary has the type of the predictor itself, for which the table does not require a format",
	},
	{
		"maas.opendatahub.io/v1alpha1 MaaSModelRef", "spec.modelRef.kind", "string; enum=LLMInferenceService|ExternalModel|InferenceService*",
		"a model that an InferenceService serves can be published as well; what is written for others keeps its meaning",
	},
	{
		"serving.kserve.io/v1alpha1 Predictor", "status.conditions*", "*",
		"conditions say beside the known fields what is wrong and what to do; clients that do not know them see no difference",
	},
}

const isvc = "serving.kserve.io/v1beta1 InferenceService"

// deliberate reports whether a difference is in the list.
func deliberate(kind, what, have string) bool {
	for _, d := range differences {
		if matches(d.Kind, kind) && matches(d.What, what) && matches(d.Have, have) {
			return true
		}
	}
	return false
}

// matches compares with a pattern in which one "*" stands for anything.
func matches(pattern, s string) bool {
	before, after, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	return len(s) >= len(before)+len(after) && strings.HasPrefix(s, before) && strings.HasSuffix(s, after)
}

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true},
		{"a", "a", true},
		{"a", "ab", false},
		{"a*", "ab", true},
		{"a.*.c", "a.b.c", true},
		{"a.*.c", "a.c", false},
	} {
		if have := matches(tc.pattern, tc.s); have != tc.want {
			t.Errorf("matches(%q, %q) = %v", tc.pattern, tc.s, have)
		}
	}
}

// TestDifferencesAreUsed keeps the list from outliving its reasons.
func TestDifferencesAreUsed(t *testing.T) {
	defs := readDefinitions(t)
	for i, d := range differences {
		all := differences
		differences = append(append([]difference{}, all[:i]...), all[i+1:]...)
		used := false
		for _, tab := range readTables(t, "fields") {
			def := defs[tab.Group+" "+tab.Kind]
			if version := versionOf(def, tab.Version); version != nil {
				c := &comparison{kind: tab.name()}
				c.fields(tab, version)
				c.shape(tab, def, version)
				used = used || len(c.problems) > 0
			}
		}
		differences = all
		if !used {
			t.Errorf("nothing differs any more: %+v", d)
		}
	}
}
