// SPDX-License-Identifier: Apache-2.0

// Command modelplane is the one binary of the project. This package holds flags and wiring; what the commands do lives
// in internal.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/cli"
)

// Exit codes: a failed run and a wrong call are different things to scripts and to kubelets.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Exit(execute(newRoot(), os.Args[1:], os.Stderr))
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "modelplane",
		Short:         "One control plane for models on Kubernetes",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") { // so kubectl calls its plugins
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl modelplane"}
	}
	root.AddCommand(newManagerCommand(), newStorageCommand(), cli.NewPlanCommand(domains.NewPlanner), cli.NewExplainCommand(newKnown), newVersionCommand())
	return root
}

// failure marks an error of a command that was called correctly.
type failure struct {
	err    error
	logged bool
}

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

// execute runs a command line and returns the exit code. Errors are one line; an error may choose its own code with an
// ExitCode method, and with a Silent method say that all is printed already.
func execute(root *cobra.Command, args []string, stderr io.Writer) int {
	markFailures(root)
	root.SetArgs(args)
	command, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	var failed *failure
	ran := errors.As(err, &failed)
	if !ran {
		err = fmt.Errorf("%w (see %q)", err, command.CommandPath()+" --help")
	}
	var silent interface{ Silent() bool }
	if !errors.As(err, &silent) && (!ran || !failed.logged) {
		fmt.Fprintln(stderr, "modelplane: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	var coded interface{ ExitCode() int }
	switch {
	case errors.As(err, &coded):
		return coded.ExitCode()
	case ran:
		return exitFailed
	default:
		return exitUsage
	}
}

// markFailures tells errors of running commands from errors of parsing and checking flags, which come before RunE.
func markFailures(command *cobra.Command) {
	if run := command.RunE; run != nil {
		command.RunE = func(c *cobra.Command, args []string) error {
			err := run(c, args)
			var failed *failure
			if err != nil && !errors.As(err, &failed) {
				return &failure{err: err}
			}
			return err
		}
	}
	for _, sub := range command.Commands() {
		markFailures(sub)
	}
}
