// SPDX-License-Identifier: Apache-2.0

// Command serving measures a manager of InferenceServices: how fast many
// services become ready, and what that costs the API server and the machine.
// The README beside it says how to read the figures and how to measure another
// manager. It must not know the inside of any manager: it sees what a cluster
// and the operating system see.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelplane/modelplane/internal/testkit/terminal"
)

func main() {
	log.SetLogger(logr.Discard())
	os.Exit(command())
}

func command() int {
	o := options{quiet: 3 * time.Second}
	var out, trace string
	flag.IntVar(&o.services, "n", 1000, "services to create")
	flag.IntVar(&o.clients, "clients", 16, "clients that create them at the same time")
	flag.IntVar(&o.workers, "workers", 10, "workers of our manager, and of the plain client")
	flag.IntVar(&o.touched, "touch", 100, "services to change")
	flag.DurationVar(&o.idle, "idle", time.Minute, "how long to look for writes without a reason")
	flag.DurationVar(&o.patience, "patience", 30*time.Minute, "how long a phase may take")
	flag.StringVar(&o.binary, "binary", "", "executable of our manager; empty: built from this checkout")
	flag.StringVar(&o.manager, "manager", "", "shell command that runs another manager, which finds the cluster through KUBECONFIG; empty: ours")
	flag.Func("setup", "file or folder to apply before another manager starts; may be given several times", func(path string) error {
		o.setup = append(o.setup, path)
		return nil
	})
	flag.BoolVar(&o.floor, "floor", true, "measure a plain client that creates the same children, too")
	flag.StringVar(&trace, "trace", "", "file for all requests of the manager with their bodies, to find out why they are sent")
	flag.StringVar(&out, "out", "dist/bench", "folder for the figures as JSON and the plot")
	flag.Parse()
	o.touched = min(o.touched, o.services)
	if o.services < 1 || o.clients < 1 || o.workers < 1 || o.touched < 1 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "serving: -n, -clients, -workers and -touch must be at least 1, and nothing may follow the flags")
		return 2
	}
	if trace != "" {
		file, err := os.Create(trace)
		if err != nil {
			fmt.Fprintln(os.Stderr, "serving:", err)
			return 1
		}
		defer func() { _ = file.Close() }() // each line is written at once, so nothing is lost here
		o.trace = file
	}
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%4.0f s  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	var r *report
	if !terminal.Run("serving", func(t testing.TB) { r = measure(t, o, say) }) {
		return 1
	}
	r.print(os.Stdout)
	if err := r.save(out); err != nil {
		fmt.Fprintln(os.Stderr, "serving:", err)
		return 1
	}
	if o.manager != "" {
		return 0 // the promises are ours alone
	}
	complaints := append(r.broken(), r.slow()...)
	for _, c := range complaints {
		fmt.Fprintln(os.Stderr, "\nnot as promised:", strings.TrimSpace(c))
	}
	return min(len(complaints), 1)
}

// save writes the figures and the plot.
func (r *report) save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	base := filepath.Join(dir, fmt.Sprintf("serving-%d", r.Services))
	if err := os.WriteFile(base+".json", append(text, '\n'), 0o644); err != nil {
		return err
	}
	var picture strings.Builder
	if err := r.plot(&picture); err != nil {
		return err
	}
	fmt.Printf("\nwritten to %s.json and %s.svg\n", base, base)
	return os.WriteFile(base+".svg", []byte(picture.String()), 0o644)
}
