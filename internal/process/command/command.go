// SPDX-License-Identifier: Apache-2.0

// Package command is how all of our programs are called: exit codes, errors of one line, variables that stand in for
// flags, and the command version. It knows no command of its own, and like package process it imports no Kubernetes.
package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/modelplane/modelplane/internal/version"
)

// Exit codes, the same for all commands: a failed run, an answer that is bad news, and a wrong call are different things to
// scripts and to kubelets.
const (
	ExitFailed = 1
	// ExitNo is the end of a command that did what it should: a manifest would be refused, an object is not ready.
	ExitNo    = 2
	ExitUsage = 64
)

// Failure marks an error of a command that was called correctly.
type Failure struct {
	Err error
	// Logged says that the log has it already.
	Logged bool
}

func (f *Failure) Error() string { return f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

// Execute runs a command line and returns the exit code. Errors are one line; an error may choose its own code with an
// ExitCode method, and with a Silent method say that all is printed already.
func Execute(root *cobra.Command, args []string, stderr io.Writer) int {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.Version = version.Get().String()
	if len(args) == 1 && (args[0] == "--version" || args[0] == "-v") {
		// Without a template: for the sake of one, the linker keeps every method of every type, and the smallest pod pays for it.
		fmt.Fprintln(root.OutOrStdout(), root.Version)
		return 0
	}
	markFailures(root)
	root.SetArgs(args)
	ran, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	failed, rightly := errors.AsType[*Failure](err)
	if !rightly {
		err = fmt.Errorf("%w (see %q)", err, ran.CommandPath()+" --help")
	}
	var silent interface{ Silent() bool }
	if !errors.As(err, &silent) && (!rightly || !failed.Logged) {
		fmt.Fprintln(stderr, root.Name()+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	var coded interface{ ExitCode() int }
	switch {
	case errors.As(err, &coded):
		return coded.ExitCode()
	case rightly:
		return ExitFailed
	default:
		return ExitUsage
	}
}

// markFailures tells errors of running commands from errors of parsing and checking flags, which come before RunE.
func markFailures(command *cobra.Command) {
	if run := command.RunE; run != nil {
		command.RunE = func(c *cobra.Command, args []string) error {
			err := run(c, args)
			if _, marked := errors.AsType[*Failure](err); err != nil && !marked {
				return &Failure{Err: err}
			}
			return err
		}
	}
	for _, sub := range command.Commands() {
		markFailures(sub)
	}
}

// EnvName is the variable that stands in for a flag: --log-level and MODELPLANE_LOG_LEVEL.
func EnvName(flag string) string {
	return "MODELPLANE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// FromEnv gives flags that are not on the command line the value of their variable.
func FromEnv(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed error
	flags.VisitAll(func(flag *pflag.Flag) {
		value, ok := lookup(EnvName(flag.Name))
		if flag.Changed || !ok || flag.Name == "help" || failed != nil {
			return
		}
		if err := flags.Set(flag.Name, value); err != nil {
			failed = fmt.Errorf("environment variable %s: %w", EnvName(flag.Name), err)
		}
	})
	return failed
}

// NewVersion is the command that prints which build a program is.
func NewVersion() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Args:  cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %q is unknown; use text or json", output)
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			if output == "text" {
				_, err := fmt.Fprintln(c.OutOrStdout(), version.Get())
				return err
			}
			encoder := json.NewEncoder(c.OutOrStdout())
			encoder.SetIndent("", "  ")
			return encoder.Encode(version.Get())
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "text", "how to print: text or json")
	return command
}
