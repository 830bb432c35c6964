// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestDefaultsAreDocumented holds the page about the configuration against the code and the chart: it names the default of
// every field, and what the chart sets instead.
func TestDefaultsAreDocumented(t *testing.T) {
	rows, defaults, chart := readRows(t), map[string]string{}, map[string]string{}
	flatten(t, Default(), defaults)
	raw, err := os.ReadFile("../../charts/modelplane/files/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set map[string]any
	if err := yaml.UnmarshalStrict(raw, &set); err != nil {
		t.Fatal(err)
	}
	flatten(t, set, chart)
	for path, value := range defaults {
		if row := rowOf(t, rows, path); !mentions(path, row, value) {
			t.Errorf("%s is %s by default, the page says %q", path, value, row)
		}
	}
	for path, value := range chart {
		row := rowOf(t, rows, path)
		if value != defaults[path] && (!strings.Contains(row, "the chart sets") || !mentions(path, row, value)) {
			t.Errorf("the chart sets %s to %s, the page says %q", path, value, row)
		}
	}
	if len(defaults) < 40 || len(chart) < 50 {
		t.Errorf("%d defaults and %d values of the chart were looked at", len(defaults), len(chart))
	}
}

// sizes are written in words, and not as code.
var sizes = []string{"cpurequest", "cpulimit", "memoryrequest", "memorylimit"}

func mentions(path, row, value string) bool {
	if slices.Contains(sizes, path[strings.LastIndexByte(path, '.')+1:]) {
		return strings.Contains(row, "small resources") && slices.Contains([]string{"100m", "1", "100Mi", "1Gi"}, value) || strings.Contains(row, value)
	}
	return strings.Contains(row, "`"+value+"`") || strings.Contains(row, "as `localGatewayService`")
}

// readRows maps fields to what their rows say, as key.field in small letters.
func readRows(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, key := map[string]string{}, ""
	for line := range strings.Lines(string(page)) {
		if heading := regexp.MustCompile("^### `(.+)`").FindStringSubmatch(line); heading != nil {
			key = heading[1]
		}
		names, says, found := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !strings.HasPrefix(line, "| `") || !found {
			continue
		}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(names, -1) {
			rows[strings.ToLower(key+"."+name[1])] = says
		}
	}
	return rows
}

// rowOf is the row of a field, or else that of the object it belongs to.
func rowOf(t *testing.T, rows map[string]string, path string) string {
	t.Helper()
	words := strings.Split(path, ".")
	for _, name := range slices.Backward(words[1:]) {
		if row, found := rows[words[0]+"."+name]; found {
			return row
		}
	}
	t.Errorf("the page has no row for %s", path)
	return ""
}

// flatten collects what is given, as text by path. Empty values count as not given, as in the ConfigMap.
func flatten(t *testing.T, value any, into map[string]string) {
	t.Helper()
	raw, err := json.Marshal(value)
	var tree any
	if err == nil {
		err = json.Unmarshal(raw, &tree)
	}
	if err != nil {
		t.Fatal(err)
	}
	collect("", tree, into)
}

func collect(path string, value any, into map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		for name, inside := range value {
			collect(strings.TrimPrefix(path+"."+strings.ToLower(name), "."), inside, into)
		}
	case []any:
		for _, one := range value {
			collect(path, one, into)
		}
	case nil:
	default:
		if text := fmt.Sprint(value); !slices.Contains([]string{"", "false", "0"}, text) {
			into[path] = text
		}
	}
}
