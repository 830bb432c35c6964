// SPDX-License-Identifier: Apache-2.0

// Command modelplane-pod is whatever of Modelplane runs once per pod, and so is paid for a thousand times. It imports no
// Kubernetes client, starts in milliseconds and idles below 20 MiB; tests hold it to that. This package holds wiring.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/internal/fetch/initializer"
	"github.com/modelplane/modelplane/internal/modelmesh/puller"
	"github.com/modelplane/modelplane/internal/modelmesh/rest"
	"github.com/modelplane/modelplane/internal/process/command"
)

func main() {
	os.Exit(command.Execute(newRoot(), os.Args[1:], os.Stderr))
}

func newRoot() *cobra.Command {
	root := &cobra.Command{Use: "modelplane-pod", Short: "What Modelplane runs in the pods of models"}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(initializer.New(), puller.NewCommand(), rest.NewCommand(), command.NewVersion())
	return root
}
