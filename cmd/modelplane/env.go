// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

const envPrefix = "MODELPLANE_"

// envName is the variable that stands in for a flag: --log-level and MODELPLANE_LOG_LEVEL.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnv gives flags that are not on the command line the value of their variable.
func fromEnv(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed error
	flags.VisitAll(func(flag *pflag.Flag) {
		value, ok := lookup(envName(flag.Name))
		if flag.Changed || !ok || flag.Name == "help" || failed != nil {
			return
		}
		if err := flags.Set(flag.Name, value); err != nil {
			failed = fmt.Errorf("environment variable %s: %w", envName(flag.Name), err)
		}
	})
	return failed
}
