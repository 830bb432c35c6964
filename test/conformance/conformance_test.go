// SPDX-License-Identifier: Apache-2.0

// Package conformance proves that the kinds offered here are the kinds that
// existing manifests and clients were written for. The tables under fields/ are
// the facts; the generated CRDs are what is measured. It must not derive its
// expectations from the Go types, which would only compare them with themselves.
package conformance

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// TestFields compares every kind-version with its table in both directions and
// prints how much of it agrees.
func TestFields(t *testing.T) {
	tables, defs := readTables(t, "fields"), readDefinitions(t)
	for _, tab := range tables {
		t.Run(strings.TrimSuffix(tab.File, ".tsv"), func(t *testing.T) {
			def := defs[tab.Group+" "+tab.Kind]
			version := versionOf(def, tab.Version)
			if version == nil {
				t.Fatalf("0.0 %% %s: no definition", tab.name())
			}
			result := &comparison{kind: tab.name()}
			result.fields(tab, version)
			result.shape(tab, def, version)
			t.Logf("%5.1f %% %s (%d of %d)", result.percent(), tab.name(), result.total-len(result.problems), result.total)
			sort.Strings(result.problems)
			for _, p := range result.problems {
				t.Error(p)
			}
		})
	}
}

// TestNothingElse makes sure that every version of every definition is measured.
func TestNothingElse(t *testing.T) {
	known := map[string]bool{}
	for _, tab := range readTables(t, "fields") {
		known[tab.name()] = true
	}
	for _, def := range readDefinitions(t) {
		for _, v := range def.Spec.Versions {
			if name := def.Spec.Group + "/" + v.Name + " " + def.Spec.Names.Kind; !known[name] {
				t.Errorf("%s is defined but has no table", name)
			}
		}
	}
}

// TestDescriptions keeps `kubectl explain` useful: descriptions are dropped from
// the deepest level upwards to make a definition fit, but never from the levels
// where people look first, such as spec.predictor.model. Types of Kubernetes and
// Gateway API come without descriptions: no field of such an object has one.
func TestDescriptions(t *testing.T) {
	const levels = 3
	for name, def := range readDefinitions(t) {
		for _, version := range def.Spec.Versions {
			all := func(string) bool { return false }
			for path := range flatten(version.Schema.OpenAPIV3Schema, all) {
				isItem := strings.HasSuffix(path, "]") || strings.HasSuffix(path, "}")
				root := version.Schema.OpenAPIV3Schema
				if strings.Count(path, ".") < levels && !isItem && descriptionAt(root, path) == "" && ownObject(root, path) {
					t.Errorf("%s %s: %s has no description", name, version.Name, path)
				}
			}
		}
	}
}

// ownObject tells whether the object that holds a field has words of ours.
func ownObject(root *apiextensionsv1.JSONSchemaProps, path string) bool {
	parent := ""
	if i := strings.LastIndex(path, "."); i >= 0 {
		parent = path[:i]
	}
	for other := range flatten(root, func(string) bool { return false }) {
		rest, below := strings.CutPrefix(other, parent)
		if parent != "" {
			rest, below = strings.CutPrefix(rest, ".")
		}
		if below && !strings.ContainsAny(rest, ".[{") && descriptionAt(root, other) != "" {
			return true
		}
	}
	return false
}

func descriptionAt(s *apiextensionsv1.JSONSchemaProps, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		bare, isList := strings.CutSuffix(name, "[]")
		bare, isMap := strings.CutSuffix(bare, "{}")
		child := s.Properties[bare]
		switch s = &child; {
		case isList:
			s = child.Items.Schema
		case isMap:
			s = child.AdditionalProperties.Schema
		}
	}
	return s.Description
}

// limit is what all annotations of an object may have together. kubectl apply
// stores the whole definition in one of them.
const limit = 262144

func TestSizes(t *testing.T) {
	for _, file := range definitionFiles(t) {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		compact, err := yaml.YAMLToJSON(raw)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		t.Logf("%7d bytes, %7d as JSON  %s", len(raw), len(compact), filepath.Base(file))
		if len(raw) >= limit || len(compact) >= limit {
			t.Errorf("%s is too large for a client-side kubectl apply: %d bytes, %d as JSON, limit %d", file, len(raw), len(compact), limit)
		}
	}
}

func versionOf(def *apiextensionsv1.CustomResourceDefinition, name string) *apiextensionsv1.CustomResourceDefinitionVersion {
	if def == nil {
		return nil
	}
	for i := range def.Spec.Versions {
		if def.Spec.Versions[i].Name == name {
			return &def.Spec.Versions[i]
		}
	}
	return nil
}

// comparison counts what was compared and keeps what did not agree.
type comparison struct {
	kind     string
	total    int
	problems []string
}

func (c *comparison) percent() float64 {
	return 100 * float64(c.total-len(c.problems)) / float64(max(c.total, 1))
}

