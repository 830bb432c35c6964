// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	valuePath = regexp.MustCompile(`^[a-z]\w*(?:\.[\w-]+)+$`)
	setFlag   = regexp.MustCompile(`--set(?:-string|-file|-json)?[ =]'?([\w.-]+)=`)
	plainList = regexp.MustCompile(`^\[\]$|^map\[\]$`)
)

// TestValues looks for every value of the chart that a page names, and compares the default where the page says it.
func TestValues(t *testing.T) {
	found, compared := 0, 0
	for _, p := range pages(t) {
		chart := "modelplane"
		if strings.HasPrefix(p.path, "charts/mlflow/") {
			chart = "mlflow"
		}
		values := valuesOf(t, chart)
		look := func(line int, path string) {
			if found++; value(values, path) == nil {
				t.Errorf("%s:%d: the chart %s has no value %s", p.path, line, chart, path)
			}
		}
		for _, s := range p.spans {
			if _, ours := values[strings.Split(s.text, ".")[0]]; ours && valuePath.MatchString(s.text) && !elsewhereKnown(s.text) {
				look(s.line, s.text)
			}
		}
		for _, l := range p.typed {
			for _, set := range setFlag.FindAllStringSubmatch(l.text, -1) {
				look(l.line, set[1])
			}
		}
		for _, r := range p.rows {
			if path, said := r.value(); path != "" && value(values, path) != nil {
				compared++
				if have := fmt.Sprint(value(values, path)); strings.Join(said, ",") != plainList.ReplaceAllString(have, "") {
					t.Errorf("%s:%d: the default of %s is %q, not %q", p.path, r.line, path, have, said)
				}
			}
		}
	}
	if found < 20 || compared < 5 {
		t.Errorf("found only %d values and %d defaults", found, compared)
	}
}

func valuesOf(t *testing.T, chart string) map[string]any {
	t.Helper()
	raw, err := os.ReadFile("charts/" + chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(raw, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// elsewhereKnown tells keys of the ConfigMap inferenceservice-config and files that begin like values.
func elsewhereKnown(path string) bool {
	return strings.HasPrefix(path, "service.") || strings.HasPrefix(path, "security.") || strings.HasSuffix(path, ".go")
}

// value finds a value; NAME stands for any name. A map without entries may have any.
func value(values map[string]any, path string) any {
	var at any = values
	for _, name := range strings.Split(path, ".") {
		m, ok := at.(map[string]any)
		switch {
		case !ok:
			return nil
		case len(m) == 0:
			return ""
		case name == "NAME":
			return ""
		}
		at = m[name]
	}
	return at
}

// value is the path and the default of a row about a value; the default is nothing where it is said in words.
func (r row) value() (path string, said []string) {
	if len(r.head) != len(r.cells) || r.head[0] != "value" {
		return "", nil
	}
	for i, head := range r.head {
		names := codeSpan.FindAllStringSubmatch(r.cells[0], -1)
		if head != "default" || len(names) != 1 {
			continue
		}
		for _, s := range codeSpan.FindAllStringSubmatch(r.cells[i], -1) {
			said = append(said, s[1])
		}
		return names[0][1], said
	}
	return "", nil
}
