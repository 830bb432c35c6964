// SPDX-License-Identifier: Apache-2.0

package mlflow_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/mlflow"
	"github.com/modelplane/modelplane/internal/mlflow/mlflowtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestPlan decides about manifests in files, without a cluster. The first line of a case may say "# without GROUP...",
// API groups that the cluster does not serve.
func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte { return plan(t, in) })
}

func plan(t testing.TB, in []byte) []byte {
	t.Helper()
	kinds, err := mlflow.Admission()
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := admission.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	p := &cli.Planner{
		Scheme: mlflowtest.Scheme, Schemas: schemas, Namespace: "default", Kinds: kinds, Controllers: mlflow.New().Controllers(),
	}
	first, _, _ := strings.Cut(string(in), "\n")
	if groups, ok := strings.CutPrefix(first, "# without "); ok {
		p.Without = strings.Fields(groups)
	}
	var out bytes.Buffer
	if err := p.PlanText(t.Context(), "in.yaml", in, &out); err != nil {
		out.WriteString("refused: " + err.Error() + "\n")
	}
	return out.Bytes()
}
