// SPDX-License-Identifier: Apache-2.0

package trainedmodels_test

import (
	"testing"

	"github.com/modelplane/modelplane/internal/serving"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/serving/trainedmodels"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestPlan decides about models in files. The services that they name are in
// testdata/world.yaml.
func TestPlan(t *testing.T) {
	p := servingtest.Planner(t, serving.New(), trainedmodels.Controller())
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte { return servingtest.Plan(t, p, in) })
}
