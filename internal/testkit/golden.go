// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// update is a flag of every test binary that uses this package.
var update = flag.Bool("update", false, "write what golden cases expect instead of comparing with it")

// The files of a golden case: what goes in, and what comes out, either whole or as the difference from a neighbour.
const (
	goldenIn   = "in.yaml"
	goldenOut  = "out.yaml"
	goldenDiff = "out.diff"
	// likeKey, in the front matter of in.yaml, names the neighbour.
	likeKey = "like"
)

// Golden runs one subtest for each directory in dir, which is testdata/<what is tested>: it gives the content of
// the case's in.yaml to run and compares the result with what the case expects, byte by byte. With `go test -update` it
// writes that instead; read the diff before you commit it.
//
// A case expects what is in its out.yaml. One whose in.yaml begins with "# like: CASE" expects the out.yaml of that
// neighbour with the changes in its own out.diff, so that a person reads only what is different about it.
func Golden(t *testing.T, dir string, run func(t *testing.T, in []byte) []byte) {
	t.Helper()
	if filepath.Base(dir) == "testdata" {
		t.Fatalf("cases go to %s/<what is tested>", dir)
	}
	cases := readGolden(t, dir)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.compare(t, run(t, c.in), *update) })
	}
}

// GoldenCase is one case as others may read it.
type GoldenCase struct {
	Name string
	// In is the content of in.yaml, and Out all of what is expected.
	In, Out []byte
}

// GoldenCases reads the cases in a directory.
func GoldenCases(t testing.TB, dir string) []GoldenCase {
	t.Helper()
	var out []GoldenCase
	for _, c := range readGolden(t, dir) {
		want, err := c.want()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, GoldenCase{Name: c.name, In: c.in, Out: []byte(want)})
	}
	return out
}

var frontMatter = regexp.MustCompile(`^# ([a-z][a-z-]*): (\S.*)$`)

// FrontMatter is what the comment at the beginning of a case says about it in lines of the form "# key: value", each key
// as often as it likes. Other lines of the comment are for people.
func FrontMatter(in []byte) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(string(in)) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		if m := frontMatter.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil {
			out[m[1]] = append(out[m[1]], m[2])
		}
	}
	return out
}

// golden is one case.
type golden struct {
	dir, name string
	in        []byte
	like      string // the neighbour, empty for a whole case
}

// readGolden finds the cases in a directory. Whole ones come first: others are compared with what they are now.
func readGolden(t testing.TB, dir string) []golden {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var whole, rest []golden
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		c := golden{dir: dir, name: entry.Name()}
		if c.in, err = os.ReadFile(c.path(goldenIn)); err != nil {
			t.Fatal(err)
		}
		if like := FrontMatter(c.in)[likeKey]; len(like) > 0 {
			c.like = like[0]
			rest = append(rest, c)
		} else {
			whole = append(whole, c)
		}
	}
	if len(whole) == 0 {
		t.Fatalf("%s has no case: a golden case is a directory with an %s", dir, goldenIn)
	}
	return append(whole, rest...)
}

func (c golden) path(file string) string { return filepath.Join(c.dir, c.name, file) }

// base is what the neighbour expects.
func (c golden) base() (string, error) {
	raw, err := os.ReadFile(filepath.Join(c.dir, c.like, goldenOut))
	if os.IsNotExist(err) {
		return "", fmt.Errorf("%s is like %s, which has no %s; name a case that has one", c.path(goldenIn), c.like, goldenOut)
	}
	return string(raw), err
}

// want is all of what the case expects.
func (c golden) want() (string, error) {
	if c.like == "" {
		raw, err := os.ReadFile(c.path(goldenOut))
		return string(raw), err
	}
	base, err := c.base()
	if err != nil {
		return "", err
	}
	changes, err := os.ReadFile(c.path(goldenDiff))
	if err != nil {
		return "", err
	}
	out, err := patch(base, string(changes))
	if err != nil {
		return "", fmt.Errorf("%s does not fit %s any more (`go test -update` writes it anew): %w", c.path(goldenDiff), c.like, err)
	}
	return out, nil
}

