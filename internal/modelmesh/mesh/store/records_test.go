// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestModelsKeepWhatTheyDoNotKnow: a record is the same after it was read and written, whoever added something to it.
func TestModelsKeepWhatTheyDoNotKnow(t *testing.T) {
	for name, raw := range map[string]string{
		"all": `{"type":"mt:onnx","encKey":"{\"a\":1}","mPath":"p","instanceIds":{"a":5,"b":6},"loadedIn":{"a":7},"failedIn":{"c":8,"d":9},` +
			`"fails":{"c":{"msg":"broken"}},"refs":2,"autoDel":true,"lu":10,"lul":11,"size":12,"later":{"x":[1]},"other":null}`,
		"empty":   `{}`,
		"unknown": `{"later":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			model, err := ModelCodec.Decode([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			again, err := ModelCodec.Encode(model)
			if err != nil {
				t.Fatal(err)
			}
			same(t, raw, string(again))
		})
	}
	v, err := VModelCodec.Decode([]byte(`{"o":"ksp","amid":"a","tmid":"b","failed":true,"later":"x"}`))
	if err != nil || v.Owner != "ksp" || !v.Moving() {
		t.Fatalf("%+v, %v", v, err)
	}
	raw, _ := VModelCodec.Encode(v)
	same(t, `{"o":"ksp","amid":"a","tmid":"b","failed":true,"later":"x"}`, string(raw))
}

func same(t *testing.T, want, got string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(want), &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(got), &b); err != nil {
		t.Fatalf("%v in %s", err, got)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
}

func TestModelCopiesAndFailures(t *testing.T) {
	m := NewModel("mt:onnx", "p", "k")
	m.SetFailure(Failure{"b", 1, "no"})
	m.SetCopy(Copy{Instance: "b", Began: 2})
	m.SetCopy(Copy{Instance: "a", Began: 3})
	if len(m.Failures) != 0 || len(m.Copies) != 2 || m.Copies[0].Instance != "a" {
		t.Fatalf("%+v", m)
	}
	other := m.Clone()
	other.SetFailure(Failure{"a", 4, "no"})
	if len(m.Copies) != 2 || len(other.Copies) != 1 || len(other.Failures) != 1 {
		t.Errorf("a clone shares what it should not: %+v, %+v", m, other)
	}
	if !m.Same("mt:onnx", "p", "k") || m.Same("mt:onnx", "p", "") {
		t.Error("models are not told apart")
	}
	if old, err := ModelCodec.Decode([]byte(`{"mPath":"p"}`)); err != nil || old.Type() != "NLCLASSIFIER" {
		t.Errorf("type %q, %v", old.Type(), err)
	}
}

func TestParse(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := Parse("etcd:" + write("good", `{"endpoints":"http://a:2379, http://b:2379","userid":"u","password":"hidden","root_prefix":"x/","override_authority":"etcd"}`))
	if err != nil || len(c.Endpoints) != 2 || c.User != "u" || c.TLS != nil || c.Prefix("mm", "svc") != "/x/mm/svc/" || c.Authority != "etcd" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = Parse("etcd:http://c:2379"); err != nil || c.Endpoints[0] != "http://c:2379" || c.Prefix("mm", "svc") != "/mm/svc/" {
		t.Errorf("%+v, %v", c, err)
	}
	for value, want := range map[string]string{
		"zookeeper:x":        "no other store is supported",
		"":                   "no other store is supported",
		"etcd:/nowhere/file": "does not exist",
		"etcd:" + write("words", `{"password":"hidden" oops`):                                         "no JSON object",
		"etcd:" + write("none", `{"password":"hidden"}`):                                              "no endpoints",
		"etcd:" + write("ftp", `{"endpoints":"ftp://a"}`):                                             "is no endpoint",
		"etcd:" + write("both", `{"endpoints":"https://a","certificate":"x","certificate_file":"y"}`): "keep one",
		"etcd:" + write("half", `{"endpoints":"https://a","client_key":"hidden"}`):                    "give both",
		"etcd:" + write("pem", `{"endpoints":"https://a","certificate":"hidden"}`):                    "no certificate in PEM",
		"etcd:" + write("missing", `{"endpoints":"https://a","client_key_file":"gone"}`):              "read client_key_file",
	} {
		_, err := Parse(value)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
}
