// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/testkit"
)

// Where the plans are written down, and what their files call the namespaces of the services and of the platform.
const (
	plans           = "../../internal/serving/testdata/plan"
	around          = "../../internal/serving/testdata/world.yaml"
	plannedTeam     = "team"
	plannedPlatform = "modelplane-system"
)

// plan is one case: manifests, and what was decided about them without a cluster. It is moved to a namespace of its
// own, which is called like it.
type plan struct {
	name    string
	in      []*unstructured.Unstructured
	refusal string // of admission; empty: accepted
	decided []decision

	// The cluster that it was decided for, where that matters: without an API group, or of a version.
	without, kubernetes string

	accepted bool // by a cluster
}

// decision is what became of one object.
type decision struct {
	kind, name string
	hold       bool
	warnings   []string
	conditions []condition
	status     map[string]any
	children   []*unstructured.Unstructured
}

type condition struct{ Type, Status, Reason, Message string }

// readPlans reads all cases for a platform in a namespace.
func readPlans(t testing.TB, platform string) []*plan {
	t.Helper()
	var all []*plan
	for _, golden := range testkit.GoldenCases(t, plans) {
		p := &plan{name: golden.Name}
		moved := strings.NewReplacer(plannedTeam, p.name, plannedPlatform, platform)
		in, out := moved.Replace(string(golden.In)), moved.Replace(string(golden.Out))
		p.in = documents(t, in)
		said := testkit.FrontMatter(golden.In)
		p.without, p.kubernetes = strings.Join(said["without"], ""), strings.Join(said["kubernetes"], "")
		if refusal, ok := strings.CutPrefix(out, "refused: "); ok {
			_, p.refusal, _ = strings.Cut(strings.TrimSpace(refusal), ": ") // behind the name of the file
		} else {
			p.decided = decisions(t, out)
		}
		all = append(all, p)
	}
	return all
}

// documents reads the objects of a text.
func documents(t testing.TB, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader([]byte(text))))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: tree(t, doc)}
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
}

// tree reads YAML as the API server's clients do: whole numbers stay whole.
func tree(t testing.TB, text []byte) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := utiljson.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

var (
	headLine      = regexp.MustCompile(`^# (\w+) (?:[^/ ]+/)?([^/ ]+): (.*)$`)
	conditionLine = regexp.MustCompile(`^# condition (\w+)=(\w+) \((\w*)\) ?(.*)$`)
)

// decisions reads what `modelplane plan` prints: comments about an object, then its children.
func decisions(t testing.TB, out string) []decision {
	t.Helper()
	var all []decision
	for _, doc := range strings.Split("\n"+out, "\n---\n") {
		doc = strings.TrimPrefix(doc, "\n")
		if strings.HasPrefix(doc, "# ") {
			all = append(all, head(t, doc))
			continue
		}
		last := &all[len(all)-1]
		last.children = append(last.children, &unstructured.Unstructured{Object: tree(t, []byte(doc))})
	}
	return all
}

func head(t testing.TB, text string) decision {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	first := headLine.FindStringSubmatch(lines[0])
	if first == nil {
		t.Fatalf("no decision begins with %q", lines[0])
	}
	d := decision{kind: first[1], name: first[2], hold: strings.Contains(first[3], "left as they are")}
	var status []string
	for _, line := range lines[1:] {
		if c := conditionLine.FindStringSubmatch(line); c != nil {
			d.conditions = append(d.conditions, condition{c[1], c[2], c[3], c[4]})
		} else if warning, ok := strings.CutPrefix(line, "# warning: "); ok {
			d.warnings = append(d.warnings, warning)
		} else if line == "# status:" || strings.HasPrefix(line, "#   ") {
			status = append(status, strings.TrimPrefix(line, "# "))
		}
	}
	d.status, _ = tree(t, []byte(strings.Join(status, "\n")))["status"].(map[string]any)
	delete(d.status, "observedGeneration") // of a generation that only the file can give to an object
	return d
}

func TestDecisionsAreRead(t *testing.T) {
	got := decisions(t, `# InferenceService team/iris: accepted; its children are left as they are
# warning: careful
# condition Ready=Unknown (Starting) Wait: a while.
# condition Fine=True ()
# status:
#   copies: 1
# event Said: that
---
kind: Service
---
# TrainedModel team/one: 0 children
`)
	child := &unstructured.Unstructured{Object: map[string]any{"kind": "Service"}}
	want := []decision{
		{kind: "InferenceService", name: "iris", hold: true, warnings: []string{"careful"},
			conditions: []condition{{"Ready", "Unknown", "Starting", "Wait: a while."}, {"Fine", "True", "", ""}},
			status:     map[string]any{"copies": int64(1)}, children: []*unstructured.Unstructured{child}},
		{kind: "TrainedModel", name: "one"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(decision{})); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}
