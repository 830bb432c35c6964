// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
)

func TestMain(m *testing.M) {
	// The program is run from the root of the repository.
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// page is a Markdown file, taken apart.
type page struct {
	path    string
	text    string
	links   []place // targets
	anchors []string
	spans   []place // `code` in sentences and tables
	typed   []place // lines that a person types: in blocks of code, without the prompt, put together where they go on
	rows    []row
}

// place is something with the line that it stands in.
type place struct {
	line int
	text string
}

// row of a table, with the heads of its columns.
type row struct {
	line        int
	head, cells []string
}

// all reads every page of the repository once.
var all = sync.OnceValues(func() ([]*page, error) {
	var out []*page
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || slices.Contains([]string{"bin", "dist", "testdata"}, entry.Name())):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			out = append(out, read(path, string(text)))
		}
		return err
	})
	return out, err
})

func pages(t *testing.T) []*page {
	t.Helper()
	out, err := all()
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("found only %d pages", len(out))
	}
	return out
}

var (
	codeSpan = regexp.MustCompile("``? ?([^`]+?) ?`?`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`^#+ (.*)$`)
	rule     = regexp.MustCompile(`^\|[-:| ]+\|$`)
)

func read(path, text string) *page {
	p := &page{path: path, text: text}
	var head []string
	fenced, drawing, blank := false, false, true
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		n, trimmed := i+1, strings.TrimSpace(line)
		indented := strings.HasPrefix(line, "    ") && (blank || fenced)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
			drawing = trimmed == "```mermaid"
		case fenced || indented:
			if !drawing {
				p.typed = append(p.typed, place{n, trimmed})
			}
			continue // what follows an indented line may be one as well
		case strings.HasPrefix(line, "|"):
			if i+1 < len(lines) && rule.MatchString(lines[i+1]) {
				head = cells(line)
			} else if !rule.MatchString(line) {
				p.rows = append(p.rows, row{n, head, cells(line)})
			}
			p.prose(n, line)
		default:
			if h := heading.FindStringSubmatch(line); h != nil {
				p.anchors = append(p.anchors, anchor(h[1], p.anchors))
			}
			p.prose(n, line)
		}
		blank = trimmed == ""
	}
	p.typed = joined(p.typed)
	return p
}

// joined puts lines that end in a backslash together with the next.
func joined(lines []place) []place {
	var out []place
	for _, l := range lines {
		if n := len(out); n > 0 && strings.HasSuffix(out[n-1].text, `\`) {
			out[n-1].text = strings.TrimSuffix(out[n-1].text, `\`) + l.text
			continue
		}
		out = append(out, l)
	}
	return out
}

func (p *page) prose(n int, line string) {
	for _, found := range codeSpan.FindAllStringSubmatch(line, -1) {
		p.spans = append(p.spans, place{n, found[1]})
	}
	for _, found := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, "code"), -1) {
		p.links = append(p.links, place{n, found[1]})
	}
}

func cells(line string) []string {
	line = strings.ReplaceAll(strings.Trim(strings.TrimSpace(line), "|"), `\|`, "\x00")
	out := strings.Split(line, "|")
	for i, c := range out {
		out[i] = strings.TrimSpace(strings.ReplaceAll(c, "\x00", "|"))
	}
	return out
}

// anchor is what a heading is called in links, by the rules that GitHub goes by.
func anchor(heading string, before []string) string {
	out := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, link.ReplaceAllString(heading, ""))
	name := out
	for i := 1; slices.Contains(before, name); i++ {
		name = fmt.Sprintf("%s-%d", out, i)
	}
	return name
}

// TestReading proves that pages are taken apart as they are meant.
func TestReading(t *testing.T) {
	p := read("x.md", strings.Join([]string{
		"# One `two`: [three](a.md)", "", "Run `make up`, see [here](b.md#c) and `[no](link.md)`.", "", "```console", "$ modelplane plan \\", "    -f x", "# no heading", "```",
		"", "    make test", "    make lint", "", "| a | b |", "|---|---|", "| `x.y` | 1 \\| 2 |", "# One `two`: [three](a.md)",
	}, "\n"))
	have := fmt.Sprint(p.links, p.anchors, p.spans, p.typed, p.rows)
	want := "[{1 a.md} {3 b.md#c} {17 a.md}] [one-two-three one-two-three-1] " +
		"[{1 two} {3 make up} {3 [no](link.md)} {16 x.y} {17 two}] [{6 $ modelplane plan -f x} {8 # no heading} {11 make test} {12 make lint}] " +
		"[{16 [a b] [`x.y` 1 | 2]}]"
	if have != want {
		t.Errorf("have %s\nwant %s", have, want)
	}
}
