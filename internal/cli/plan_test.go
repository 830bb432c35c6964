// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

func samplePlanner(t testing.TB) *Planner {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sample.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return &Planner{
		Scheme: scheme, Schemas: admission.NewSchemas(sample.CRD()), Namespace: "default",
		Controllers: []engine.Controller{sample.Controller()},
		Kinds: []admission.Kind{{
			GVK: sample.GroupVersion.WithKind("Sample"), New: func() client.Object { return &sample.Sample{} },
			Validate: func(_ context.Context, _, obj client.Object) ([]string, error) {
				if obj.(*sample.Sample).Spec.Message == "refused" {
					return nil, errors.New(`spec.message: "refused" is refused; say something else`)
				}
				return []string{"a sample is only good for tests"}, nil
			},
		}},
	}
}

func TestPlanGolden(t *testing.T) {
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte {
		var out bytes.Buffer
		if err := samplePlanner(t).PlanText(t.Context(), "in.yaml", in, &out); err != nil {
			out.WriteString("refused: " + err.Error() + "\n")
		}
		return out.Bytes()
	})
}

func TestPlanCommand(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const good = "apiVersion: test.modelplane.dev/v1\nkind: Sample\nmetadata: {name: one}\nspec: {from: later}\n"
	goodFile := write("good.yaml", good)
	write("later.yml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: later}\ndata: {value: '7'}\n")
	write("notes.txt", "not a manifest")
	for _, tc := range []struct {
		name  string
		args  []string
		stdin string
		want  string // in the output, or in the error
		code  int
	}{
		{name: "the reference is missing", args: []string{"-f", goodFile}, want: "condition Ready=False (ConfigMapMissing)"},
		{name: "a folder holds both", args: []string{"-f", dir}, want: `from: "7"`},
		{name: "standard input", args: []string{"-f", "-", "-n", "team"}, stdin: good, want: "Sample team/one"},
		{name: "refused", args: []string{"-f", "-"}, stdin: strings.Replace(good, "from", "frm", 1), want: `unknown field "spec.frm"`, code: 2},
		{name: "refused by the webhook's rule", args: []string{"-f", "-"}, stdin: strings.Replace(good, "from: later", "message: refused", 1), want: "say something else", code: 2},
		{name: "not UTF-8", args: []string{"-f", "-"}, stdin: strings.Replace(good, "later", "l\xffter", 1), want: "line 4, field from: not valid UTF-8", code: 2},
		{name: "three megabytes", args: []string{"-f", "-"}, stdin: strings.Replace(good, "later", strings.Repeat("x", 3<<20), 1), want: "spec.from: the largest field", code: 2},
		{name: "no such file", args: []string{"-f", filepath.Join(dir, "no.yaml")}, want: "no such file", code: -1},
		{name: "nothing in it", args: []string{"-f", "-"}, stdin: "---\n# nothing\n", want: "no object found", code: -1},
		{name: "a list", args: []string{"-f", "-"}, stdin: `{apiVersion: v1, kind: List, items: [{apiVersion: test.modelplane.dev/v1, kind: Sample, metadata: {name: one}, spec: {from: later}}, ` +
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: later}, data: {value: "7"}}]}`, want: "# only looked at: ConfigMap default/later"},
		{name: "a list of one kind", args: []string{"-f", "-"}, stdin: `{apiVersion: test.modelplane.dev/v1, kind: SampleList, items: [{metadata: {name: one}, spec: {}}]}`, want: "Sample default/one"},
		{name: "a wrong item", args: []string{"-f", "-"}, stdin: `{apiVersion: v1, kind: List, items: [7]}`, want: "item 1 is not an object", code: 2},
		{name: "an unknown field in an item", args: []string{"-f", "-"}, stdin: `{apiVersion: test.modelplane.dev/v1, kind: SampleList, items: [{metadata: {name: one}, spec: {}}, {metadata: {name: two}, spec: {frm: x}}]}`, want: "- item 2: ", code: 2},
		{name: "JSON", args: []string{"-f", "-", "-o", "json"}, stdin: good, want: `"reason": "ConfigMapMissing"`},
		{name: "another output", args: []string{"-f", "-", "-o", "xml"}, stdin: good, want: `--output "xml" is unknown`, code: -1},
		{name: "API absent", args: []string{"-f", "-", "--without-api", "gateway.networking.k8s.io"}, stdin: good, want: "Sample default/one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			c := NewPlanCommand(func() (*Planner, error) { return samplePlanner(t), nil })
			c.SetArgs(tc.args)
			c.SetIn(strings.NewReader(tc.stdin))
			c.SetOut(&out)
			c.SetErr(&out)
			c.SilenceUsage = true
			err := c.ExecuteContext(t.Context())
			text, code := out.String(), 0
			if err != nil {
				text, code = err.Error(), -1
				var coded interface{ ExitCode() int }
				if errors.As(err, &coded) {
					code = coded.ExitCode()
				}
			}
			if code != tc.code || !strings.Contains(text, tc.want) {
				t.Errorf("code %d, want %d; %q not in:\n%s", code, tc.code, tc.want, text)
			}
		})
	}
}

// FuzzPlan: whatever is given, the command plans or refuses; it never panics.
func FuzzPlan(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: test.modelplane.dev/v1\nkind: Sample\nmetadata: {name: one}\nspec: {message: hi, route: true, extra: Secret}\n",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\n- a\n- b\n",
		"apiVersion: test.modelplane.dev/v1\nkind: Sample\nspec: 7\n",
		"{\"apiVersion\":\"test.modelplane.dev/v1\",\"kind\":\"Sample\",\"metadata\":[]}",
		"a: &a [*a]\n", "\xff\xfe", "kind: List\napiVersion: v1\nitems: []\n",
	} {
		f.Add([]byte(seed))
	}
	planner := samplePlanner(f)
	f.Fuzz(func(_ *testing.T, text []byte) {
		var out bytes.Buffer
		_ = planner.PlanText(context.Background(), "fuzz", text, &out)
	})
}
