// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/internal/version"
)

func newVersionCommand() *cobra.Command {
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
