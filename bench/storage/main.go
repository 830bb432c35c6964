// SPDX-License-Identifier: Apache-2.0

// Command storage measures the storage initializer against the plainest download there is: one connection, one stream,
// one file after the other, from the same server to the same disk.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "storage:", err)
		stop()
		os.Exit(1) //nolint:gocritic // the signal handler is gone already
	}
}

func run(ctx context.Context) error {
	var p plan
	flag.Int64Var(&p.size, "size", 1_000_000_000, "bytes of the large file")
	flag.IntVar(&p.count, "files", 2000, "number of small files")
	flag.Int64Var(&p.small, "small", 64<<10, "bytes of each small file")
	flag.DurationVar(&p.latency, "latency", 0, "how long the server thinks before it answers, as distance would")
	flag.Int64Var(&p.rate, "rate", 0, "bytes per second that the server sends on one connection; 0 for as fast as it can")
	flag.IntVar(&p.parallel, "parallel", 8, "requests at the same time")
	flag.IntVar(&p.rounds, "rounds", 3, "runs of each kind; the fastest counts")
	flag.StringVar(&p.dir, "dir", "", "where to write; default a temporary directory")
	out := flag.String("out", filepath.Join("dist", "bench", "storage.json"), "where the figures go")
	flag.Parse()
	dir, err := os.MkdirTemp("", "modelplane-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if p.binary, err = build(ctx, dir); err != nil {
		return err
	}
	report, err := p.measure(ctx)
	if err != nil {
		return err
	}
	report.print(os.Stdout)
	if err := os.MkdirAll(filepath.Dir(*out), 0o755); err != nil {
		return err
	}
	figures, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(*out, append(figures, '\n'), 0o644); err != nil {
		return err
	}
	return report.broken()
}

// build makes the binary as it is in the image.
func build(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "modelplane-pod")
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", binary, "github.com/modelplane/modelplane/cmd/modelplane-pod")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	command.Stderr = os.Stderr
	return binary, command.Run()
}
