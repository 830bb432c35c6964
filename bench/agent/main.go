// SPDX-License-Identifier: Apache-2.0

// Command agent measures what the agent beside a model server adds to a request: handed on, logged, and batched, against
// calling the server itself in the same run. The README beside it says how to read the figures. Of the agent it knows what
// pods, clients and receivers know, and must not know more.
package main

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit/checkout"
	"github.com/modelplane/modelplane/internal/testkit/terminal"
)

func main() { os.Exit(command()) }

func command() int {
	var o options
	flag.IntVar(&o.clients, "clients", 8, "clients that ask at the same time")
	flag.IntVar(&o.rounds, "rounds", 5, "how often the ways are measured in turns")
	flag.DurationVar(&o.each, "each", 2*time.Second, "how long each way is measured in a round")
	out := flag.String("out", "dist/bench/agent.json", "file for the figures")
	flag.Parse()
	if o.clients < 1 || o.rounds < 1 || o.each <= 0 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "agent: -clients, -rounds and -each must be at least 1, and nothing may follow the flags")
		return 2
	}
	var r *report
	if !terminal.Run("agent", func(t testing.TB) { r = o.measure(t, checkout.Program(t, "modelplane-pod")) }) {
		return 1
	}
	r.show(os.Stdout)
	if err := r.save(*out); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 1
	}
	broken := r.broken()
	for _, b := range broken {
		fmt.Fprintln(os.Stderr, "not as promised:", b)
	}
	return min(len(broken), 1)
}
