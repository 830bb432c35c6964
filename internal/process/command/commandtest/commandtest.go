// SPDX-License-Identifier: Apache-2.0

// Package commandtest tries out commands as a person at a terminal does. It knows none, and is for tests only.
package commandtest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/internal/process/command"
)

// WrongCall fails the test unless a call is refused as all wrong ones are: exit code 64, one line that says what to do, nothing
// else.
func WrongCall(t testing.TB, root *cobra.Command, args []string, want string) {
	t.Helper()
	var stderr, stdout bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stdout)
	if code := command.Execute(root, args, &stderr); code != command.ExitUsage {
		t.Errorf("exit code %d, want %d", code, command.ExitUsage)
	}
	if got := stderr.String(); !strings.Contains(got, want) || strings.Count(got, "\n") != 1 || stdout.Len() > 0 {
		t.Errorf("stderr %q, stdout %q; want one line that contains %q", got, &stdout, want)
	}
}
