// SPDX-License-Identifier: Apache-2.0

// Command ci runs the steps that must pass before a change is merged, all of them, and says in its last lines what came of
// it: .ci/run builds and starts it.
//
// Each step writes to a log of its own below the user's cache, where five runs are kept; here it says one line a minute. A
// step that fails does not end the run, so that one run shows all there is to mend. The last lines, at most fifty, are the
// verdict, the steps with their times, what failed with its first message and place, what was run again, what was skipped,
// which processes were killed for want of memory, and the slowest tests.
//
// It depends on nothing but the standard library: it must be there first, and quickly.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	green, err := start(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ci:", err)
	}
	if err != nil || !green {
		os.Exit(1)
	}
}

func start(ctx context.Context) (bool, error) {
	base, err := cacheDir()
	if err != nil {
		return false, err
	}
	commit := commitHere(ctx)
	dir, err := makeRunDir(filepath.Join(base, "ci"), time.Now(), commit)
	if err != nil {
		return false, err
	}
	r := &run{
		Steps:     steps(whatIsCold(ctx)),
		Budget:    85 * time.Minute,
		Dir:       dir,
		Commit:    commit,
		Out:       os.Stdout,
		Every:     time.Minute,
		Patience:  15 * time.Second,
		KernelLog: kernelLog,
		Ledger:    filepath.Join(base, "flakes.tsv"),
		Times:     filepath.Join(base, "ci-times"),
		Strict:    os.Getenv("CI") != "",
		MaxAgain:  3,
	}
	return r.all(ctx)
}

// cacheDir follows the XDG rules on every system, as the other programs of the checkout do.
func cacheDir() (string, error) {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no place to keep the logs; set HOME or XDG_CACHE_HOME: %w", err)
		}
		base = filepath.Join(home, ".cache")
	}
	return filepath.Join(base, "modelplane"), nil
}
