// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// EveryFieldIn fails the test for every field of a spec that the first object of no golden case has. The table has one field
// in each line; enough and fields are how many cases and fields there are at least.
func EveryFieldIn(t testing.TB, dir, table string, enough, fields int) {
	t.Helper()
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	cases := readGolden(t, dir)
	if len(cases) < enough {
		t.Errorf("%d cases, want %d at least", len(cases), enough)
	}
	var objects []any
	for _, c := range cases {
		first, _, _ := bytes.Cut(c.in, []byte("\n---\n"))
		var object any
		if err := yaml.Unmarshal(first, &object); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		objects = append(objects, object)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		path, _, _ := strings.Cut(line, "\t")
		if !strings.HasPrefix(path, "spec") {
			continue
		}
		n++
		if !slices.ContainsFunc(objects, func(o any) bool { return hasField(o, strings.Split(path, ".")) }) {
			t.Errorf("no case has %s", path)
		}
	}
	if n < fields {
		t.Errorf("the table has %d fields: it was not understood", n)
	}
}

// hasField walks along a path of a table: name[] stands for any item of a list, name{} for any value of a map.
func hasField(value any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	m, ok := value.(map[string]any)
	if !ok {
		return false
	}
	field := strings.TrimSuffix(strings.TrimSuffix(path[0], "[]"), "{}")
	below, ok := m[field]
	switch {
	case !ok:
		return false
	case strings.HasSuffix(path[0], "[]"):
		items, _ := below.([]any)
		return slices.ContainsFunc(items, func(item any) bool { return hasField(item, path[1:]) })
	case strings.HasSuffix(path[0], "{}"):
		values, _ := below.(map[string]any)
		return len(values) > 0
	}
	return hasField(below, path[1:])
}
