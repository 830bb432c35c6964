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

// sdkPython is a script: the interpreter stays where it is, and finds the packages beside the script.
func sdkPython(ctx context.Context, py python) (string, error) {
	dir, err := ensure(ctx, "kserve-"+sdkVersion, py, sdkPackages, fillSDK)
	return filepath.Join(dir, "python"), err
}

func fillSDK(ctx context.Context, py python, dir string) error {
	tell("fetching the SDK of KServe %s and what it needs (a minute)", sdkVersion)
	if err := py.fetch(ctx, sdkPackages, filepath.Join(dir, "packages")); err != nil {
		return err
	}
	script := fmt.Sprintf("#!/bin/sh\nPYTHONPATH=$(dirname \"$0\")/packages exec %q \"$@\"\n", py.Executable)
	return os.WriteFile(filepath.Join(dir, "python"), []byte(script), 0o755)
}
