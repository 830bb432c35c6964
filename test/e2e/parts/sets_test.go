// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

var locked = regexp.MustCompile(`(?m)^([a-z0-9-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n`)

// TestLocks: every file is of what is asked for today, names all of that, and has nothing but pinned packages with checksums.
func TestLocks(t *testing.T) {
	files := 0
	for _, s := range sets {
		for _, version := range s.pythons {
			files++
			t.Run(s.name+" "+version, func(t *testing.T) {
				text, err := s.lock(version)
				if err != nil {
					t.Fatalf("%v; write it with: go run %s lock %s", err, sources, s.name)
				}
				rest, ok := strings.CutPrefix(string(text), s.header(version))
				if !ok {
					t.Fatalf("it is of other packages; write it again with: go run %s lock %s", sources, s.name)
				}
				if left := locked.ReplaceAllString(rest, ""); left != "" {
					t.Errorf("it has more than pinned packages with checksums: %q", left)
				}
				versions := map[string]string{}
				for _, found := range locked.FindAllStringSubmatch(rest, -1) {
					versions[found[1]] = found[2]
				}
				for _, asked := range s.packages {
					name := regexp.MustCompile(`^[A-Za-z0-9._-]+`).FindString(asked)
					got := versions[normal(name)]
					if _, want, pinned := strings.Cut(asked, "=="); got == "" || pinned && got != want {
						t.Errorf("%s is asked for, it has %q", asked, got)
					}
				}
			})
		}
	}
	if all, err := locks.ReadDir("locks"); err != nil || len(all) != files {
		t.Errorf("%d files are embedded, %d are used: %v", len(all), files, err)
	}
}

// wheel puts a package into a directory that pip can take for an index, and returns its checksum.
func wheel(t *testing.T, dir, name, version string) string {
	t.Helper()
	path := filepath.Join(dir, fmt.Sprintf("%s-%s-py3-none-any.whl", name, version))
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	into, info := zip.NewWriter(f), fmt.Sprintf("%s-%s.dist-info/", name, version)
	for _, file := range []struct{ name, text string }{
		{name + ".py", "answer = 42\n"},
		{info + "METADATA", fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\nRequires-Dist: missing\n", name, version)},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", fmt.Sprintf("%s.py,,\n%[2]sMETADATA,,\n%[2]sWHEEL,,\n%[2]sRECORD,,\n", name, info)},
	} {
		w, err := into.Create(file.name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(file.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(into.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// cached has everything that is made in a directory of the test.
func cached(t *testing.T) string {
	t.Helper()
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	return filepath.Join(cache, "modelplane")
}

// TestChecksums has a real pip install from a directory.
func TestChecksums(t *testing.T) {
	py, err := findPython(t.Context(), []string{"3.13", "3.12", "3.11", "3.10", "3.9"})
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	index := t.TempDir()
	sum := wheel(t, index, "planted", "1.0")
	other := strings.Repeat("0", 64)
	t.Setenv("PIP_NO_INDEX", "1")
	t.Setenv("PIP_FIND_LINKS", index)
	for _, test := range []struct {
		name string
		lock lock
		fine bool
	}{
		{"right", lock("planted==1.0 \\\n    --hash=sha256:" + other + " \\\n    --hash=sha256:" + sum + "\n"), true},
		{"wrong", lock("planted==1.0 \\\n    --hash=sha256:" + other + "\n"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			cache := cached(t)
			synctest.Test(t, func(t *testing.T) {
				dir, err := set{name: "test", fill: fillClient}.make(t.Context(), py, test.lock)
				if test.fine != (err == nil) || err != nil && !errors.Is(err, errUnavailable) {
					t.Error(err)
				}
				left, _ := filepath.Glob(cache + "/*/packages/planted.py")
				if test.fine != (len(left) == 1) {
					t.Errorf("there is %v in %s", left, dir)
				}
			})
		})
	}
}

// interpreter is a program in the place of Python, which installs when it is asked for the third time. It writes down each time.
func interpreter(t *testing.T) (python, func() int) {
	t.Helper()
	dir := t.TempDir()
	path, calls := filepath.Join(dir, "python"), filepath.Join(dir, "calls")
	write(t, path, fmt.Sprintf(`#!/bin/sh
echo "$*" >>%q
while [ "$1" != --target ]; do shift; done
mkdir "$2" && [ "$(wc -l <%[1]q)" -eq 3 ] && : >"$2/package.py"
`, calls))
	return python{Executable: path, Version: "3.12"}, func() int {
		text, err := os.ReadFile(calls)
		if err != nil {
			t.Error(err)
		}
		return strings.Count(string(text), "\n")
	}
}

// TestThreeTries: what an earlier try has left is not in the way of the next one.
func TestThreeTries(t *testing.T) {
	cached(t)
	py, calls := interpreter(t)
	synctest.Test(t, func(t *testing.T) {
		dir, err := set{name: "test", fill: fillClient}.make(t.Context(), py, "# a set. And so on\n")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"python", "packages/package.py"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
	})
	if n := calls(); n != 3 {
		t.Errorf("pip was called %d times", n)
	}
}

// TestTwoAtOnce: the second one comes while the first one fetches, and gets what that has made.
func TestTwoAtOnce(t *testing.T) {
	cached(t)
	synctest.Test(t, func(t *testing.T) {
		var made atomic.Int32
		type result struct {
			dir string
			err error
		}
		second := make(chan result)
		var s set
		s = set{name: "test", fill: func(ctx context.Context, py python, packages lock, _ string) error {
			if made.Add(1) == 1 {
				go func() {
					dir, err := s.make(ctx, py, packages)
					second <- result{dir, err}
				}()
				synctest.Wait()
			}
			return nil
		}}
		dir, err := s.make(t.Context(), python{Version: "3.12"}, "a lock")
		if got := <-second; err != nil || got.err != nil || got.dir != dir {
			t.Errorf("%s, %v, and for the second one %s, %v", dir, err, got.dir, got.err)
		}
		if n := made.Load(); n != 1 {
			t.Errorf("it was made %d times", n)
		}
		if other, err := s.make(t.Context(), python{Version: "3.12"}, "another lock"); err != nil || other == dir {
			t.Errorf("another lock has the same directory %s: %v", other, err)
		}
	})
}
