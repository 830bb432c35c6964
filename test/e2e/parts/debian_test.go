// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/modelplane/modelplane/internal/download"
)

// TestDebian has a program in the place of apt-get, which writes down how it is called and whether services may start, and
// brings programs unless it shall fail.
func TestDebian(t *testing.T) {
	const (
		install = "noninteractive -o DPkg::Lock::Timeout=300 install -q --yes --no-install-recommends cluster server|exit 101\n"
		update  = "noninteractive -o DPkg::Lock::Timeout=300 update -q|exit 101\n"
	)
	for _, test := range []struct {
		name, there string // programs that are there
		user        bool   // who is not root
		foreign     bool   // no Debian
		failures    int
		brings      string
		calls       string
		told, want  string
	}{
		{name: "nothing to do", there: "clusterd ctr redis-server", user: true, foreign: true},
		{name: "installed at once", there: "ctr", brings: "clusterd redis-check", calls: install, told: "    installing cluster, server\n"},
		{name: "lists are old", failures: 1, brings: "clusterd ctr redis-check", calls: install + update + install, told: "trying again in 5s (2 of 3)"},
		{name: "never", failures: 9, calls: install + update + update, told: "trying again in 20s (3 of 3)", want: "E: no network"},
		{name: "package without program", there: "ctr", brings: "clusterd", calls: install, want: "server lacks programs"},
		{name: "not root", there: "clusterd ctr", user: true, want: "this machine lacks server; install what is missing, on Debian as root with: apt-get install --no-install-recommends server"},
		{name: "no Debian", foreign: true, want: "with: apt-get install --no-install-recommends cluster server"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			bin := filepath.Join(dir, "bin")
			if err := os.Mkdir(bin, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, program := range strings.Fields(test.there) {
				write(t, filepath.Join(bin, program), "")
			}
			apt := filepath.Join(dir, "apt-get")
			write(t, apt, fmt.Sprintf(`#!/bin/sh
cd %q
printf '%%s %%s|%%s\n' "$DEBIAN_FRONTEND" "$*" "$(tail -n 1 policy)" >>calls
if [ "$(wc -l <calls)" -le %d ]; then echo 'E: no network'; exit 100; fi
case "$*" in *' install '*) for program in %s; do : >"bin/$program"; done; esac
`, dir, test.failures, test.brings))
			var told bytes.Buffer
			d := debian{
				apt: apt, root: !test.user, policy: filepath.Join(dir, "policy"), lock: filepath.Join(dir, "lock"), dirs: []string{"/nowhere", bin}, tell: &told,
				needed: []needed{{"cluster", []string{"clusterd"}}, {"cluster", []string{"ctr"}}, {"server", []string{"redis-server", bin + "/*-check"}}},
			}
			if test.foreign {
				d.apt = ""
			}
			synctest.Test(t, func(t *testing.T) {
				err := d.install(t.Context())
				if (err == nil) != (test.want == "") || err != nil && (!errors.Is(err, errUnavailable) || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("%v, want %s", err, test.want)
				}
			})
			calls, _ := os.ReadFile(filepath.Join(dir, "calls")) // it is not there when nothing was called
			if string(calls) != test.calls {
				t.Errorf("it was called\n%s, want\n%s", calls, test.calls)
			}
			if !strings.Contains(told.String(), test.told) || test.calls == "" && told.Len() > 0 {
				t.Errorf("it told %q, want %q", told.String(), test.told)
			}
			if _, err := os.Stat(d.policy); err == nil {
				t.Error("the rule against services is left")
			}
		})
	}
}

// TestDebianTwice: who waits for another one that installs the same has nothing to do then.
func TestDebianTwice(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := debian{
			apt: "/nowhere", root: true, lock: filepath.Join(dir, "debian"), dirs: []string{dir},
			needed: []needed{{"cluster", []string{"clusterd"}}}, tell: io.Discard,
		}
		unlock, err := download.Lock(t.Context(), io.Discard, d.lock)
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan error)
		go func() { second <- d.install(t.Context()) }()
		synctest.Wait()
		write(t, filepath.Join(dir, "clusterd"), "")
		unlock()
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}

// TestDebianPolicyIsKept: a rule that the machine has is not ours to take away.
func TestDebianPolicyIsKept(t *testing.T) {
	d := debian{policy: filepath.Join(t.TempDir(), "policy")}
	write(t, d.policy, "theirs")
	called := false
	if err := d.withoutServices(func() error { called = true; return nil }); err != nil || !called {
		t.Error(err, called)
	}
	if text, err := os.ReadFile(d.policy); err != nil || string(text) != "theirs" {
		t.Errorf("%s, %v", text, err)
	}
}

// TestDebianIsComplete compares the list with those of the rooms, which also serve machines on which this program never ran.
func TestDebianIsComplete(t *testing.T) {
	var ours []string
	for _, n := range ofDebian {
		ours = append(ours, n.pkg)
	}
	for _, test := range []struct{ file, pattern string }{
		{"local/internal/cluster/tools.go", `(?m)^\t\{(?:"|cniPlugins).*", "([a-z0-9-]+)"\},$`},
		{"hack/up/model.go", `apt-get install --no-install-recommends ([a-z0-9 -]+)"`},
		{"internal/testkit/redis/redis.go", `const debian = "([a-z0-9-]+)"`},
		{"internal/testkit/mariadb/mariadb.go", `var packages = \[\]string\{(.*)\}`},
		{"test/e2e/parts/postgres.go", `apt-get install --no-install-recommends ([a-z0-9 -]+)"`},
	} {
		text, err := os.ReadFile(filepath.Join("../../..", test.file))
		if err != nil {
			t.Fatal(err)
		}
		var theirs []string
		for _, found := range regexp.MustCompile(test.pattern).FindAllStringSubmatch(string(text), -1) {
			theirs = append(theirs, regexp.MustCompile(`[a-z0-9-]+`).FindAllString(found[1], -1)...)
		}
		if len(theirs) == 0 {
			t.Errorf("%s names no package in the way that this test knows", test.file)
		}
		for _, pkg := range theirs {
			if !slices.Contains(ours, pkg) {
				t.Errorf("%s takes %s, which is not in the list", test.file, pkg)
			}
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
