// SPDX-License-Identifier: Apache-2.0

// Command envoy gets together the files of an image of Envoy, the proxy behind the gateway of the local cluster.
//
//	go run ./hack/envoy binary      prints where Envoy is, fetching it first when it is nowhere
//	go run ./hack/envoy tree DIR    puts all files of its image into DIR, which must not exist
//
// Standard output carries paths and nothing else; what is being done is told on standard error. It knows nothing of what
// Envoy is used for.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/modelplane/modelplane/internal/rootfs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "envoy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, tell io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "binary":
		path, err := ensure(ctx, tell)
		if err == nil {
			fmt.Fprintln(out, path)
		}
		return err
	case len(args) == 2 && args[0] == "tree":
		binary, err := ensure(ctx, tell)
		if err != nil {
			return err
		}
		return tree(binary, args[1], out)
	}
	return errors.New("use: envoy binary, or envoy tree DIR")
}

// tree fills a directory beside the wanted one and renames it, so that what exists is complete.
func tree(binary, dir string, out io.Writer) error {
	if _, err := os.Stat(dir); err == nil {
		return fmt.Errorf("%s exists already; remove it or name another directory", dir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".envoy.")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	paths, err := rootfs.Collect(temp, map[string]string{"/envoy": binary})
	if err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(temp, 0o755), os.Rename(temp, dir)); err != nil {
		return err
	}
	for _, path := range paths {
		fmt.Fprintln(out, path)
	}
	return nil
}
