// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

var (
	// goFolder is how Go names the folder of a test; in it are folders with numbers.
	goFolder  = regexp.MustCompile(`^(Test|Benchmark|Fuzz)\w*\d+$`)
	goSubdirs = regexp.MustCompile(`^\d{3,}$`)
	// ownFolder is how the project's tools, its test kit and mktemp in its scripts name theirs.
	ownFolder = regexp.MustCompile(`^modelplane-[a-z-]+(-\d+|\.\w{10})$`)
)

// folders of the temp directory that tests made, by name, content and user.
func (p *preflight) folders() []string {
	entries, _ := os.ReadDir(p.temp)
	var found []string
	for _, e := range entries {
		path := filepath.Join(p.temp, e.Name())
		if e.IsDir() && p.mine(path) && (ownFolder.MatchString(e.Name()) || goFolder.MatchString(e.Name()) && isOfGo(path)) {
			found = append(found, path)
		}
	}
	return found
}

func isOfGo(folder string) bool {
	entries, err := os.ReadDir(folder)
	return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !goSubdirs.MatchString(e.Name()) })
}

// removeFolders removes those that no living process can have made, refers to or has mounted something in. One with a
// cluster that could not be ended stays: what is in it is needed to end it.
func (p *preflight) removeFolders() {
	all := slices.DeleteFunc(p.folders(), func(folder string) bool {
		return p.testBefore(modified(folder), time.Now()) != 0 || len(clustersIn(folder)) > 0
	})
	if len(all) == 0 {
		return
	}
	used := p.references(p.temp + "/")
	removed := 0
	for _, folder := range all {
		if slices.ContainsFunc(used, func(text string) bool { return mentions(text, folder) }) {
			continue
		}
		if err := os.RemoveAll(folder); err != nil {
			p.warn("%s, which an ended test left, cannot be removed: %v", folder, err)
			continue
		}
		removed++
	}
	if removed > 0 {
		p.did("removed folders of tests that are gone: %d", removed)
	}
}

// mentions a folder or something in it, and not another one whose name begins in the same way.
func mentions(text, folder string) bool {
	for {
		_, after, found := strings.Cut(text, folder)
		if !found {
			return false
		}
		if after == "" || !strings.ContainsAny(after[:1], "0123456789") {
			return true
		}
		text = after
	}
}

// references are all words of processes, and all places that they are in, have open or have mounted, that contain a text.
func (m machine) references(text string) []string {
	var found []string
	add := func(s string) {
		if strings.Contains(s, text) {
			found = append(found, s)
		}
	}
	for _, pid := range m.pids() {
		if pid == os.Getpid() {
			continue
		}
		for _, name := range []string{"cmdline", "environ", "mountinfo"} {
			data, _ := os.ReadFile(m.of(pid, name))
			add(string(data))
		}
		links := []string{m.of(pid, "cwd"), m.of(pid, "root"), m.of(pid, "exe")}
		open, _ := filepath.Glob(m.of(pid, "fd/*"))
		for _, path := range append(links, open...) {
			target, _ := os.Readlink(path)
			add(target)
		}
	}
	data, err := os.ReadFile(filepath.Join(m.proc, "self", "mountinfo"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return []string{text}
	}
	add(string(data))
	return found
}
