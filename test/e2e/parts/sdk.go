// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// client is a library of Python that people use.
type client struct {
	name string
	// packages, of which the first has the version.
	packages []string
}

// sdk is the newest one of KServe, whose way of waiting for a generation the tests use. The versions are what
// docs/python-sdk.md says to install: kubernetes 37 takes no objects of the SDK any more.
var sdk = client{"kserve-0.21.0", []string{"kserve==0.21.0", "kubernetes<37"}}

// mlmd is the newest store of ML Metadata, and what makes a server of it. There are packages for some versions of Python alone.
var (
	mlmd       = client{"ml-metadata", []string{"ml-metadata==1.17.1", "grpcio"}}
	mlmdWanted = []string{"3.11", "3.10", "3.9"}
)

// registryClient is the newest one of model registries.
var registryClient = client{"model-registry-0.3.18", []string{"model-registry==0.3.18"}}

// python is a script: the interpreter stays where it is, and finds the packages beside the script.
func (c client) python(ctx context.Context, py python) (string, error) {
	dir, err := ensure(ctx, c.name, py, c.packages, c.fill)
	return filepath.Join(dir, "python"), err
}

func (c client) fill(ctx context.Context, py python, dir string) error {
	tell("fetching %s and what it needs (a minute)", c.name)
	if err := py.fetch(ctx, c.packages, filepath.Join(dir, "packages")); err != nil {
		return err
	}
	script := fmt.Sprintf("#!/bin/sh\nPYTHONPATH=$(dirname \"$0\")/packages exec %q \"$@\"\n", py.Executable)
	return os.WriteFile(filepath.Join(dir, "python"), []byte(script), 0o755)
}
