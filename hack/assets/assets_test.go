// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSourceKey(t *testing.T) {
	key := func(env string, files map[string]string) string {
		t.Helper()
		dir := t.TempDir()
		for name, text := range files {
			write(t, filepath.Join(dir, name), text)
		}
		k, err := sourceKey(dir, []byte(env))
		if err != nil {
			t.Fatal(err)
		}
		if !keyName.MatchString(k) {
			t.Fatalf("key %q would never be pruned", k)
		}
		return k
	}
	base := map[string]string{"go.mod": "module x", "go.sum": "", "cmd/a.go": "package a"}
	with := func(name, text string) map[string]string {
		files := map[string]string{name: text}
		for k, v := range base {
			if _, ok := files[k]; !ok {
				files[k] = v
			}
		}
		return files
	}
	want := key("go1", base)
	for _, tc := range []struct {
		name  string
		env   string
		files map[string]string
		same  bool
	}{
		{"nothing changed", "go1", base, true},
		{"another toolchain", "go2", base, false},
		{"a source changed", "go1", with("cmd/a.go", "package b"), false},
		{"a source was added", "go1", with("cmd/b.go", "package a"), false},
		{"go.mod changed", "go1", with("go.mod", "module y"), false},
		{"go.sum changed", "go1", with("go.sum", "x"), false},
		{"a test was added", "go1", with("cmd/a_test.go", "package a"), true},
		{"a text was added", "go1", with("README.md", "x"), true},
	} {
		if got := key(tc.env, tc.files); (got == want) != tc.same {
			t.Errorf("%s: same key %v, want %v", tc.name, got == want, tc.same)
		}
	}
}

func TestVersionFlagsFollowTheModuleFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module x\n\nrequire (\n\tk8s.io/kubernetes v1.99.7\n)\n")
	flags, err := versionFlags(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"k8s.io/component-base/version.gitVersion=v1.99.7",
		"k8s.io/client-go/pkg/version.gitMinor=99",
		"k8s.io/component-base/version.gitMajor=1",
	} {
		if !strings.Contains(flags, "-X "+want) {
			t.Errorf("flags %q lack %s", flags, want)
		}
	}
	write(t, filepath.Join(dir, "go.mod"), "module x\n")
	if _, err := versionFlags(dir); err == nil {
		t.Error("a module file without Kubernetes was accepted")
	}
}

func TestPruneKeepsTheNewestAndTheCurrent(t *testing.T) {
	cache := t.TempDir()
	names := []string{"1000000000000000", "2000000000000000", "3000000000000000", "4000000000000000", "5000000000000000"}
	for i, name := range names {
		write(t, filepath.Join(cache, name, binary), "x")
		at := time.Now().Add(time.Duration(i) * time.Minute)
		if err := os.Chtimes(filepath.Join(cache, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(cache, "building-123", binary), "half")
	write(t, filepath.Join(cache, "somebody-elses", "file"), "x")
	if err := prune(cache, names[0]); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		names[0]: true, names[1]: false, names[2]: true, names[3]: true, names[4]: true,
		"building-123": false, "somebody-elses": true,
	} {
		if _, err := os.Stat(filepath.Join(cache, name)); (err == nil) != want {
			t.Errorf("%s exists %v, want %v", name, err == nil, want)
		}
	}
}

func TestPointCurrentReplacesTheLink(t *testing.T) {
	cache := t.TempDir()
	for _, key := range []string{"a", "b", "b"} {
		if err := pointCurrent(cache, key); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(filepath.Join(cache, "current")); err != nil || got != key {
			t.Errorf("current is %q (%v), want %q", got, err, key)
		}
	}
}

func TestLockIsExclusiveAndEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(ctx, path); err == nil {
		t.Fatal("a held lock was given away")
	}
	unlock()
	again, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestCompleteNeedsEveryName(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, binary), "x")
	for _, name := range append([]string{pause}, links...) {
		if complete(dir) {
			t.Fatalf("complete without %s", name)
		}
		if err := os.Symlink(binary, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if !complete(dir) {
		t.Error("not complete with every name")
	}
}
