// SPDX-License-Identifier: Apache-2.0

package models_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving"
	"github.com/modelplane/modelplane/internal/serving/models"
	"github.com/modelplane/modelplane/internal/testkit"
)

// planner is `modelplane plan` with this kind alone.
func planner(t testing.TB) *cli.Planner {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, admission.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	kinds, err := serving.Admission()
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := admission.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return &cli.Planner{
		Scheme: scheme, Schemas: schemas, Namespace: "default", Kinds: kinds, Around: world(t),
		Controllers: []engine.Controller{models.Controller()},
	}
}

// TestPlan decides about models in files. The services that they name are in
// testdata/world.yaml.
func TestPlan(t *testing.T) {
	p := planner(t)
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte {
		var out bytes.Buffer
		if err := p.PlanText(t.Context(), "in.yaml", in, &out); err != nil {
			out.WriteString("refused: " + err.Error() + "\n")
		}
		return out.Bytes()
	})
}

// world is a namespace with services of all sorts.
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
