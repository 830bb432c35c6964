// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/cli"
)

// shipped is what comes with the chart and the examples rely on.
var shipped = []string{"../../charts/modelplane/files/runtimes", "../../charts/modelplane/files/storagecontainers"}

func planner(t *testing.T) *cli.Planner {
	t.Helper()
	p, err := domains.NewPlanner()
	if err != nil {
		t.Fatal(err)
	}
	p.Namespace = "default"
	return p
}

// TestPlannedAlone does what the examples tell people to do: look at one with `modelplane plan`.
func TestPlannedAlone(t *testing.T) {
	p := planner(t)
	for _, m := range read(t, ours) {
		if err := p.PlanText(t.Context(), m.name, m.text, io.Discard); err != nil {
			t.Error(err)
		}
	}
}

// TestMLflowIsPlanned makes a server of every MLflow that people start from, ours and those they bring along.
func TestMLflowIsPlanned(t *testing.T) {
	for _, dir := range []string{ours, theirs} {
		t.Run(strings.Trim(dir, "./"), func(t *testing.T) {
			found := 0
			for _, m := range read(t, dir) {
				if m.GetKind() != "MLflow" {
					continue
				}
				found++
				around := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: example-ca}\n"
				var out bytes.Buffer
				if err := planner(t).PlanText(t.Context(), m.name, slices.Concat(m.text, []byte("\n"+around)), &out); err != nil {
					t.Error(err)
				}
				if !regexp.MustCompile(`(?m)^# MLflow mlflow: [1-9][0-9]* children$`).Match(out.Bytes()) || !strings.Contains(out.String(), "\nkind: Deployment\n") {
					t.Errorf("%s becomes no server:\n%s", m.name, out.String())
				}
			}
			if found < 2 {
				t.Errorf("%d MLflows found", found)
			}
		})
	}
}

// TestPlannedTogether finds a server, a storage and a route for every service, with what is shipped and what the other
// examples bring.
func TestPlannedTogether(t *testing.T) {
	manifests := read(t, ours+"/serving")
	all := append(slices.Clone(manifests), read(t, ours+"/platform")...)
	for _, dir := range shipped {
		all = append(all, read(t, dir)...)
	}
	var text, out bytes.Buffer
	for _, m := range all {
		fmt.Fprintf(&text, "---\n%s\n", m.text)
	}
	if err := planner(t).PlanText(t.Context(), "examples", text.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	for _, m := range manifests {
		if m.GetKind() != "InferenceService" {
			continue
		}
		children := "[1-9][0-9]*"
		if m.GetAnnotations()[v1beta1.AnnotationStop] == "true" {
			children = "0"
		}
		if !regexp.MustCompile(`(?m)^# InferenceService default/` + m.GetName() + `: ` + children + ` children$`).Match(out.Bytes()) {
			t.Errorf("%s: not %s children:\n%s", m.name, children, about(out.String(), m.GetName()))
		}
	}
}

// about is what a plan says of one service before it comes to the children.
func about(plan, name string) string {
	_, text, _ := strings.Cut(plan, "# InferenceService default/"+name+":")
	text, _, _ = strings.Cut(text, "# status:")
	return text
}
