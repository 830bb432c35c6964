// SPDX-License-Identifier: Apache-2.0

// Command modelplane is the control plane, its servers, and what a person types. What runs once per pod is in
// cmd/modelplane-pod. This package holds flags and wiring; what the commands do lives in internal.
package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/fetch/initializer"
	"github.com/modelplane/modelplane/internal/process/command"
)

func main() {
	os.Exit(command.Execute(newRoot(), os.Args[1:], os.Stderr))
}

func newRoot() *cobra.Command {
	root := &cobra.Command{Use: "modelplane", Short: "One control plane for models on Kubernetes"}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") { // so kubectl calls its plugins
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl modelplane"}
	}
	root.AddCommand(newManagerCommand(), formerStorageCommand(), cli.NewPlanCommand(domains.NewPlanner), cli.NewExplainCommand(newKnown),
		command.NewVersion())
	return root
}

// formerStorageCommand is there for one release more: configurations and storage containers that people wrote themselves
// start this image as /modelplane storage-initializer. The chart starts modelplane-pod.
func formerStorageCommand() *cobra.Command {
	c := initializer.New()
	c.Hidden = true
	return c
}
