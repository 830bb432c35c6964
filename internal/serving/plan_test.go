// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/serving"
	"github.com/modelplane/modelplane/internal/testkit"
)

// kubernetes is a cluster of some version.
type kubernetes string

func (k *kubernetes) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: "v" + string(*k)}, nil
}

// planner is `modelplane plan` with this domain alone.
func planner(t testing.TB, room *serving.Room) *cli.Planner {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, serving.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	kinds, err := room.Admission()
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := admission.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return &cli.Planner{
		Scheme: scheme, Schemas: schemas, Namespace: "default", Kinds: kinds,
		Controllers: room.Controllers(),
	}
}

// TestPlan decides about manifests in files, without a cluster. What stands
// around them is in testdata/world.yaml. A case whose first line is "# without
// GROUP" is decided as in a cluster that does not serve that API group, and
// "# kubernetes VERSION" is the version of the cluster.
func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte {
		first, _, _ := strings.Cut(string(in), "\n")
		cluster := kubernetes("1.36.0")
		if v, ok := strings.CutPrefix(first, "# kubernetes "); ok {
			cluster = kubernetes(v)
		}
		p := planner(t, serving.New().On(&cluster))
		p.Around = world(t)
		if group, ok := strings.CutPrefix(first, "# without "); ok {
			p.Without = []string{group}
		}
		var out bytes.Buffer
		if err := p.PlanText(t.Context(), "in.yaml", in, &out); err != nil {
			out.WriteString("refused: " + err.Error() + "\n")
		}
		return out.Bytes()
	})
}

// world is a cluster with a runtime for each framework.
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
