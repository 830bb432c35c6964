// SPDX-License-Identifier: Apache-2.0

// Command progress runs the go command it is given (with -v) and shows a counter instead of the
// packages: go run ./hack/progress go vet -v ./...
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/modelplane/modelplane/hack/internal/progress"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: progress go build|vet -v …")
		os.Exit(2)
	}
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	if _, err := progress.Run(cmd, os.Stderr); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "progress:", err)
		os.Exit(1)
	}
}
