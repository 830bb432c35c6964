// SPDX-License-Identifier: Apache-2.0

// Command crdgen writes one CustomResourceDefinition file per kind from the Go
// types under api/. It exists because the plain generator expands every pod
// template it meets, which makes several definitions too large for a
// client-side `kubectl apply`. crdgen keeps the subtrees that belong to
// Kubernetes itself light and shortens descriptions until each file fits.
//
// It decides nothing about the API: fields, defaults, bounds and rules come
// from the Go types and their markers alone.
//
//	go run ./hack/crdgen             write the files
//	go run ./hack/crdgen -check      fail when the files differ from the types
//	go run ./hack/crdgen ./api/x/v1  only the kinds of the named packages
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

	"github.com/modelplane/modelplane/hack/internal/output"
)

func main() {
	out := flag.String("out", "charts/modelplane/files/crds", "directory of the generated files")
	check := flag.Bool("check", false, "write nothing, fail when a file would change")
	flag.Parse()
	if err := run(*out, *check, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "crdgen:", err)
		os.Exit(1)
	}
}

// run generates the definitions of the named packages. Files of kinds that no
// longer exist are removed only when every package was asked for, because a
// partial run cannot tell a stale file from one it was not asked to look at.
func run(dir string, check bool, patterns []string, report io.Writer) error {
	all := len(patterns) == 0
	if all {
		patterns = []string{"./api/..."}
	}
	crds, err := generate(patterns)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, crd := range crds {
		name := fmt.Sprintf("%s_%s.yaml", crd.Spec.Group, crd.Spec.Names.Plural)
		if files[name], err = encode(&crd); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	present, err := listed(dir)
	if err != nil {
		return err
	}
	stale := []string{}
	if all {
		stale = missing(present, files)
	}
	files[kustomization] = kustomizationFor(present, stale, files)
	return output.Set{Dir: dir, Files: files, Stale: stale, Command: "go run ./hack/crdgen"}.Put(check, report)
}

// listed returns the names of the definitions already in dir.
func listed(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_*.yaml"))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(paths))
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	return names, nil
}

func missing(present []string, files map[string][]byte) []string {
	var out []string
	for _, name := range present {
		if _, ok := files[name]; !ok {
			out = append(out, name)
		}
	}
	return out
}

// kustomization is the form of the name that has no suffix, because
// `kubectl apply -f` takes every file that ends in .yaml for an object.
const kustomization = "Kustomization"

// kustomizationFor makes the directory usable as a kustomize base.
func kustomizationFor(present, stale []string, files map[string][]byte) []byte {
	names := map[string]bool{}
	for _, name := range present {
		names[name] = !slices.Contains(stale, name)
	}
	for name := range files {
		names[name] = true
	}
	var b strings.Builder
	b.WriteString(header + "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			fmt.Fprintf(&b, "- %s\n", name)
		}
	}
	return []byte(b.String())
}
