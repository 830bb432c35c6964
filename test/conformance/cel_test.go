// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/testkit"
)

// celCase is one file under testdata/cel. Its first lines say what becomes of the manifest below them: "# accepted",
// or "# refused: " and the message, once for each message. "# mended: " and the name of an accepted case in the same
// folder may follow a refusal; TestEveryRuleIsMended reads it. With two documents, the first is stored and the second
// is written over it.
type celCase struct {
	name     string
	refused  []string
	mended   []string
	accepted bool
	objects  []*unstructured.Unstructured
}

func (c *celCase) kind() string {
	gvk := c.objects[0].GroupVersionKind()
	return gvk.Group + " " + gvk.Kind
}

func TestMain(m *testing.M) { testkit.Main(m) }

// TestRules sends every case to a real API server and compares the messages that come back.
func TestRules(t *testing.T) {
	cases, defs := readCases(t), readDefinitions(t)
	cluster := testkit.Start(t)
	installFor(t, cluster, cases, defs)
	namespace := cluster.Namespace(t)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			last := len(tc.objects) - 1
			for _, obj := range tc.objects {
				if defs[tc.kind()].Spec.Scope == apiextensionsv1.NamespaceScoped {
					obj.SetNamespace(namespace)
				}
			}
			for _, obj := range tc.objects[:last] {
				store(t, cluster.Client(), obj)
			}
			tc.compare(t, write(t, cluster.Client(), tc.objects[last], last > 0))
		})
	}
}

// installFor installs the kinds of the cases. Nothing is stored in a version other than it was written in, so
// conversion is left out.
func installFor(t *testing.T, cluster *testkit.Cluster, cases []*celCase, defs map[string]*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	wanted := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, tc := range cases {
		def, ok := defs[tc.kind()]
		if !ok {
			t.Fatalf("%s: there is no definition of %s", tc.name, tc.kind())
		}
		wanted[tc.kind()] = def.DeepCopy()
		wanted[tc.kind()].Spec.Conversion = nil
	}
	cluster.InstallCRDs(t, slices.Collect(maps.Values(wanted))...)
}

func store(t *testing.T, c client.Client, obj *unstructured.Unstructured) {
	t.Helper()
	if err := c.Create(t.Context(), obj, client.FieldValidation("Strict")); err != nil {
		t.Fatalf("store %s: %v", obj.GetName(), err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), obj); err != nil {
			t.Errorf("delete %s: %v", obj.GetName(), err)
		}
	})
}

// write only asks: a dry run goes through all of admission and leaves nothing behind, so that cases may share names.
func write(t *testing.T, c client.Client, obj *unstructured.Unstructured, update bool) error {
	t.Helper()
	if !update {
		return c.Create(t.Context(), obj, client.DryRunAll, client.FieldValidation("Strict"))
	}
	live := obj.DeepCopy()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), live); err != nil {
		t.Fatal(err)
	}
	obj.SetResourceVersion(live.GetResourceVersion())
	return c.Update(t.Context(), obj, client.DryRunAll, client.FieldValidation("Strict"))
}

// compare wants each message exactly once and none besides.
func (c *celCase) compare(t *testing.T, err error) {
	t.Helper()
	if err != nil && !apierrors.IsInvalid(err) {
		t.Fatalf("the API server answers %v", err)
	}
	have := causes(err)
	for _, want := range c.refused {
		i := slices.IndexFunc(have, func(message string) bool { return strings.HasSuffix(message, ": "+want) })
		if i < 0 {
			t.Errorf("not refused with %q", want)
			continue
		}
		have = slices.Delete(have, i, i+1)
	}
	for _, message := range have {
		t.Errorf("refused with %q, which the case does not name", message)
	}
}

func causes(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var out []string
	for _, cause := range status.Status().Details.Causes {
		out = append(out, cause.Message)
	}
	return out
}

// TestEveryRuleHasCases wants a refused case for every message of every kind, and an accepted one for each kind that
// has rules.
func TestEveryRuleHasCases(t *testing.T) {
	defs, refused, accepted := readDefinitions(t), map[string]bool{}, map[string]bool{}
	for _, tc := range readCases(t) {
		accepted[tc.kind()] = accepted[tc.kind()] || tc.accepted
		for _, message := range tc.refused {
			refused[tc.kind()+": "+message] = true
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(defs)) {
		messages := ruleMessages(defs[kind])
		if len(messages) > 0 && !accepted[kind] {
			t.Errorf("%s has rules and no accepted case", kind)
		}
		for _, message := range messages {
			if !refused[kind+": "+message] {
				t.Errorf("%s: no case is refused with %q", kind, message)
			}
		}
	}
}

func ruleMessages(def *apiextensionsv1.CustomResourceDefinition) []string {
	messages := map[string]bool{}
	for _, r := range rulesOf(def) {
		messages[r.message] = true
	}
	return slices.Sorted(maps.Keys(messages))
}

// celRule is a rule as its users meet it: the field it stands on and what it says. The path of an entry of a list or
// a map ends in "*".
type celRule struct {
	path    []string
	message string
}

func rulesOf(def *apiextensionsv1.CustomResourceDefinition) []celRule {
	var rules []celRule
	for _, version := range def.Spec.Versions {
		rules = collectRules(rules, version.Schema.OpenAPIV3Schema, nil)
	}
	return rules
}

// collectRules leaves routers out: the rules in them belong to Gateway API and came with its types.
func collectRules(rules []celRule, s *apiextensionsv1.JSONSchemaProps, path []string) []celRule {
	for _, rule := range s.XValidations {
		rules = append(rules, celRule{path: path, message: rule.Message})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if child := s.Properties[name]; name != "router" {
			rules = collectRules(rules, &child, below(path, name))
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		rules = collectRules(rules, s.Items.Schema, below(path, "*"))
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		rules = collectRules(rules, s.AdditionalProperties.Schema, below(path, "*"))
	}
	return rules
}

// below never writes into the array of path, which the siblings share.
func below(path []string, name string) []string { return append(slices.Clone(path), name) }

func readCases(t *testing.T) []*celCase {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "cel", "*", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases under testdata/cel (%v)", err)
	}
	cases := make([]*celCase, 0, len(files))
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tc, err := parseCase(raw)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		tc.name = strings.TrimSuffix(filepath.Join(filepath.Base(filepath.Dir(file)), filepath.Base(file)), ".yaml")
		cases = append(cases, tc)
	}
	return cases
}

func parseCase(raw []byte) (*celCase, error) {
	tc := &celCase{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() && strings.HasPrefix(lines.Text(), "#") {
		if message, ok := strings.CutPrefix(lines.Text(), "# refused: "); ok {
			tc.refused = append(tc.refused, message)
		}
		if name, ok := strings.CutPrefix(lines.Text(), "# mended: "); ok {
			tc.mended = append(tc.mended, name)
		}
		tc.accepted = tc.accepted || lines.Text() == "# accepted"
	}
	if tc.accepted == (len(tc.refused) > 0) {
		return nil, errors.New(`the first line must be "# accepted" or "# refused: " and the message`)
	}
	docs := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		obj := &unstructured.Unstructured{}
		switch err := docs.Decode(obj); {
		case errors.Is(err, io.EOF) && len(tc.objects) == 0:
			return nil, errors.New("there is no manifest")
		case errors.Is(err, io.EOF):
			return tc, nil
		case err != nil:
			return nil, err
		}
		tc.objects = append(tc.objects, obj)
	}
}
