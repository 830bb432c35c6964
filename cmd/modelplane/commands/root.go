// SPDX-License-Identifier: Apache-2.0

// Package commands is everything that the program modelplane can be asked for: flags and wiring; what the commands do lives
// in internal. It is a package of its own so that the reference of the commands can be made of them.
package commands

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/fetch/initializer"
	"github.com/modelplane/modelplane/internal/modelregistry/server"
	"github.com/modelplane/modelplane/internal/process/command"
)

// New is the program with all of its commands.
func New() *cobra.Command {
	if filepath.Base(os.Args[0]) == "model-registry" {
		return newModelRegistry()
	}
	root := &cobra.Command{Use: "modelplane", Short: "One control plane for models on Kubernetes"}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") { // so kubectl calls its plugins
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl modelplane"}
	}
	root.AddCommand(newManagerCommand(), server.New("registry"), newCatalogCommand(), newActivatorCommand(), newMaaSKeysCommand(), newMaaSCommand(), newPayloadCommand(), formerStorageCommand(), cli.NewPlanCommand(domains.NewPlanner),
		cli.NewExplainCommand(newKnown), command.NewVersion())
	return root
}

// newModelRegistry is the program under the name by which images of registries are started, so that either the image or who
// starts it can be replaced alone.
func newModelRegistry() *cobra.Command {
	root := &cobra.Command{Use: "model-registry", Short: "The model registry of Modelplane"}
	root.AddCommand(server.New("proxy"), newCatalogCommand(), server.NewProbe(), command.NewVersion())
	return root
}

// formerStorageCommand is there for one release more: configurations and storage containers that people wrote themselves
// start this image as /modelplane storage-initializer. The chart starts modelplane-pod.
func formerStorageCommand() *cobra.Command {
	c := initializer.New()
	c.Hidden = true
	return c
}
