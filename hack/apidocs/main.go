// SPDX-License-Identifier: Apache-2.0

// Command apidocs writes the reference of all kinds as Markdown, a page for each API group. What a field may hold comes
// from the packaged definitions, which are what an API server enforces; the words and the order come from the Go types.
// Parts that belong to Kubernetes itself are named and not repeated.
//
// It decides nothing about the API and must not be needed to understand it: a page never says more than the types do.
//
//	go run ./hack/apidocs         write the pages
//	go run ./hack/apidocs -check  fail when a page would change
package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/hack/internal/output"
)

const (
	apiPackages = "./api/..."
	examplesDir = "examples"
	// largest is what a browser and a person can still take in one page.
	largest = 300_000
)

func main() {
	out := flag.String("out", "docs/reference", "directory of the pages")
	check := flag.Bool("check", false, "write nothing, fail when a page would change")
	flag.Parse()
	if err := run(*out, *check, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "apidocs:", err)
		os.Exit(1)
	}
}

func run(dir string, check bool, report io.Writer) error {
	files, err := pages()
	if err != nil {
		return err
	}
	stale, err := staleIn(dir, files)
	if err != nil {
		return err
	}
	return output.Set{Dir: dir, Files: files, Stale: stale, Command: "go run ./hack/apidocs"}.Put(check, report)
}

// pages returns all pages by file name.
func pages() (map[string][]byte, error) {
	groups, err := readGroups()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"README.md": index(groups)}
	for _, g := range groups {
		name := pageName(g.name)
		files[name] = page(g)
		if size := len(files[name]); size > largest {
			return nil, fmt.Errorf("%s would have %d bytes, more than %d; fold more of it", name, size, largest)
		}
	}
	return files, nil
}

// readGroups brings together what is known of every kind.
func readGroups() ([]*group, error) {
	defs, err := charts.CRDs()
	if err != nil {
		return nil, err
	}
	types, err := loadTypes(apiPackages)
	if err != nil {
		return nil, err
	}
	examples, err := readExamples(examplesDir)
	if err != nil {
		return nil, err
	}
	byName := map[string]*group{}
	for _, def := range defs {
		k, err := describe(def, types, examples)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", def.Name, err)
		}
		g := byName[def.Spec.Group]
		if g == nil {
			g = &group{name: def.Spec.Group}
			byName[g.name] = g
		}
		g.kinds = append(g.kinds, k)
	}
	groups := make([]*group, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		slices.SortFunc(byName[name].kinds, func(a, b *kind) int { return strings.Compare(a.name, b.name) })
		groups = append(groups, byName[name])
	}
	return groups, nil
}

// staleIn lists pages of groups that no longer exist.
func staleIn(dir string, files map[string][]byte) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return nil, err
	}
	var stale []string
	for _, path := range paths {
		if name := filepath.Base(path); files[name] == nil {
			stale = append(stale, name)
		}
	}
	return stale, nil
}
