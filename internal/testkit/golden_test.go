// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestGolden(t *testing.T) {
	var seen []string
	Golden(t, "testdata/golden", func(t *testing.T, in []byte) []byte {
		seen = append(seen, filepath.Base(t.Name()))
		return bytes.ToUpper(in)
	})
	if len(seen) != 2 || seen[0] != "first" || seen[1] != "second" {
		t.Errorf("cases = %v, want first and second", seen)
	}
}

func TestGoldenComparesAndWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.yaml")
	mustFail(t, "is missing", func(t testing.TB) { compareGolden(t, path, []byte("a: 1\n"), false) })
	compareGolden(t, path, []byte("a: 1\nb: 2\n"), true)
	compareGolden(t, path, []byte("a: 1\nb: 2\n"), false)
	mustFail(t, `"b: 3"`, func(t testing.TB) { compareGolden(t, path, []byte("a: 1\nb: 3\n"), false) })
	mustFail(t, "differs", func(t testing.TB) { compareGolden(t, path, []byte("a: 1\nb: 2"), false) })
	if text, _ := os.ReadFile(path); string(text) != "a: 1\nb: 2\n" {
		t.Errorf("comparing changed the file: %q", text)
	}
}

func TestGoldenCasesOfNothing(t *testing.T) {
	if cases, err := goldenCases(t.TempDir()); err != nil || len(cases) != 0 {
		t.Errorf("an empty directory: %v, %v", cases, err)
	}
	if _, err := goldenCases("testdata/absent"); err == nil {
		t.Error("a directory that does not exist: no error")
	}
}
