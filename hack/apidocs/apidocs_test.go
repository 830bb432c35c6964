// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestMain(m *testing.M) {
	// The program is run from the root of the repository.
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// all reads the types once for all tests, which takes seconds.
var all = sync.OnceValues(readGroups)

func eachVersion(t *testing.T, test func(t *testing.T, v version)) {
	t.Helper()
	groups, err := all()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		for _, k := range g.kinds {
			for _, v := range k.versions {
				t.Run(g.name+" "+k.name+" "+v.Name, func(t *testing.T) { test(t, v) })
			}
		}
	}
}

func TestUpToDate(t *testing.T) {
	if err := run("docs/reference", true, io.Discard); err != nil {
		t.Error(err)
	}
}

// TestCheck proves that a page which changed, is missing or belongs to nobody is told.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	if err := run(dir, false, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, true, io.Discard); err != nil {
		t.Errorf("right after writing: %v", err)
	}
	for name, text := range map[string]string{"mlflow.kubeflow.org.md": "other", "gone.example.com.md": "old"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "README.md")); err != nil {
		t.Fatal(err)
	}
	want := "README.md is missing\nmlflow.kubeflow.org.md is out of date\ngone.example.com.md belongs to no group\nrun: go run ./hack/apidocs"
	if err := run(dir, true, io.Discard); err == nil || err.Error() != want {
		t.Errorf("have %v, want %s", err, want)
	}
	if err := run(dir, false, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, true, io.Discard); err != nil {
		t.Errorf("after writing again: %v", err)
	}
}

// TestNothingIsLeftOut looks for every field of the definitions in the tables.
func TestNothingIsLeftOut(t *testing.T) {
	eachVersion(t, func(t *testing.T, v version) {
		var lines, folded []string
		for _, r := range v.rows {
			if r.text == "" {
				t.Errorf("%s has no description", r.path)
			}
			parent, star := strings.CutSuffix(r.path, ".*")
			if !star {
				lines = append(lines, r.path)
			}
			if r.folded != nil && !star {
				folded = append(folded, r.path)
			}
			for _, name := range r.folded {
				if star {
					lines, folded = append(lines, parent+"."+name), append(folded, parent+"."+name)
				}
			}
		}
		for _, path := range paths("", v.Schema.OpenAPIV3Schema) {
			inside := func(outer string) bool {
				rest, ok := strings.CutPrefix(path, outer)
				return ok && rest != "" && strings.ContainsAny(rest[:1], ".[{")
			}
			if !slices.Contains(lines, path) && !slices.ContainsFunc(folded, inside) {
				t.Errorf("%s is in the definition and not on the page", path)
			}
		}
	})
}

