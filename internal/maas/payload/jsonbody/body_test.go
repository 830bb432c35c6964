// SPDX-License-Identifier: Apache-2.0

package jsonbody

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSet(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                                     `{"model":"b"}`,
		` { "a" : [1, {"model":"x"}] } `:         ` { "a" : [1, {"model":"x"}] ,"model":"b"} `,
		`{"model":"a"}`:                          `{"model":"b"}`,
		`{"model": null , "n":1}`:                `{"model": "b" , "n":1}`,
		`{"x":"}\"{","mod\u0065l":"a"}`:          `{"x":"}\"{","mod\u0065l":"b"}`,
		`{"n":-1.5e3,"model":{"a":[]},"t":true}`: `{"n":-1.5e3,"model":"b","t":true}`,
	} {
		d, err := Parse([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if err := d.SetString("model", "b"); err != nil || string(d.Bytes()) != want {
			t.Errorf("%s became %s (%v), want %s", in, d.Bytes(), err, want)
		}
		if got := d.String("model"); got != "b" {
			t.Errorf("%s: reads %q", in, got)
		}
	}
}

func TestRefused(t *testing.T) {
	for in, want := range map[string]string{
		``: "not valid", `{`: "not valid", `[1]`: "not a JSON object", `"x"`: "not a JSON object", `{"a":1} x`: "not valid",
		`{"model":"a","model":"b"}`:      "twice",
		`{"model":"a","mod\u0065l":"b"}`: "twice",
	} {
		if _, err := Parse([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{}`, `{"model":"a","stream":true}`, `{"a":{"b":[1,"]"]},"c":"\\"}`, ` {"":0 }`, `[]`} {
		f.Add([]byte(seed), "model", "value")
	}
	f.Fuzz(func(t *testing.T, text []byte, name, value string) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		var whole map[string]json.RawMessage
		if err := json.Unmarshal(text, &whole); err != nil || len(whole) != len(d.fields) {
			t.Fatalf("%q has %d fields, and %d were found (%v)", text, len(whole), len(d.fields), err)
		}
		for key, raw := range whole {
			if string(d.Raw(key)) != string(raw) {
				t.Fatalf("%q of %q is %q, and %q was found", key, text, raw, d.Raw(key))
			}
		}
		if err := d.SetString(name, value); err != nil && len(d.fields) < mostFields {
			t.Fatalf("%q: %v", text, err)
		}
		if !json.Valid(d.Bytes()) {
			t.Fatalf("%q became %q", text, d.Bytes())
		}
	})
}
