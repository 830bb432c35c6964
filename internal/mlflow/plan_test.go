// SPDX-License-Identifier: Apache-2.0

package mlflow_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/mlflow"
	"github.com/modelplane/modelplane/internal/mlflow/mlflowtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestPlan decides about manifests in files, without a cluster. The comments at the head of a case say what the platform
// is like: "# without GROUP" is an API that it does not serve, "# openshift" is what it is, "# url URL" where people
// reach it, "# no image" that it ships none.
func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte { return plan(t, in) })
}

func plan(t testing.TB, in []byte) []byte {
	t.Helper()
	p := &cli.Planner{Scheme: mlflowtest.Scheme, Namespace: "models"}
	settings := mlflow.Settings{Namespace: "models", Image: "mlflow:v3.14.0", NotOpenShift: true}
	for line := range strings.Lines(string(in)) {
		said, comment := strings.CutPrefix(strings.TrimSpace(line), "# ")
		if !comment {
			break
		}
		word, rest, _ := strings.Cut(said, " ")
		switch word {
		case "without":
			p.Without = append(p.Without, rest)
		case "openshift":
			settings.NotOpenShift = false
		case "url":
			settings.URL = rest
		case "no":
			settings.Image = ""
		default:
			t.Fatalf("nobody knows what %q means", line)
		}
	}
	var err error
	if p.Kinds, err = mlflow.Admission(); err != nil {
		t.Fatal(err)
	}
	if p.Schemas, err = admission.Embedded(); err != nil {
		t.Fatal(err)
	}
	p.Controllers = mlflow.New().With(settings).Controllers()
	var out bytes.Buffer
	if err := p.PlanText(t.Context(), "in.yaml", in, &out); err != nil {
		out.WriteString("refused: " + err.Error() + "\n")
	}
	return withoutJobs(out.Bytes())
}

// withoutJobs leaves only the names of migration Jobs: how they look is package migrate's to test.
func withoutJobs(plan []byte) []byte {
	docs := bytes.Split(plan, []byte("---\n"))
	for i, doc := range docs {
		if !bytes.Contains(doc, []byte("\nkind: Job\n")) {
			continue
		}
		name := regexp.MustCompile(`(?m)^  name: (.*)$`).FindSubmatch(doc)
		docs[i] = []byte("# Job " + string(name[1]) + "\n")
	}
	return bytes.Join(docs, []byte("---\n"))
}
