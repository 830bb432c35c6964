// SPDX-License-Identifier: Apache-2.0

// Command modelplane-local is a whole Kubernetes in one file. Called by the name of a
// component (through a symlink, or as its first argument) it is that component; called by its own
// name it brings a cluster up and down on this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/modelplane/modelplane/local/internal/cluster"
	"github.com/modelplane/modelplane/local/internal/components"
)

func main() {
	if c, args, ok := components.Select(os.Args); ok {
		os.Args = args
		os.Exit(c.Run())
	}
	if len(os.Args) > 1 && os.Args[1] == cluster.ExecCommand {
		fmt.Fprintln(os.Stderr, cluster.Exec(os.Args[2:]))
		os.Exit(1)
	}
	os.Exit(runCommands())
}

func runCommands() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := newRoot().ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !errors.Is(err, errUnhealthy) {
		fmt.Fprintln(os.Stderr, "modelplane-local:", err)
	}
	return 1
}
