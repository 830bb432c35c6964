// SPDX-License-Identifier: Apache-2.0

// Command router measures what a graph costs: the same service is called directly and through the graph router, which runs
// as it does in a pod, with the same clients in the same run.
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
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "router:", err)
		stop()
		os.Exit(1) //nolint:gocritic // the signal handler is gone already
	}
}

func run(ctx context.Context) error {
	var p plan
	flag.IntVar(&p.clients, "clients", 8, "clients that ask at the same time")
	flag.DurationVar(&p.time, "time", 5*time.Second, "how long each way is measured")
	flag.IntVar(&p.size, "size", 256, "bytes of a request and of a reply")
	flag.DurationVar(&p.think, "think", 0, "how long the service thinks")
	out := flag.String("out", filepath.Join("dist", "bench", "router.json"), "where the figures go")
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
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", binary, "github.com/modelplane/modelplane/cmd/modelplane-pod")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	command.Stderr = os.Stderr
	return binary, command.Run()
}
