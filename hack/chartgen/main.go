// SPDX-License-Identifier: Apache-2.0

// Command chartgen writes the parts of the packaging that follow from the code: the permissions and webhooks in the
// chart, and the kustomize bases, which are the chart rendered with its default values. It decides nothing: permissions
// come from the controllers and from the markers beside the code that needs them, webhooks from the definitions.
//
// CustomResourceDefinitions come from hack/crdgen, which has to run first.
//
//	go run ./hack/chartgen         write the files
//	go run ./hack/chartgen -check  fail when a file would change
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/hack/internal/output"
)

const (
	chartDir      = "charts/modelplane"
	generatedPath = chartDir + "/templates/_generated.tpl"
	webhooksDir   = chartDir + "/files/webhooks"
	baseDir       = "config/base"
	defaultDir    = "config/default"
)

func main() {
	check := flag.Bool("check", false, "write nothing, fail when a file would change")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "chartgen:", err)
		os.Exit(1)
	}
}

// run works in two steps, because the bases are rendered from a chart that contains the generated parts. A check
// whose first step fails ends there: the bases would differ for the same reason.
func run(check bool) error {
	crds, err := charts.CRDs()
	if err != nil {
		return err
	}
	all, err := domains.All()
	if err != nil {
		return err
	}
	template, err := generatedTemplate(all, crds)
	if err != nil {
		return err
	}
	parts, err := webhookFiles(all)
	if err != nil {
		return err
	}
	parts[generatedPath] = template
	stale, err := staleIn(webhooksDir, parts)
	if err != nil {
		return err
	}
	if err := put(parts, stale, check); err != nil {
		return err
	}
	bases, err := kustomizeBases()
	if err != nil {
		return err
	}
	if stale, err = staleIn("config/*", bases); err != nil {
		return err
	}
	return put(bases, stale, check)
}

// staleIn lists the files in dir, which may be a pattern, that nothing generates any more.
func staleIn(dir string, files map[string][]byte) ([]string, error) {
	present, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(present, func(path string) bool { return files[filepath.ToSlash(path)] != nil }), nil
}

// put writes files and removes stale ones, or only tells which it would touch.
func put(files map[string][]byte, stale []string, check bool) error {
	return output.Set{Files: files, Stale: stale, Command: "go run ./hack/chartgen"}.Put(check, os.Stdout)
}