// equal counts one comparison. A difference that is listed as deliberate agrees.
func (c *comparison) equal(what, want, have string) {
	c.total++
	if want != have && !deliberate(c.kind, what, have) {
		c.problems = append(c.problems, fmt.Sprintf("%s: want %s, have %s", what, orNothing(want), orNothing(have)))
	}
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return strconv.Quote(s)
}

// fields compares all paths of both sides.
func (c *comparison) fields(tab *table, version *apiextensionsv1.CustomResourceDefinitionVersion) {
	isCore := func(path string) bool {
		_, core := tab.Fields[path].Constraints[coreType]
		return core
	}
	have := flatten(version.Schema.OpenAPIV3Schema, isCore)
	paths := maps.Clone(have)
	maps.Copy(paths, tab.Fields)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		c.equal(path, row(tab.Fields, path, isCore(path)), row(have, path, isCore(path)))
	}
}

// row writes a field for comparison and for the message when it differs. Of a
// core type only type, list type and required flag are compared.
func row(fields map[string]field, path string, core bool) string {
	f, ok := fields[path]
	if !ok {
		return ""
	}
	parts := []string{f.Type}
	for _, key := range slices.Sorted(maps.Keys(f.Constraints)) {
		if core && key != "required" && key != "x-kubernetes-list-type" {
			continue
		}
		parts = append(parts, key+"="+f.Constraints[key])
	}
	return strings.Join(parts, "; ")
}

// shape compares what a kind shows of itself outside its schema.
func (c *comparison) shape(tab *table, def *apiextensionsv1.CustomResourceDefinition, version *apiextensionsv1.CustomResourceDefinitionVersion) {
	names := def.Spec.Names
	c.equal("scope", tab.Header["scope"], string(def.Spec.Scope))
	c.equal("plural", tab.Header["plural"], names.Plural)
	c.equal("shortNames", tab.Header["shortNames"], strings.Join(names.ShortNames, ","))
	c.equal("categories", tab.Header["categories"], strings.Join(names.Categories, ","))
	c.equal("served", strings.ToLower(tab.Header["served"]), strconv.FormatBool(version.Served))
	c.equal("storage", strings.ToLower(tab.Header["storage"]), strconv.FormatBool(version.Storage))
	c.equal("subresources", tab.Header["subresources"], subresources(version))
	want, have := tab.Columns, columns(version)
	have = slices.DeleteFunc(have, func(col string) bool {
		return !slices.Contains(want, col) && deliberate(c.kind, "column", col)
	})
	c.equal("columns", strings.Join(want, "\n"), strings.Join(have, "\n"))
}

func subresources(v *apiextensionsv1.CustomResourceDefinitionVersion) string {
	var out []string
	if v.Subresources != nil && v.Subresources.Scale != nil {
		out = append(out, "scale")
	}
	if v.Subresources != nil && v.Subresources.Status != nil {
		out = append(out, "status")
	}
	return strings.Join(out, ",")
}

func columns(v *apiextensionsv1.CustomResourceDefinitionVersion) []string {
	var out []string
	for _, col := range v.AdditionalPrinterColumns {
		out = append(out, fmt.Sprintf("%s %s %s priority=%d", col.Name, col.Type, col.JSONPath, col.Priority))
	}
	return out
}

func TestComparisonFindsDifferences(t *testing.T) {
	tab, err := parseTable([]byte("# g/v1 K scope=Namespaced plural=ks shortNames= categories= served=True storage=True subresources=status\n" +
		"# column Age date .metadata.creationTimestamp priority=0\n" +
		"path\ttype\tconstraints\nspec\tobject\trequired\nspec.a\tstring\tdefault=x\nspec.gone\tstring\t\nspec.containers\tarray\tk8s core type\n"))
	if err != nil {
		t.Fatal(err)
	}
	version := &apiextensionsv1.CustomResourceDefinitionVersion{Served: true, Schema: &apiextensionsv1.CustomResourceValidation{
		OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"metadata": {Type: "object"},
			"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"a":     {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"y"`)}},
				"extra": {Type: "boolean"},
				"containers": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{
					Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
				}},
			}},
		}},
	}}
	def := &apiextensionsv1.CustomResourceDefinition{}
	def.Spec.Scope, def.Spec.Names.Plural = apiextensionsv1.NamespaceScoped, "ks"
	c := &comparison{kind: tab.name()}
	c.fields(tab, version)
	c.shape(tab, def, version)
	want := []string{
		`spec: want "object; required=", have "object"`,
		`spec.a: want "string; default=x", have "string; default=y"`,
		`spec.extra: want nothing, have "boolean"`,
		`spec.gone: want "string", have nothing`,
		`storage: want "true", have "false"`,
		`subresources: want "status", have nothing`,
		`columns: want "Age date .metadata.creationTimestamp priority=0", have nothing`,
	}
	if !slices.Equal(want, c.problems) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(c.problems, "\n"), strings.Join(want, "\n"))
	}
}
