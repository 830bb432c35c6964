// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// coreType marks a subtree that belongs to Kubernetes and whose inside no table lists.
const coreType = "k8s core type"

// field is one row of a table: what a client can write or read at a path.
type field struct {
	Type        string
	Constraints map[string]string
}

// table is what users of a kind rely on: its fields and how it shows itself.
type table struct {
	File    string
	Group   string
	Version string
	Kind    string
	Header  map[string]string
	Columns []string
	Fields  map[string]field
}

func (t *table) name() string { return t.Group + "/" + t.Version + " " + t.Kind }

// readTables parses every table in the directory.
func readTables(t *testing.T, dir string) []*table {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.tsv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tables in %s (%v)", dir, err)
	}
	tables := make([]*table, 0, len(files))
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tab, err := parseTable(raw)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		tab.File = filepath.Base(file)
		tables = append(tables, tab)
	}
	return tables
}

func parseTable(raw []byte) (*table, error) {
	tab := &table{Fields: map[string]field{}}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "# column "):
			tab.Columns = append(tab.Columns, strings.TrimPrefix(line, "# column "))
		case strings.HasPrefix(line, "# "):
			if err := tab.parseHeader(strings.TrimPrefix(line, "# ")); err != nil {
				return nil, err
			}
		case strings.HasPrefix(line, "path\t"), line == "":
		default:
			if err := tab.parseRow(line); err != nil {
				return nil, err
			}
		}
	}
	if tab.Kind == "" {
		return nil, fmt.Errorf("no header line")
	}
	return tab, lines.Err()
}

func (t *table) parseHeader(line string) error {
	words := strings.Fields(line)
	if len(words) < 3 {
		return fmt.Errorf("header %q names no kind", line)
	}
	group, version, ok := strings.Cut(words[0], "/")
	if !ok {
		return fmt.Errorf("header %q has no group and version", line)
	}
	t.Group, t.Version, t.Kind, t.Header = group, version, words[1], map[string]string{}
	for _, word := range words[2:] {
		key, value, _ := strings.Cut(word, "=")
		t.Header[key] = value
	}
	return nil
}

func (t *table) parseRow(line string) error {
	cells := strings.Split(line, "\t")
	if len(cells) != 3 {
		return fmt.Errorf("row %q has %d cells", line, len(cells))
	}
	if _, double := t.Fields[cells[0]]; double {
		return fmt.Errorf("path %s is listed twice", cells[0])
	}
	t.Fields[cells[0]] = field{Type: cells[1], Constraints: parseConstraints(cells[2])}
	return nil
}

// boundary finds where one constraint ends: a pattern may itself contain a
// semicolon, so only one before a known word counts.
var boundary = regexp.MustCompile(`\s*;\s*(default=|enum=|minimum=|maximum=|minLength=|maxLength=|minItems=|maxItems=|pattern=|format=|x-kubernetes-list-type=|x-kubernetes-map-type=|required$|required;|preserve-unknown|` + coreType + `)`)

func parseConstraints(cell string) map[string]string {
	out := map[string]string{}
	for cell != "" {
		constraint, rest := cell, ""
		if at := boundary.FindStringSubmatchIndex(cell); at != nil {
			constraint, rest = cell[:at[0]], cell[at[2]:]
		}
		key, value, _ := strings.Cut(constraint, "=")
		out[strings.TrimSpace(key)] = value
		cell = rest
	}
	return out
}

func TestParseConstraints(t *testing.T) {
	have := parseConstraints("default=; maxLength=16; pattern=^[;=a]+; b$; x-kubernetes-list-type=map ; k8s core type; required")
	want := "map[default: k8s core type: maxLength:16 pattern:^[;=a]+; b$ required: x-kubernetes-list-type:map]"
	if fmt.Sprint(have) != want {
		t.Errorf("have %v, want %s", have, want)
	}
}
