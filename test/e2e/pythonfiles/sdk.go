// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// sdkVersion is the newest one of the SDK, whose way of waiting for a generation the tests use.
const sdkVersion = "0.21.0"

// sdkPackages are what docs/python-sdk.md says to install: kubernetes 37 takes no objects of the SDK any more.
var sdkPackages = []string{"kserve==" + sdkVersion, "kubernetes<37"}

// mlmdPackages are the newest store of ML Metadata, and what makes a server of it. There are packages for these versions of
// Python alone.
var (
	mlmdPackages = []string{"ml-metadata==1.17.1", "grpcio"}
	mlmdWanted   = []string{"3.11", "3.10", "3.9"}
)

// sdkPython is a script: the interpreter stays where it is, and finds the packages beside the script.
func sdkPython(ctx context.Context, py python) (string, error) {
	return script(ctx, py, "kserve-"+sdkVersion, sdkPackages)
}

func mlmdPython(ctx context.Context, py python) (string, error) {
	return script(ctx, py, "ml-metadata", mlmdPackages)
}

func script(ctx context.Context, py python, name string, packages []string) (string, error) {
	dir, err := ensure(ctx, name, py, packages, func(ctx context.Context, py python, dir string) error {
		tell("fetching %s and what it needs (a minute)", packages[0])
		if err := py.fetch(ctx, packages, filepath.Join(dir, "packages")); err != nil {
			return err
		}
		script := fmt.Sprintf("#!/bin/sh\nPYTHONPATH=$(dirname \"$0\")/packages exec %q \"$@\"\n", py.Executable)
		return os.WriteFile(filepath.Join(dir, "python"), []byte(script), 0o755)
	})
	return filepath.Join(dir, "python"), err
}
