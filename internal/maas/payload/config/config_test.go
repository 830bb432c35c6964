// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"testing"
)

func known(name string) bool { return slices.Contains([]string{"one", "two"}, name) }

const head = "apiVersion: llm-d.ai/v1alpha1\nkind: PayloadProcessorConfig\n"

func TestParse(t *testing.T) {
	p, err := Parse([]byte(head+`plugins:
- type: single-profile-picker
- type: one
  name: first
  parameters:
    fieldName: model
- type: two
preProcessing:
- pluginRef: two
profilePicker: {pluginRef: single-profile-picker}
profiles:
- name: default
  plugins:
    request:
    - pluginRef: first
    response: []
`), known)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Request) != 2 || p.Request[0].Type != "two" || p.Request[1].Name != "first" || len(p.Response) != 0 {
		t.Fatalf("%+v", p)
	}
	var parameters struct {
		FieldName string `yaml:"fieldName"`
	}
	if err := p.Request[1].Parameters(&parameters); err != nil || parameters.FieldName != "model" {
		t.Errorf("%+v, %v", parameters, err)
	}
	if err := p.Request[1].Parameters(&struct{}{}); err == nil || !strings.Contains(err.Error(), "line 5") || !strings.Contains(err.Error(), "fieldName") {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	profiles := "profiles:\n- name: default\n  plugins:\n    request:\n    - pluginRef: "
	for _, test := range []struct{ text, want string }{
		{"", "EOF"},
		{"apiVersion: v1\nkind: ConfigMap\n", "must begin with"},
		{head + "plugins:\n- type: three\n" + profiles + "three\n", `line 4: plugin type "three" is unknown`},
		{head + "plugins:\n- type: one\n" + profiles + "tow\n", `line 9: pluginRef "tow" names no plugin`},
		{head + "plugins:\n- type: one\n- type: one\n" + profiles + "one\n", "line 5: plugin one is there already, on line 4"},
		{head + "plugins:\n- name: one\n" + profiles + "one\n", "line 4: a plugin has no type"},
		{head + "plugins:\n- type: one\n  params: 1\n" + profiles + "one\n", `line 5: field "params" is unknown`},
		{head + "plugins:\n- type: one\nextra: 1\n" + profiles + "one\n", "line 5: field extra not found"},
		{head + "plugins:\n- type: one\n", "0 profiles"},
		{head + "plugins: [\n", "line"},
		{head + "plugins:\n- one\n" + profiles + "one\n", "line 4: expected"},
		{head + "plugins:\n- type: one\nprofilePicker: {pluginRef: one}\n" + profiles + "one\n", "line 5: profilePicker"},
		{head + "plugins:\n- type: one\n" + profiles + "one\n---\na: 1\n", "more than one document"},
	} {
		if _, err := Parse([]byte(test.text), known); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "plugins:\n- type: one\nprofiles:\n- plugins: {request: [{pluginRef: one}]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text, known)
		if err == nil && !strings.Contains(string(text), Kind) {
			t.Fatalf("%q was taken for a configuration: %+v", text, p)
		}
	})
}
