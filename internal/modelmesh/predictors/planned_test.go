// SPDX-License-Identifier: Apache-2.0

package predictors_test

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/testkit"
)

// moment is when the plan was made.
var moment = regexp.MustCompile(`time: "[^"]*"`)

// TestPlanned: what a person is told of models without a cluster.
func TestPlanned(t *testing.T) {
	testkit.Golden(t, "testdata/planned", func(t *testing.T, in []byte) []byte {
		c := cli.NewPlanCommand(domains.NewPlanner)
		var out bytes.Buffer
		c.SetIn(bytes.NewReader(in))
		c.SetOut(&out)
		c.SetArgs([]string{"-f", "-"})
		if err := c.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return moment.ReplaceAll(out.Bytes(), []byte("time: NOW"))
	})
}
