// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
)

var (
	fencedYAML = regexp.MustCompile("(?s)\n```yaml\n(apiVersion:.*?\n)```")
	indented   = regexp.MustCompile(`(?m)(?:^    .*\n)+`)
)

// manifests are the blocks of a page that can be applied.
func (p *page) manifests() (out []string) {
	for _, found := range fencedYAML.FindAllStringSubmatch(p.text, -1) {
		out = append(out, found[1])
	}
	for _, block := range indented.FindAllString(p.text, -1) {
		if block = strings.ReplaceAll("\n"+block, "\n    ", "\n")[1:]; strings.HasPrefix(block, "apiVersion:") {
			out = append(out, block)
		}
	}
	return out
}

// TestManifests lets `modelplane plan` read the manifests of all pages: none may be refused, and none may get a warning.
func TestManifests(t *testing.T) {
	found := 0
	for _, p := range pages(t) {
		for i, text := range p.manifests() {
			planner, err := domains.NewPlanner()
			if err != nil {
				t.Fatal(err)
			}
			planner.Namespace = "default"
			var out strings.Builder
			if err := planner.PlanText(t.Context(), fmt.Sprintf("%s, manifest %d", p.path, i+1), []byte(text), &out); err != nil {
				t.Error(err)
			}
			if strings.Contains(out.String(), "# warning:") {
				t.Errorf("%s, manifest %d: %s", p.path, i+1, out.String())
			}
			found++
		}
	}
	if found < 4 {
		t.Errorf("found only %d manifests", found)
	}
	planner, err := domains.NewPlanner()
	if err != nil {
		t.Fatal(err)
	}
	wrong := read("x.md", "\n    apiVersion: serving.kserve.io/v1beta1\n    kind: InferenceService\n    metadata: {name: x}\n    spec: {predictr: {}}\n").manifests()
	if len(wrong) != 1 || planner.PlanText(t.Context(), "x.md", []byte(wrong[0]), io.Discard) == nil {
		t.Error("a misspelt field is thought to be right")
	}
}
