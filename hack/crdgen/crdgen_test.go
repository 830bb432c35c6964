// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

var sample = []string{"./testdata/sample/v1", "./testdata/sample/v2"}

// widgets is what the program writes for the sample packages. Reading packages takes long, so that it is done once.
var widgets = sync.OnceValues(func() (fs.FS, error) {
	dir, err := os.MkdirTemp("", "crdgen")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	lightKinds["Widget"] = true
	defer delete(lightKinds, "Widget")
	if err := run(dir, false, sample, io.Discard); err != nil {
		return nil, err
	}
	written := fstest.MapFS{}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		raw, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return nil, err
		}
		written[file.Name()] = &fstest.MapFile{Data: raw, Mode: 0o600}
	}
	return written, nil
})

// generated is a folder of its own with what the program writes, and the definition in it.
func generated(t *testing.T) (string, *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	written, err := widgets()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, written); err != nil {
		t.Fatal(err)
	}
	lightKinds["Widget"] = true
	t.Cleanup(func() { delete(lightKinds, "Widget") })
	raw, err := os.ReadFile(filepath.Join(dir, "sample.modelplane.dev_widgets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	def := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(raw, def); err != nil {
		t.Fatal(err)
	}
	return dir, def
}

func TestLightSubtrees(t *testing.T) {
	_, def := generated(t)
	spec := def.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	keep := new(true)
	for _, tc := range []struct {
		name string
		have apiextensionsv1.JSONSchemaProps
		want apiextensionsv1.JSONSchemaProps
	}{
		{"object", spec.Properties["affinity"], apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: keep}},
		{"map", spec.Properties["overhead"], apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: keep}},
		{"atomic list", spec.Properties["tolerations"], apiextensionsv1.JSONSchemaProps{
			Type: "array", XListType: new("atomic"),
			Items: items(apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: keep}),
		}},
		{"keyed by an embedded struct's field", spec.Properties["ephemeralContainers"], keyed(
			[]string{"name"}, []string{"name"}, map[string]apiextensionsv1.JSONSchemaProps{"name": {Type: "string"}})},
		{"keyed with defaults", spec.Properties["sidecar"].Properties["ports"], keyed(
			[]string{"containerPort", "protocol"}, []string{"containerPort"},
			map[string]apiextensionsv1.JSONSchemaProps{
				"containerPort": {Type: "integer", Format: "int32"},
				"protocol":      {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"TCP"`)}},
			})},
		{"keyed by a defaulted name", spec.Properties["imagePullSecrets"], keyed([]string{"name"}, nil,
			map[string]apiextensionsv1.JSONSchemaProps{"name": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`""`)}}})},
		{"same name, own type", spec.Properties["limits"].Items.Schema.Properties["resources"], apiextensionsv1.JSONSchemaProps{
			Type: "object", Required: []string{"size"},
			Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {
				Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"small"`)}, {Raw: []byte(`"large"`)}},
			}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.have.Description = ""
			if diff := cmp.Diff(tc.want, tc.have); diff != "" {
				t.Errorf("schema (-want +have):\n%s", diff)
			}
		})
	}
	if rules := spec.Properties["sidecar"].Properties["restartPolicyRules"]; rules.Items.Schema.Properties["action"].Type != "string" {
		t.Errorf("a field that is not in the list of light ones must keep its inside, have %+v", rules)
	}
}

// TestOtherKindsAreWrittenOut proves that a kind that is not listed as light keeps
// what Kubernetes says about its own types.
func TestOtherKindsAreWrittenOut(t *testing.T) {
	defs, err := generate(sample)
	if err != nil {
		t.Fatal(err)
	}
	spec := defs[0].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	if terms := spec.Properties["affinity"].Properties["podAffinity"]; terms.Type != "object" {
		t.Errorf("want the inside of affinity, have %+v", terms)
	}
	if port := spec.Properties["containers"].Items.Schema.Properties["ports"].Items.Schema.Properties["protocol"]; port.Default == nil {
		t.Errorf("want the default of a nested field, have %+v", port)
	}
}

func items(s apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaPropsOrArray {
	return &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &s}
}

func keyed(keys, required []string, props map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{
		Type: "array", XListType: new("map"), XListMapKeys: keys,
		Items: items(apiextensionsv1.JSONSchemaProps{
			Type: "object", XPreserveUnknownFields: new(true), Required: required, Properties: props,
		}),
	}
}

func TestConversionForSeveralVersions(t *testing.T) {
	_, def := generated(t)
	if diff := cmp.Diff(conversion(), def.Spec.Conversion); diff != "" {
		t.Errorf("conversion (-want +have):\n%s", diff)
	}
	if v := def.Spec.Versions; len(v) != 2 || !v[0].Storage || v[1].Storage {
		t.Errorf("want v1 stored and v2 not, have %+v", v)
	}
}