func (c golden) compare(t testing.TB, got []byte, write bool) {
	t.Helper()
	if write {
		if err := c.write(string(got)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := c.want()
	if os.IsNotExist(err) {
		t.Fatalf("what %s expects is missing; `go test -update` writes it, and this is what it would hold:\n%s", c.path(""), got)
	}
	if err != nil {
		t.Fatal(err)
	}
	if want == string(got) {
		return
	}
	// Lines compare better than bytes.
	t.Errorf("%s differs (-want +got); when the new result is right, `go test -update` writes it:\n%s",
		c.path(""), cmp.Diff(strings.Split(want, "\n"), strings.Split(string(got), "\n")))
}

// write makes the file of the case's form hold what came out, and removes that of the other.
func (c golden) write(got string) error {
	text, file, other := got, goldenOut, goldenDiff
	if c.like != "" {
		base, err := c.base()
		if err != nil {
			return err
		}
		text, file, other = unified(c.like, base, got), goldenDiff, goldenOut
	}
	if err := os.Remove(c.path(other)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.WriteFile(c.path(file), []byte(text), 0o644)
}

// edit is one line of a comparison: kept (' '), removed ('-') or added ('+').
type edit struct {
	kind byte
	line string
}

// compareLines finds a shortest way from a to b.
func compareLines(a, b []string) []edit {
	longest := make([][]int, len(a)+1) // common lines behind each pair of places
	for i := range longest {
		longest[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	var out []edit
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, edit{' ', a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && longest[i+1][j] >= longest[i][j+1]:
			out = append(out, edit{'-', a[i]})
			i++
		default:
			out = append(out, edit{'+', b[j]})
			j++
		}
	}
	return out
}

// aroundChanges is how many lines are shown before and behind a change, to tell where it is.
const aroundChanges = 2

// unified writes the difference from a neighbour in the form that patch(1) and every editor know.
func unified(like, base, got string) string {
	edits := compareLines(lines(base), lines(got))
	shown := make([]bool, len(edits))
	for i, e := range edits {
		if e.kind != ' ' {
			for k := max(0, i-aroundChanges); k <= min(len(edits)-1, i+aroundChanges); k++ {
				shown[k] = true
			}
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- ../%s/%s\n+++ %s\n", like, goldenOut, goldenOut)
	old, fresh := 1, 1
	for i := 0; i < len(edits); {
		end := i
		for end < len(edits) && shown[end] == shown[i] {
			end++
		}
		removed, added := 0, 0
		var hunk strings.Builder
		for _, e := range edits[i:end] {
			fmt.Fprintf(&hunk, "%c%s\n", e.kind, e.line)
			if e.kind != '+' {
				removed++
			}
			if e.kind != '-' {
				added++
			}
		}
		if shown[i] {
			fmt.Fprintf(&out, "@@ -%d,%d +%d,%d @@\n%s", old, removed, fresh, added, hunk.String())
		}
		old, fresh, i = old+removed, fresh+added, end
	}
	return out.String()
}

// lines splits a text. What is behind the last line break counts too, so that none is lost.
func lines(text string) []string { return strings.Split(text, "\n") }

var hunkHead = regexp.MustCompile(`^@@ -(\d+),\d+ \+\d+,\d+ @@$`)

// patch makes the changes of a difference. Everything that it shows must be as it says.
func patch(base, changes string) (string, error) {
	have, at := lines(base), 0
	var out []string
	for n, line := range slices.Collect(strings.Lines(changes)) {
		line = strings.TrimSuffix(line, "\n")
		if n < 2 {
			continue // the names
		}
		if m := hunkHead.FindStringSubmatch(line); m != nil {
			var begin int
			if _, err := fmt.Sscan(m[1], &begin); err != nil || begin-1 < at || begin-1 > len(have) {
				return "", fmt.Errorf("line %d: %s leads nowhere", n+1, line)
			}
			out, at = append(out, have[at:begin-1]...), begin-1
			continue
		}
		kind, text := byte(' '), ""
		if line != "" {
			kind, text = line[0], line[1:]
		}
		if kind == '+' {
			out = append(out, text)
			continue
		}
		if at == len(have) || have[at] != text || kind != ' ' && kind != '-' {
			return "", fmt.Errorf("line %d: %q is not there", n+1, line)
		}
		if kind == ' ' {
			out = append(out, text)
		}
		at++
	}
	return strings.Join(append(out, have[at:]...), "\n"), nil
}
