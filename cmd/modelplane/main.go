// SPDX-License-Identifier: Apache-2.0

// Command modelplane is the control plane, its servers, and what a person types. What runs once per pod is in
// cmd/modelplane-pod.
package main

import (
	"os"

	"github.com/modelplane/modelplane/cmd/modelplane/commands"
	"github.com/modelplane/modelplane/internal/process/command"
)

func main() {
	os.Exit(command.Execute(commands.New(), os.Args[1:], os.Stderr))
}
