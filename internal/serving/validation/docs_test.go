// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/config"
)

const (
	page       = "../../../docs/inferenceservice.md"
	tableBegin = "<!-- begin: fields by mode; internal/serving/validation writes this table -->\n"
	tableEnd   = "<!-- end: fields by mode -->"
)

// TestPageSaysWhatTheCodeDoes keeps the table for people and the one for the
// machine the same.
func TestPageSaysWhatTheCodeDoes(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(raw), tableBegin)
	_, tail, found := strings.Cut(rest, tableEnd)
	if !ok || !found {
		t.Fatalf("%s has lost the marks around the table of fields", page)
	}
	golden(t, page, head+tableBegin+fieldTable()+tableEnd+tail)
}

func fieldTable() string {
	var out strings.Builder
	out.WriteString("| field | Standard | Knative | ModelMesh | why |\n|---|---|---|---|---|\n")
	for _, r := range fieldRules {
		name := "`" + r.name + "`"
		if r.only != "" {
			name += " of the " + string(r.only)
		}
		mesh := r.mesh
		if r.only != "" && r.only != "predictor" {
			mesh = r.knative
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", name, r.standard.verdict, r.knative.verdict, mesh.verdict, reasons(r))
	}
	return out.String()
}

// reasons joins the reasons of a rule; one that holds in several modes is said
// once.
func reasons(r fieldRule) string {
	var texts []string
	said := map[string][]string{}
	for _, m := range []struct {
		mode string
		outcome
	}{{config.ModeStandard, r.standard}, {config.ModeKnative, r.knative}, {config.ModeModelMesh, r.mesh}} {
		if m.why == "" {
			continue
		}
		if said[m.why] == nil {
			texts = append(texts, m.why)
		}
		said[m.why] = append(said[m.why], m.mode)
	}
	for i, text := range texts {
		texts[i] = strings.Join(said[text], ", ") + ": " + text
	}
	return strings.Join(texts, ". ")
}