// paths lists the fields below a schema.
func paths(path string, s *apiextensionsv1.JSONSchemaProps) []string {
	var out []string
	for name, prop := range s.Properties {
		if path == "" && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
			continue
		}
		out = append(append(out, join(path, name)), paths(join(path, name), &prop)...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		out = append(out, paths(path+"[]", s.Items.Schema)...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		out = append(out, paths(path+"{}", s.AdditionalProperties.Schema)...)
	}
	return out
}

func TestRows(t *testing.T) {
	want := map[string]row{
		"spec.predictor.scaleMetric": {kind: "string", allowed: "`cpu`, `memory`, `concurrency`, `rps`", text: "ScaleMetric is what the component is scaled by."},
		"spec.predictor.storageUris": {kind: "list of object", allowed: "not empty", text: "StorageUris are downloaded before the containers start."},
		"spec.predictor.storageUris[].mountPath": {
			kind: "string", defaults: `"/mnt/models"`, allowed: "at most 255 characters; matches `^/.*`", text: "MountPath is where the containers see it.",
		},
		"spec.predictor.xgboost":       {kind: "object", text: "XGBoost serves an XGBoost model. Fields as in `spec.predictor.sklearn`."},
		"spec.canary[].trafficPercent": {kind: "integer", required: true, allowed: "0 to 100", text: "TrafficPercent is the share of requests it gets."},
		"spec.predictor.deploymentStrategy": {
			kind: "apps/v1 DeploymentStrategy", text: "DeploymentStrategy tells how old pods are replaced by new ones. Fields: `type`, `rollingUpdate`.",
		},
		"spec.router.scheduler.tokenizer.template": {kind: "core/v1 PodSpec", text: "Template of the tokenizer's pods. Fields as in `spec.template`. Required: `containers`."},
		"spec.nodes{}.routerType": {
			kind: "string", required: true, allowed: "`Sequence`, `Splitter`, `Ensemble`, `Switch`",
			text: "RouterType tells whether all steps run in turn, all at once, or one of them.",
		},
		"spec.model.memory": {kind: "quantity", required: true, text: "Memory that the model takes."},
	}
	have := map[string]row{}
	eachVersion(t, func(_ *testing.T, v version) {
		for _, r := range v.rows {
			if _, ok := want[r.path]; ok {
				r.folded = nil
				have[r.path] = r
			}
		}
	})
	for path, w := range want {
		w.path = path
		if diff := cmp.Diff(w, have[path], cmp.AllowUnexported(row{})); diff != "" {
			t.Errorf("%s (-want +have):\n%s", path, diff)
		}
	}
}

// TestRulesAreOurs finds every rule of the definitions that stands in a place of ours.
func TestRulesAreOurs(t *testing.T) {
	eachVersion(t, func(t *testing.T, v version) {
		for _, r := range v.rules {
			if r.message == "" {
				t.Errorf("the rule %s on %q has no message", r.expression, r.path)
			}
		}
		root := v.Schema.OpenAPIV3Schema
		spec := root.Properties["spec"]
		for _, want := range append(slices.Clone(root.XValidations), spec.XValidations...) {
			if !slices.ContainsFunc(v.rules, func(r rule) bool { return r.expression == want.Rule && r.message == want.Message }) {
				t.Errorf("the rule %s is not on the page", want.Rule)
			}
		}
	})
}

var (
	link     = regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)
	codeSpan = regexp.MustCompile("`[^`]*`")
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// TestLinks follows every link of every page.
func TestLinks(t *testing.T) {
	files, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		for _, found := range link.FindAllSubmatch(codeSpan.ReplaceAll(text, nil), -1) {
			file, fragment := string(found[1]), strings.TrimPrefix(string(found[2]), "#")
			if file == "" {
				file = name
			}
			if fragment == "" {
				if _, err := os.Stat(filepath.Join("docs/reference", file)); err != nil {
					t.Errorf("%s links to %s: %v", name, file, err)
				}
				continue
			}
			anchors := heading.FindAllStringSubmatch(string(files[file]), -1)
			if !slices.ContainsFunc(anchors, func(h []string) bool { return anchor(strings.Fields(h[1])...) == fragment }) {
				t.Errorf("%s links to %s#%s, which is not there", name, file, fragment)
			}
		}
	}
}

func TestAllowed(t *testing.T) {
	for _, tc := range []struct {
		schema apiextensionsv1.JSONSchemaProps
		want   string
	}{
		{apiextensionsv1.JSONSchemaProps{}, ""},
		{apiextensionsv1.JSONSchemaProps{Minimum: new(1.0), Maximum: new(65535.0)}, "1 to 65535"},
		{apiextensionsv1.JSONSchemaProps{Minimum: new(1.0)}, "at least 1"},
		{apiextensionsv1.JSONSchemaProps{Maximum: new(0.5)}, "at most 0.5"},
		{apiextensionsv1.JSONSchemaProps{MinLength: new(int64(1))}, "not empty"},
		{apiextensionsv1.JSONSchemaProps{MinItems: new(int64(2)), MaxItems: new(int64(4))}, "2 to 4 items"},
		{apiextensionsv1.JSONSchemaProps{MaxProperties: new(int64(8))}, "at most 8 entries"},
		{apiextensionsv1.JSONSchemaProps{Pattern: "^a|b$"}, "matches `^a|b$`"},
		{apiextensionsv1.JSONSchemaProps{Pattern: quantityPattern}, ""},
		{apiextensionsv1.JSONSchemaProps{Enum: []apiextensionsv1.JSON{{Raw: []byte(`""`)}, {Raw: []byte(`"a"`)}, {Raw: []byte(`1`)}}}, "`\"\"`, `a`, `1`"},
		{apiextensionsv1.JSONSchemaProps{XListMapKeys: []string{"name"}}, "unique by `name`"},
	} {
		if have := allowed(&tc.schema); have != tc.want {
			t.Errorf("allowed(%+v) = %q, want %q", tc.schema, have, tc.want)
		}
	}
}

func TestMarkdown(t *testing.T) {
	for _, tc := range []struct{ have, want string }{
		{code(""), ""},
		{code("a"), "`a`"},
		{code("a`b"), "`` a`b ``"},
		{codes([]string{"a", ""}), "`a`, `\"\"`"},
		{cell("a |\n b"), `a \| b`},
		{anchor("Config", "v1"), "config-v1"},
	} {
		if tc.have != tc.want {
			t.Errorf("have %q, want %q", tc.have, tc.want)
		}
	}
}
