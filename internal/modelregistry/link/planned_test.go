// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestPlanned: what a person is told without a cluster, beside what is made of the service.
func TestPlanned(t *testing.T) {
	testkit.Golden(t, "testdata/planned", func(t *testing.T, in []byte) []byte {
		said, _, _ := strings.Cut(planned(t, in), "---\n")
		return []byte(said)
	})
}

// TestPlannedForPrograms: programs are told as well.
func TestPlannedForPrograms(t *testing.T) {
	for _, c := range testkit.GoldenCases(t, "testdata/planned") {
		want := map[string]string{"linked": `"tell-registry: http://registry.models.svc:8080 is told of`, "no-registry": `"reason": "RegistryMissing"`}[c.Name]
		if text := planned(t, c.In, "-o", "json"); !strings.Contains(text, want) || want == "" && strings.Contains(text, "RegistryLinked") {
			t.Errorf("%s: %q is not said:\n%s", c.Name, want, text)
		}
	}
}

func planned(t *testing.T, in []byte, args ...string) string {
	t.Helper()
	c := cli.NewPlanCommand(domains.NewPlanner)
	var out bytes.Buffer
	c.SetIn(bytes.NewReader(in))
	c.SetOut(&out)
	c.SetArgs(append([]string{"-f", "-"}, args...))
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
