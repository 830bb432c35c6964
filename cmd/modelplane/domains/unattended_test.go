// SPDX-License-Identifier: Apache-2.0

package domains

import (
	"slices"
	"strings"
	"testing"
)

var acceptedOnly = []string{
	"LLMInferenceService", "LocalModelCache", "LocalModelNamespaceCache", "LocalModelNode", "LocalModelNodeGroup",
}

// Kinds that are accepted only say so, and no others do.
func TestUnattended(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	var silent []string
	for _, d := range all {
		for _, k := range d.Admission {
			if k.Validate == nil {
				silent = append(silent, k.GVK.Kind)
				continue
			}
			warnings, _ := k.Validate(t.Context(), nil, k.New())
			warned := slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "has no controller for it") })
			if want := slices.Contains(acceptedOnly, k.GVK.Kind); warned != want {
				t.Errorf("%s warns: %v, want %v", k.GVK, warned, want)
			}
		}
	}
	for _, kind := range silent {
		if slices.Contains(acceptedOnly, kind) {
			t.Errorf("%s says nothing", kind)
		}
	}
}
