// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// update is a flag of every test binary that uses this package.
var update = flag.Bool("update", false, "write the out.yaml of golden cases instead of comparing with it")

// Golden runs one subtest for each directory in dir: it gives the content of the
// case's in.yaml to run and compares the result with out.yaml, byte by byte. With
// `go test -update` it writes out.yaml instead; read the diff before you commit it.
func Golden(t *testing.T, dir string, run func(t *testing.T, in []byte) []byte) {
	t.Helper()
	cases, err := goldenCases(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatalf("%s has no case: a golden case is a directory with an in.yaml", dir)
	}
	for _, path := range cases {
		t.Run(filepath.Base(path), func(t *testing.T) {
			in, err := os.ReadFile(filepath.Join(path, "in.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, filepath.Join(path, "out.yaml"), run(t, in), *update)
		})
	}
}

func goldenCases(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var cases []string
	for _, entry := range entries {
		if entry.IsDir() {
			cases = append(cases, filepath.Join(dir, entry.Name()))
		}
	}
	return cases, err
}

func compareGolden(t testing.TB, path string, got []byte, write bool) {
	t.Helper()
	if write {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		t.Fatalf("%s is missing; `go test -update` writes it, and this is what it would hold:\n%s", path, got)
	}
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == string(got) {
		return
	}
	// Lines compare better than bytes.
	t.Errorf("%s differs (-want +got); when the new result is right, `go test -update` writes it:\n%s",
		path, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")))
}
