// SPDX-License-Identifier: Apache-2.0

package entity

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTable: everything that the table names is in it.
// created is what a body makes of a new entity.
func created(k *Kind, body string) (*Record, error) {
	r, err := k.Decode([]byte(body))
	if err == nil {
		err = r.Complete()
	}
	return r, err
}

func TestTable(t *testing.T) {
	types := map[string]bool{}
	for _, k := range Kinds {
		if types[k.Type] {
			t.Errorf("type %s is there twice", k.Type)
		}
		types[k.Type] = true
		if k.Parent != nil && ByName(k.Parent.Kind) == nil {
			t.Errorf("%s belongs to %s, which there is not", k.Name, k.Parent.Kind)
		}
		names, stored := map[string]bool{}, map[string]bool{}
		for _, f := range k.Fields {
			if names[f.Name] || stored[f.Stored] || f.Stored == "" {
				t.Errorf("%s.%s is there twice, or stored nowhere or as another", k.Name, f.Name)
			}
			names[f.Name], stored[f.Stored] = true, true
			if f.Type == Enum != (len(f.Words) > 0) || f.Type == ID != (f.Of != "") || f.Of != "" && ByName(f.Of) == nil {
				t.Errorf("%s.%s does not say what it can be", k.Name, f.Name)
			}
		}
		if k.Parent != nil && k.Parent.Field != "" && !names[k.Parent.Field] {
			t.Errorf("%s has no field %s for its parent", k.Name, k.Parent.Field)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for kind, body := range map[string]string{
		"RegisteredModel": `{"name":"bert","externalId":"x-1","description":"","owner":"ada","state":"ARCHIVED","language":["en","de"],"tasks":[],
			"customProperties":{"accuracy":{"metadataType":"MetadataDoubleValue","double_value":0.5},"n":{"metadataType":"MetadataIntValue","int_value":"9223372036854775807"},
			"ok":{"metadataType":"MetadataBoolValue","bool_value":true},"s":{"metadataType":"MetadataStringValue","string_value":"<a>"},
			"o":{"metadataType":"MetadataStructValue","struct_value":"eyJhIjpbMSx7ImIiOm51bGx9XX0="}}}`,
		"ModelVersion":     `{"name":"v1","registeredModelId":"1","author":"ada","state":"LIVE","customProperties":{}}`,
		"ExperimentRun":    `{"experimentId":"3","state":"LIVE","status":"FINISHED","startTimeSinceEpoch":"1","endTimeSinceEpoch":"2","customProperties":{}}`,
		"InferenceService": `{"registeredModelId":"1","servingEnvironmentId":"2","modelVersionId":"3","runtime":"onnx","desiredState":"UNDEPLOYED","customProperties":{}}`,
		"ServeModel":       `{"modelVersionId":"1","lastKnownState":"RUNNING","customProperties":{}}`,
		"ModelArtifact":    `{"artifactType":"model-artifact","name":"m","uri":"s3://a/b","modelFormatName":"onnx","state":"LIVE","customProperties":{}}`,
		"Metric":           `{"artifactType":"metric","name":"loss","value":0.25,"timestamp":"7","step":3,"customProperties":{}}`,
		"Parameter":        `{"artifactType":"parameter","name":"lr","value":"0.1","parameterType":"number","customProperties":{}}`,
	} {
		r, err := created(ByName(kind), body)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		got, err := json.Marshal(r)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		var want, have map[string]any
		if err := errors.Join(json.Unmarshal([]byte(body), &want), json.Unmarshal(got, &have)); err != nil {
			t.Fatal(err)
		}
		for _, made := range []string{"id", "createTimeSinceEpoch", "lastUpdateTimeSinceEpoch"} {
			delete(have, made)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: (-said +read)\n%s", kind, diff)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct{ kind, body, want string }{
		{"RegisteredModel", `[]`, "must be a JSON object"},
		{"RegisteredModel", `{"name":"a"`, "no valid JSON"},
		{"RegisteredModel", `{"name":"a"} x`, "behind the JSON object"},
		{"RegisteredModel", `{"name":"a","name":"b"}`, `"name" is there twice`},
		{"RegisteredModel", `{}`, "required field 'name' is zero value."},
		{"RegisteredModel", `{"name":""}`, "required field 'name' is zero value."},
		{"RegisteredModel", `{"name":"a","colour":"red"}`, `json: unknown field "colour"`},
		{"RegisteredModel", `{"name":3}`, "name must be a string"},
		{"RegisteredModel", `{"name":"a\u0000"}`, "null byte"},
		{"RegisteredModel", `{"name":"` + strings.Repeat("x", 256) + `"}`, "more than 255 characters"},
		{"RegisteredModel", `{"name":"a","state":"GONE"}`, "it can be LIVE, ARCHIVED"},
		{"RegisteredModel", `{"name":"a","language":"en"}`, "list of strings"},
		{"RegisteredModel", `{"name":"a","customProperties":{"x":3}}`, "customProperties.x"},
		{"RegisteredModel", `{"name":"a","customProperties":{"x":{"string_value":"y"}}}`, "metadataType is missing"},
		{"RegisteredModel", `{"name":"a","customProperties":{"x":{"metadataType":"MetadataProtoValue"}}}`, "none that can be kept"},
		{"RegisteredModel", `{"name":"a","customProperties":{"x":{"metadataType":"MetadataIntValue","int_value":3}}}`, "int_value must be a string"},
		{"RegisteredModel", `{"name":"a","customProperties":{"x":{"metadataType":"MetadataIntValue","string_value":"3"}}}`, `unknown field "string_value"`},
		{"RegisteredModel", `{"name":"a","customProperties":{"x":{"metadataType":"MetadataStructValue","struct_value":"3"}}}`, "must be a JSON object"},
		{"ModelVersion", `{"name":"v"}`, "required field 'registeredModelId' is zero value."},
		{"ModelVersion", `{"name":"v","registeredModelId":"one"}`, `"one", which is not the id of anything`},
		{"ExperimentRun", `{"experimentId":"1","startTimeSinceEpoch":"2","endTimeSinceEpoch":"1"}`, "before startTimeSinceEpoch"},
		{"Metric", `{"name":"m"}`, "required field 'value' is zero value."},
		{"Metric", `{"name":"m","value":"1"}`, "value must be a number"},
		{"DocArtifact", `{"artifactType":"model-artifact"}`, "a DocArtifact cannot be"},
	} {
		_, err := created(ByName(c.kind), c.body)
		var wrong *Invalid
		if !errors.As(err, &wrong) || !strings.Contains(wrong.Message, c.want) {
			t.Errorf("%s %.60s: %v, want %q", c.kind, c.body, err, c.want)
		} else if wrong.Missing != strings.HasPrefix(c.want, "required field") {
			t.Errorf("%s %.60s: missing %v", c.kind, c.body, wrong.Missing)
		}
	}
}

func TestChange(t *testing.T) {
	version := ByName("ModelVersion")
	made := func() *Record {
		r, err := created(version, `{"name":"v1","registeredModelId":"1","author":"ada","customProperties":{"a":{"metadataType":"MetadataBoolValue","bool_value":true}}}`)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for body, want := range map[string]string{
		`{}`:                                    `"author":"ada"`,
		`{"author":"eve"}`:                      `"author":"eve"`,
		`{"author":null}`:                       `"author":"ada"`,
		`{"customProperties":{}}`:               `"customProperties":{}`,
		`{"description":"d"}`:                   `"a":{"bool_value":true`,
		`{"name":"v1","registeredModelId":"1"}`: `"name":"v1"`,
	} {
		said, err := version.Decode([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		r := made()
		if err := r.Change(said); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if got, err := json.Marshal(r); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %s (%v), want %s", body, got, err, want)
		}
	}
	for body, want := range map[string]string{
		`{"name":"v2"}`:             "the name of a ModelVersion cannot be changed",
		`{"registeredModelId":"2"}`: "registeredModelId cannot be changed",
	} {
		said, err := version.Decode([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := made().Change(said); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

func TestStructsAreStored(t *testing.T) {
	stored, err := StoreTexts("language", []string{"en", "de"})
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := LoadTexts("language", stored); !ok || !cmp.Equal(got, []string{"en", "de"}) {
		t.Errorf("%s is read as %v", stored, got)
	}
	for _, s := range []string{"plain", "mlmd-struct::", "mlmd-struct::not base64", "mlmd-struct::AAAA"} {
		if got, ok := LoadTexts("language", s); ok {
			t.Errorf("%s is read as %v", s, got)
		}
	}
	if got := LoadString("mlmd-struct::not base64"); got != "mlmd-struct::not base64" {
		t.Errorf("what cannot be read became %v", got)
	}
}
