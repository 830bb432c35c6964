// SPDX-License-Identifier: Apache-2.0

package servingtest

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving"
	"github.com/modelplane/modelplane/internal/testkit"
)

// Planner is `modelplane plan` with some controllers of a room, in a cluster
// that holds what is in testdata/world.yaml.
func Planner(t testing.TB, room *serving.Domain, controllers ...engine.Controller) *cli.Planner {
	t.Helper()
	kinds, err := room.Admission()
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := admission.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return &cli.Planner{
		Scheme: Scheme, Schemas: schemas, Namespace: "default", Kinds: kinds, Around: world(t), Controllers: controllers,
	}
}

func world(t testing.TB) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("testdata/world.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for _, doc := range strings.Split(string(text), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

// Plan decides about the manifests of one case. One whose front matter says "without: GROUP" is decided as in a cluster
// that does not serve that API group.
func Plan(t testing.TB, p *cli.Planner, in []byte) []byte {
	t.Helper()
	here := *p
	here.Without = testkit.FrontMatter(in)["without"]
	var out bytes.Buffer
	if err := here.PlanText(t.Context(), "in.yaml", in, &out); err != nil {
		out.WriteString("refused: " + err.Error() + "\n")
	}
	return out.Bytes()
}
