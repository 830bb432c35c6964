// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGolden(t *testing.T) {
	var seen []string
	Golden(t, "testdata/golden", func(t *testing.T, in []byte) []byte {
		seen = append(seen, filepath.Base(t.Name()))
		return bytes.ToUpper(in)
	})
	if diff := cmp.Diff([]string{"first", "second", "third"}, seen); diff != "" {
		t.Errorf("cases (-want +have):\n%s", diff)
	}
}

// goldenDir has a whole case and one like it.
func goldenDir(t *testing.T) (whole, like golden) {
	t.Helper()
	dir := t.TempDir()
	for name, in := range map[string]string{"whole": "a", "like": "# like: whole\na"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, goldenIn), []byte(in), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cases := readGolden(t, dir)
	return cases[0], cases[1]
}

func TestGoldenComparesAndWrites(t *testing.T) {
	c, _ := goldenDir(t)
	mustFail(t, "is missing", func(t testing.TB) { c.compare(t, []byte("a: 1\n"), false) })
	c.compare(t, []byte("a: 1\nb: 2\n"), true)
	c.compare(t, []byte("a: 1\nb: 2\n"), false)
	mustFail(t, `"b: 3"`, func(t testing.TB) { c.compare(t, []byte("a: 1\nb: 3\n"), false) })
	mustFail(t, "differs", func(t testing.TB) { c.compare(t, []byte("a: 1\nb: 2"), false) })
	if text, _ := os.ReadFile(c.path(goldenOut)); string(text) != "a: 1\nb: 2\n" {
		t.Errorf("comparing changed the file: %q", text)
	}
}

func TestGoldenLikeItsNeighbour(t *testing.T) {
	whole, like := goldenDir(t)
	mustFail(t, "name a case that has one", func(t testing.TB) { like.compare(t, []byte("a"), true) })
	whole.compare(t, []byte("a\nb\nc\nd\ne\nf\n"), true)
	like.compare(t, []byte("a\nb\nc\nx\ne\nf\n"), true)
	text, _ := os.ReadFile(like.path(goldenDiff))
	want := "--- ../whole/out.yaml\n+++ out.yaml\n@@ -2,5 +2,5 @@\n b\n c\n-d\n+x\n e\n f\n"
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	like.compare(t, []byte("a\nb\nc\nx\ne\nf\n"), false)
	// Where the difference shows nothing, all of it counts nevertheless.
	mustFail(t, `"z"`, func(t testing.TB) { like.compare(t, []byte("z\nb\nc\nx\ne\nf\n"), false) })
	mustFail(t, "differs", func(t testing.TB) { like.compare(t, []byte("a\nb\nc\nd\ne\nf\n"), false) })
	whole.compare(t, []byte("z\nb\nc\nd\ne\nf\n"), true)
	mustFail(t, `"a"`, func(t testing.TB) { like.compare(t, []byte("a\nb\nc\nx\ne\nf\n"), false) })
	whole.compare(t, []byte("a\nb\nC\nd\ne\nf\n"), true)
	mustFail(t, "does not fit whole any more", func(t testing.TB) { like.compare(t, []byte("a\nb\nc\nx\ne\nf\n"), false) })
	// A case that becomes whole, or stops being so, leaves no file of its other form.
	like.like = ""
	like.compare(t, []byte("a\n"), true)
	if _, err := os.Stat(like.path(goldenDiff)); !os.IsNotExist(err) {
		t.Errorf("the difference of a whole case: %v", err)
	}
}

func TestDifferencesLeadBack(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	text := func() string {
		out := make([]string, random.Intn(12))
		for i := range out {
			out[i] = string(rune('a' + random.Intn(4)))
			if random.Intn(6) == 0 {
				out[i] = ""
			}
		}
		return strings.Join(out, "\n")
	}
	for range 5000 {
		a, b := text(), text()
		changes := unified("a", a, b)
		got, err := patch(a, changes)
		if err != nil || got != b {
			t.Fatalf("%q to %q becomes %q, %v by\n%s", a, b, got, err, changes)
		}
	}
}

func TestFrontMatter(t *testing.T) {
	in := "# like: other\n# For people: only.\n#\n# without: 1.34.0-rc.1\n# without: b\na: 1\n# without: c\n"
	want := map[string][]string{"like": {"other"}, "without": {"1.34.0-rc.1", "b"}}
	if diff := cmp.Diff(want, FrontMatter([]byte(in))); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

func TestGoldenCasesOfNothing(t *testing.T) {
	mustFail(t, "has no case", func(tb testing.TB) { readGolden(tb, t.TempDir()) })
	mustFail(t, "absent", func(tb testing.TB) { readGolden(tb, "testdata/absent") })
	cases := GoldenCases(t, "testdata/golden")
	if len(cases) != 3 || string(cases[2].Out) != strings.ToUpper(string(cases[2].In)) {
		t.Errorf("cases are %q", cases)
	}
}
