// SPDX-License-Identifier: Apache-2.0

// Command modelplane-local is a whole Kubernetes control plane in one file. Called by the name of a
// component (through a symlink, or as its first argument) it is that component; called by its own
// name it brings a control plane up and down on this machine.
package main

import (
	"fmt"
	"os"

	"github.com/modelplane/modelplane/local/internal/components"
)

func main() {
	if c, args, ok := components.Select(os.Args); ok {
		os.Args = args
		os.Exit(c.Run())
	}
	fmt.Fprintln(os.Stderr, "usage: modelplane-local", components.Names())
	os.Exit(2)
}
