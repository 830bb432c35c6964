// SPDX-License-Identifier: Apache-2.0

// Command assets prints the directory that holds etcd, kube-apiserver, kubectl and the other programs
// of the local control plane, building them first when they are missing. Standard output carries the
// directory and nothing else, so that KUBEBUILDER_ASSETS=$(go run ./hack/assets) works; progress goes
// to standard error.
//
// It must not depend on other modules: it runs before everything else on a machine that has only Go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "assets:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		fmt.Println(dir)
		return nil
	}
	source, err := findSource()
	if err != nil {
		return err
	}
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	dir, err := ensure(ctx, source, cache)
	if err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}

// findSource walks up from the working directory, so that the command works from any folder of the
// repository.
func findSource() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "local", "cmd", binary, "main.go")); err == nil {
			return filepath.Join(dir, "local"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the local/ module is not above the working directory; run this inside the repository")
		}
		dir = parent
	}
}

// cacheDir follows the XDG rules on every system, unlike os.UserCacheDir, so that the documented path
// holds everywhere.
func cacheDir() (string, error) {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no place to keep the built programs; set HOME or XDG_CACHE_HOME: %w", err)
		}
		base = filepath.Join(home, ".cache")
	}
	return filepath.Join(base, "modelplane", "local"), nil
}
