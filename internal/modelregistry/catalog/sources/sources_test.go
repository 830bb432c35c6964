// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
)

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		included, excluded []string
		yes, no            string
	}{
		{yes: "anything"},
		{included: []string{"Acme/*"}, yes: "acme/a ACME/ acme/a/b", no: "acme xacme/a"},
		{included: []string{"a*b*c"}, yes: "abc axbxc abbc", no: "ab ac abcd"},
		{included: []string{"a.c"}, yes: "a.c", no: "abc"},
		{included: []string{"a*a"}, yes: "aa aba", no: "a"},
		{included: []string{"*"}, excluded: []string{"*-draft"}, yes: "a", no: "a-draft A-DRAFT"},
	} {
		s := Selection{c.included, c.excluded}
		for _, name := range strings.Fields(c.yes) {
			if !s.Allows(name) {
				t.Errorf("%v without %v does not allow %q", c.included, c.excluded, name)
			}
		}
		for _, name := range strings.Fields(c.no) {
			if s.Allows(name) {
				t.Errorf("%v without %v allows %q", c.included, c.excluded, name)
			}
		}
	}
}

func TestMerge(t *testing.T) {
	first, err := Parse([]byte(`
catalogs:
- {id: a, name: A, type: yaml, labels: [x], properties: {yamlCatalogPath: a.yaml}, includedModels: [m/*]}
- {id: b, type: yaml, properties: {yamlCatalogPath: b.yaml}}
mcp_catalogs: [{id: s, type: yaml, includedServers: [q]}]
labels: [{name: x, displayName: X}]
`), "/first")
	if err != nil {
		t.Fatal(err)
	}
	second, err := Parse([]byte(`
model_catalogs:
- {id: a, enabled: off, labels: []}
- {id: b, properties: {yamlCatalogPath: c.yaml}}
- {id: s, type: yaml}
labels: [{name: x, displayName: Y}, {name: null, displayName: N}]
`), "/second")
	if err != nil {
		t.Fatal(err)
	}
	merged := Merge([]*File{first, second})
	a, b := merged.Sources[0], merged.Sources[1]
	if a.Name != "A" || a.IsEnabled() || len(a.Labels) != 0 || a.Path() != "/first/a.yaml" || len(a.Included) != 1 {
		t.Errorf("a: %+v", a)
	}
	if b.Path() != "/second/c.yaml" || !b.IsEnabled() {
		t.Errorf("b: %+v", b)
	}
	if merged.Sources[2].Kind != entry.MCPServers || len(merged.Problems) != 1 {
		t.Errorf("an id for two kinds: %+v, %v", merged.Sources[2], merged.Problems)
	}
	if len(merged.Labels) != 2 || *merged.Labels[0]["displayName"] != "Y" {
		t.Errorf("labels: %v", merged.Labels)
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":       {"catalog: []", "catalog"},
		"unknown field":     {"catalogs: [{id: a, typ: yaml}]", "typ"},
		"key twice":         {"catalogs: []\ncatalogs: []", "twice"},
		"source twice":      {"catalogs: [{id: a}]\nmcp_catalogs: [{id: a}]", `"a" is there twice`},
		"no id":             {"catalogs: [{name: a}]", "no id"},
		"empty pattern":     {"catalogs: [{id: a, includedModels: [' ']}]", "empty"},
		"in and out":        {"catalogs: [{id: a, includedModels: [x], excludedModels: [x]}]", "both"},
		"servers of models": {"catalogs: [{id: a, includedServers: [x]}]", "named otherwise"},
		"label":             {"labels: [{displayName: a}]", "no name"},
		"query":             {"namedQueries: {a: {b: {operator: '~', value: 1}}}", "operator"},
		"query in words":    {"namedQueries: {a: {'b c': {operator: '=', value: 1}}}", "namedQueries.a"},
		"documents":         {"catalogs: []\n---\ncatalogs: []", "more than one"},
		"list":              {"[]", "cannot unmarshal"},
		"laughs":            {laughs(), "too much"},
	} {
		if _, err := Parse([]byte(c.text), ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// laughs is a short text that stands for a long one.
func laughs() string {
	out := "labels:\n- &a0 {name: x}\n"
	for i := range 9 {
		out += "- &a" + string(rune('1'+i)) + " [" + strings.TrimSuffix(strings.Repeat("*a"+string(rune('0'+i))+", ", 9), ", ") + "]\n"
	}
	return out
}

// TestTexts: people's texts are not turned into something else.
func TestTexts(t *testing.T) {
	got, err := decode([]byte("a: [no, 1.10, 2024-01-02, 0x10, .inf, true, 'yes', ~, 1e3]\nb: {<<: &m {c: 1}, d: 2}"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"a": []any{"no", json.Number("1.10"), "2024-01-02", json.Number("16"), ".inf", true, "yes", nil, json.Number("1e3")},
		"b": map[string]any{"c": json.Number("1"), "d": json.Number("2")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzSources(f *testing.F) {
	for _, name := range []string{"sources.yaml", "user.yaml", "models.yaml", "servers.yaml", "agents.yaml"} {
		data, err := os.ReadFile(filepath.Join("..", "testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if file, err := Parse(data, "/dir"); err == nil {
			for _, q := range Merge([]*File{file, file}).Queries {
				if _, err := q.Text(nil); err != nil {
					t.Errorf("a query that was accepted cannot be written: %v", err)
				}
			}
		}
		for _, kind := range entry.Kinds {
			objects, _, err := Objects(kind, data)
			if err != nil {
				continue
			}
			read := Source{Kind: kind, ID: "s"}.Entries(objects)
			entry.Options(read.Entries)
			for _, e := range read.Entries {
				if _, err := json.Marshal(e.Fields); err != nil || e.ID < 1 || e.Name == "" {
					t.Errorf("%+v: %v", e, err)
				}
			}
		}
	})
}
