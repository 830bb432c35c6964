// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// definitions is where the generated CRDs are.
const definitions = "../../charts/modelplane/files/crds"

// readDefinitions loads all CRDs, keyed by group and kind.
func readDefinitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	out := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range definitionFiles(t) {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		def := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(raw, def); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[def.Spec.Group+" "+def.Spec.Names.Kind] = def
	}
	return out
}

func definitionFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(definitions, "*_*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no definitions in %s; run: go run ./hack/crdgen", definitions)
	}
	return files
}

// flatten lists a schema's fields the way the tables do. It stops below the
// paths in stop, whose inside the tables do not list.
func flatten(root *apiextensionsv1.JSONSchemaProps, stop func(path string) bool) map[string]field {
	out := map[string]field{}
	var add func(path string, s *apiextensionsv1.JSONSchemaProps, required bool)
	children := func(path string, s *apiextensionsv1.JSONSchemaProps) {
		for name, prop := range s.Properties {
			add(strings.TrimPrefix(path+"."+name, "."), &prop, slices.Contains(s.Required, name))
		}
		if s.Items != nil && s.Items.Schema != nil {
			add(path+"[]", s.Items.Schema, false)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			add(path+"{}", s.AdditionalProperties.Schema, false)
		}
	}
	add = func(path string, s *apiextensionsv1.JSONSchemaProps, required bool) {
		switch path {
		case "apiVersion", "kind", "metadata":
			return
		}
		out[path] = describe(s, required)
		if strings.HasPrefix(path+".", "spec.") && len(s.Properties) > 0 {
			delete(out[path].Constraints, "preserve-unknown") // it only keeps what admission refuses
		}
		if !stop(path) {
			children(path, s)
		}
	}
	children("", root)
	return out
}

// describe says of one schema node what a table row says.
func describe(s *apiextensionsv1.JSONSchemaProps, required bool) field {
	f := field{Type: s.Type, Constraints: map[string]string{}}
	switch {
	case s.XIntOrString:
		f.Type = "int-or-string"
	case s.Type == "":
		f.Type = "any"
	}
	set := func(key, value string, present bool) {
		if present {
			f.Constraints[key] = value
		}
	}
	set("required", "", required)
	set("format", s.Format, s.Format != "")
	set("pattern", s.Pattern, s.Pattern != "")
	set("preserve-unknown", "", s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields)
	if s.Default != nil {
		set("default", literal(s.Default.Raw), true)
	}
	var enum []string
	for _, e := range s.Enum {
		enum = append(enum, literal(e.Raw))
	}
	set("enum", strings.Join(enum, "|"), len(enum) > 0)
	for key, bound := range map[string]*int64{
		"minLength": s.MinLength, "maxLength": s.MaxLength, "minItems": s.MinItems, "maxItems": s.MaxItems,
	} {
		if bound != nil {
			set(key, strconv.FormatInt(*bound, 10), true)
		}
	}
	for key, bound := range map[string]*float64{"minimum": s.Minimum, "maximum": s.Maximum} {
		if bound != nil {
			set(key, strconv.FormatFloat(*bound, 'f', -1, 64), true)
		}
	}
	for key, value := range map[string]*string{"x-kubernetes-list-type": s.XListType, "x-kubernetes-map-type": s.XMapType} {
		if value != nil {
			set(key, *value, true)
		}
	}
	return f
}

// literal writes a JSON value as the tables do: strings bare at the top, the
// rest with single quotes, capitalised booleans and keys in order.
func literal(raw []byte) string {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return string(raw)
	}
	if s, ok := v.(string); ok {
		return s
	}
	return nested(v)
}

func nested(v any) string {
	switch v := v.(type) {
	case string:
		return "'" + v + "'"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []any:
		parts := make([]string, 0, len(v))
		for _, e := range v {
			parts = append(parts, nested(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		parts := make([]string, 0, len(v))
		for k, e := range v {
			parts = append(parts, fmt.Sprintf("'%s': %s", k, nested(e)))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	default:
		return fmt.Sprint(v)
	}
}
