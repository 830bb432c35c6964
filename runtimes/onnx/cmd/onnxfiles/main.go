// SPDX-License-Identifier: Apache-2.0

// Command onnxfiles gets together what the ONNX server consists of.
//
//	go run ./cmd/onnxfiles library     prints where ONNX Runtime is, fetching it first when it is nowhere
//	go run ./cmd/onnxfiles tree DIR    builds the server and puts all files of its image into DIR, which must not exist
//
// Standard output carries paths and nothing else; what is being done is told on standard error. It needs nothing but Go
// to be built; building the server needs a C compiler.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/modelplane/modelplane/runtimes/onnx/internal/image"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/ortlib"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "onnxfiles:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, tell io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "library":
		path, err := ortlib.Ensure(ctx, tell)
		if err == nil {
			fmt.Fprintln(out, path)
		}
		return err
	case len(args) == 2 && args[0] == "tree":
		return tree(ctx, args[1], out, tell)
	}
	return errors.New("use: onnxfiles library, or onnxfiles tree DIR")
}

// tree fills a directory beside the wanted one and renames it, so that what exists is complete.
func tree(ctx context.Context, dir string, out, tell io.Writer) error {
	if _, err := os.Stat(dir); err == nil {
		return fmt.Errorf("%s exists already; remove it or name another directory", dir)
	}
	library, err := ortlib.Ensure(ctx, tell)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".onnxfiles.")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	server := filepath.Join(temp, "modelplane-onnx")
	if err := build(ctx, server, tell); err != nil {
		return err
	}
	root := filepath.Join(temp, "root")
	paths, err := image.Collect(server, library, root)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(root, 0o755), os.Rename(root, dir)); err != nil {
		return err
	}
	for _, path := range paths {
		fmt.Fprintln(out, path)
	}
	return nil
}

// build leaves out what differs between machines, and lookups of hosts and users by libc, which would need further files.
func build(ctx context.Context, to string, tell io.Writer) error {
	if _, err := exec.LookPath("gcc"); err != nil && os.Getenv("CC") == "" {
		return errors.New("the server needs a C compiler to be built; install the packages gcc and libc6-dev")
	}
	fmt.Fprintln(tell, "    building modelplane-onnx (half a minute the first time)")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "netgo,osusergo", "-ldflags", "-s -w -buildid=",
		"-o", to, "github.com/modelplane/modelplane/runtimes/onnx/cmd/modelplane-onnx")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	cmd.Stderr = tell
	return cmd.Run()
}