func TestCheckFindsEveryDifference(t *testing.T) {
	dir, _ := generated(t)
	if err := run(dir, true, sample, io.Discard); err != nil {
		t.Fatalf("a second run must agree with the first: %v", err)
	}
	name := filepath.Join(dir, "sample.modelplane.dev_widgets.yaml")
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, append(raw, "# edited\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, kustomization)); err != nil {
		t.Fatal(err)
	}
	err = run(dir, true, sample, io.Discard)
	for _, want := range []string{"widgets.yaml is out of date", "Kustomization is missing", "go run ./hack/crdgen"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, have %v", want, err)
		}
	}
	if now, _ := os.ReadFile(name); !bytes.HasSuffix(now, []byte("# edited\n")) {
		t.Error("-check must not write")
	}
}

func TestAmend(t *testing.T) {
	schema := func() *apiextensionsv1.JSONSchemaProps {
		return object(map[string]apiextensionsv1.JSONSchemaProps{"spec": *object(map[string]apiextensionsv1.JSONSchemaProps{
			"probe": *object(map[string]apiextensionsv1.JSONSchemaProps{"httpGet": {Required: []string{"port"}}}),
			"router": *object(map[string]apiextensionsv1.JSONSchemaProps{
				"scheduler": *object(map[string]apiextensionsv1.JSONSchemaProps{
					"pool": *object(map[string]apiextensionsv1.JSONSchemaProps{"spec": *object(map[string]apiextensionsv1.JSONSchemaProps{
						"name": {Pattern: "^a$", MinLength: new(int64(1)), MaxLength: new(int64(9))},
					})}),
					"tokenizer": *object(map[string]apiextensionsv1.JSONSchemaProps{"template": {Required: []string{"other"}}}),
				}),
			}),
		})})
	}
	at := func(root *apiextensionsv1.JSONSchemaProps, path ...string) apiextensionsv1.JSONSchemaProps {
		found := false
		var out apiextensionsv1.JSONSchemaProps
		edit(root, path, func(s *apiextensionsv1.JSONSchemaProps) { out, found = *s, true })
		if !found {
			t.Fatalf("no %v", path)
		}
		return out
	}
	probe := []string{"spec", "probe", "httpGet"}
	pool := []string{"spec", "router", "scheduler", "pool", "spec", "name"}
	template := tokenizerContainers[:len(tokenizerContainers)-1]

	config := schema()
	amend("serving.kserve.io", "LLMInferenceServiceConfig", config)
	if have := at(config, probe...); have.Required != nil {
		t.Errorf("a probe may leave out its port, have %v", have.Required)
	}
	if have := at(config, pool...); have.Pattern != "" || have.MinLength != nil || *have.MaxLength != 9 {
		t.Errorf("a templated string keeps its maximum length only, have %+v", have)
	}
	if diff := cmp.Diff([]string{"containers", "other"}, at(config, template...).Required); diff != "" {
		t.Errorf("tokenizer template (-want +have):\n%s", diff)
	}

	service := schema()
	amend("serving.kserve.io", "LLMInferenceService", service)
	if have := at(service, pool...); have.Pattern != "^a$" {
		t.Errorf("only a config is templated, have %+v", have)
	}
	other := schema()
	amend("mlflow.opendatahub.io", "MLflow", other)
	if diff := cmp.Diff(schema(), other); diff != "" {
		t.Errorf("other groups are left alone (-want +have):\n%s", diff)
	}
}

func object(props map[string]apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	return &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: props}
}

func TestFirstSentence(t *testing.T) {
	for in, want := range map[string]string{
		"One. Two.":                     "One.",
		"One e.g. this one. Two.":       "One e.g. this one.",
		"Broken\nline. More":            "Broken line.",
		"Paragraph one\n\nParagraph 2.": "Paragraph one",
		"No end":                        "No end",
		"":                              "",
	} {
		if have := firstSentence(in); have != want {
			t.Errorf("firstSentence(%q) = %q, want %q", in, have, want)
		}
	}
}

func TestEncodeDropsDeepDescriptionsFirst(t *testing.T) {
	long := strings.Repeat("x", budget/2)
	def := &apiextensionsv1.CustomResourceDefinition{}
	def.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{
		OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Description: "Root. More.", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"a": {Description: "Shallow. " + "More.", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"b": {Description: long}, "c": {Description: long},
			}},
		}},
	}}}
	out, err := encode(def)
	if err != nil {
		t.Fatal(err)
	}
	if len(out) > budget {
		t.Errorf("%d bytes, want at most %d", len(out), budget)
	}
	if !bytes.Contains(out, []byte("description: Shallow.")) || bytes.Contains(out, []byte("xxx")) {
		t.Errorf("want the shallow description kept and the deep ones gone:\n%s", out)
	}
	def.Spec.Group = strings.Repeat("g", budget)
	if _, err := encode(def); err == nil || !strings.Contains(err.Error(), "without descriptions") {
		t.Errorf("want a refusal, have %v", err)
	}
}
