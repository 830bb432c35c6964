// SPDX-License-Identifier: Apache-2.0

package mlflow_test

import (
	"bytes"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/mlflow"
	"github.com/modelplane/modelplane/internal/mlflow/mlflowtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestPlan decides about manifests in files, without a cluster. The front matter of a case says what the platform is
// like: "without: GROUP" is an API that it does not serve, "openshift: true" is what it is, "url: URL" where people reach
// it, "image: none" that it ships none.
func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte { return plan(t, in) })
}

func plan(t testing.TB, in []byte) []byte {
	t.Helper()
	p := &cli.Planner{Scheme: mlflowtest.Scheme, Namespace: "models"}
	settings := mlflow.Settings{Namespace: "models", Image: "mlflow:v3.14.0", NotOpenShift: true}
	for key, values := range testkit.FrontMatter(in) {
		switch key {
		case "like":
		case "without":
			p.Without = values
		case "openshift":
			settings.NotOpenShift = false
		case "url":
			settings.URL = values[0]
		case "image":
			settings.Image = ""
		default:
			t.Fatalf("nobody knows what %q means", key)
		}
	}
	var err error
	if p.Kinds, err = mlflow.Admission(); err != nil {
		t.Fatal(err)
	}
	if p.Schemas, err = admission.Embedded(); err != nil {
		t.Fatal(err)
	}
	p.Controllers = mlflow.New().WithSettings(settings).Controllers()
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

// TestEveryFieldIsPlannedOnce: a case moves each field that the kind has.
func TestEveryFieldIsPlannedOnce(t *testing.T) {
	testkit.EveryFieldIn(t, "testdata/plan", "../../test/conformance/fields/mlflow.opendatahub.io_v1_MLflow.tsv", 40, 100)
}

// TestKeepsNothing: what the engine keeps of a look does not hold the MLflow.
func TestKeepsNothing(t *testing.T) {
	domaintest.KeepsNothing(t, mlflow.New().Controllers()[0], &engine.World{Scheme: mlflowtest.Scheme}, func() *mlflowv1.MLflow {
		return &mlflowv1.MLflow{ObjectMeta: metav1.ObjectMeta{Name: "mlflow"}}
	})
}
