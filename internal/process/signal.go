// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// exitNow is the exit code of a program that was told twice to stop.
const exitNow = 1

// UntilSignal ends the context at the first signal to stop and the process at the second. The second is handled rather
// than left to the system, which ignores it for the first process of a container.
func UntilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(exitNow)
	}()
	return ctx, cancel
}
