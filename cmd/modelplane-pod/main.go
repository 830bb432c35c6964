// SPDX-License-Identifier: Apache-2.0

// Command modelplane-pod is whatever of Modelplane runs once per pod, and so is paid for a thousand times. It imports no
// Kubernetes client, starts in milliseconds and idles below 20 MiB; tests hold it to that. This package holds wiring.
package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/internal/fetch/initializer"
	"github.com/modelplane/modelplane/internal/modelmesh/mesh"
	"github.com/modelplane/modelplane/internal/modelmesh/puller"
	"github.com/modelplane/modelplane/internal/modelmesh/rest"
	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/serving/agent"
	"github.com/modelplane/modelplane/internal/serving/qpext"
	"github.com/modelplane/modelplane/internal/serving/router"
)

func main() {
	os.Exit(command.Execute(newRoot(), arguments(os.Args), os.Stderr))
}

// names are those under which pods of multi-model runtimes start programs of images that they know. The image has links
// with these names, because it has no shell.
var names = map[string]string{"stop.sh": "mesh-stop", "puller": "mesh-puller"}

// arguments puts the command first that the program's own name stands for.
func arguments(called []string) []string {
	if command, known := names[filepath.Base(called[0])]; known {
		return append([]string{command}, called[1:]...)
	}
	return called[1:]
}

func newRoot() *cobra.Command {
	root := &cobra.Command{Use: "modelplane-pod", Short: "What Modelplane runs in the pods of models"}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(initializer.New(), mesh.NewCommand(), mesh.NewStopCommand(), puller.NewCommand(), rest.NewCommand(), agent.NewCommand(),
		router.NewCommand(), qpext.NewCommand(), command.NewVersion())
	return root
}
