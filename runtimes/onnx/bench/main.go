// SPDX-License-Identifier: Apache-2.0

// Command bench measures what the server costs beyond the model: requests per second and latency over loopback, each
// request alone and put together, against the same rows given to ONNX Runtime directly. Run it from the module's folder:
//
//	go run ./bench                                   a tiny model and one with something to compute
//	go run ./bench -duration 2s -clients 32 DIR…     models of yours with one input
//
// It measures the real server in this process; it checks answers so that a fast wrong one does not count.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/model"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/ortlib"
)

// options bound the work in time and in number.
type options struct {
	duration time.Duration
	requests int64
	clients  int
	atLeast  float64
}

func main() {
	var o options
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "how long each figure is measured")
	flag.Int64Var(&o.requests, "requests", 200000, "requests after which a measurement ends earlier")
	flag.IntVar(&o.clients, "clients", 16, "clients that wait for one answer after the other")
	flag.Float64Var(&o.atLeast, "at-least", 0, "fail when the best way over the network is a smaller part of direct calls")
	flag.Parse()
	models := flag.Args()
	if len(models) == 0 {
		models = []string{"../../examples/onnx/digits", "testdata/layers.onnx"}
	}
	// What the servers say of themselves would tear the tables apart.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if err := all(context.Background(), &o, models, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func all(ctx context.Context, o *options, models []string, out io.Writer) error {
	library, err := ortlib.Ensure(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if err := model.LoadLibrary(library); err != nil {
		return err
	}
	fmt.Fprintf(out, "one row in a request, %d clients, %d processors, ONNX Runtime %s\n", o.clients, runtime.GOMAXPROCS(0), model.LibraryVersion())
	for _, path := range models {
		if err := one(ctx, o, path, out); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// one prints the table for one model.
func one(ctx context.Context, o *options, path string, out io.Writer) error {
	input, direct, err := measureDirect(o, path)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n", path)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "way\trequests/s\tp50\tp99\tof direct\t")
	line := func(name string, r result) {
		fmt.Fprintf(table, "%s\t%.0f\t%s\t%s\t%.3f\t\n", name, r.rate, r.p50.Round(time.Microsecond), r.p99.Round(time.Microsecond), r.rate/direct.rate)
	}
	line("direct calls", direct)
	best := 0.0
	for _, way := range ways(input) {
		r, err := measureServer(ctx, o, path, way)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		line(way.name, r)
		best = max(best, r.rate/direct.rate)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if best < o.atLeast {
		return fmt.Errorf("the best way is %.3f of direct calls, at least %.3f is expected", best, o.atLeast)
	}
	return nil
}

// measureDirect calls the model as often as the clients can, without a server. It also returns what it calls it with.
func measureDirect(o *options, dir string) (input *tensor.Tensor, r result, err error) {
	path, err := model.Find(dir)
	if err != nil {
		return nil, r, err
	}
	m, err := model.Open(path, model.Options{Threads: 1})
	if err != nil {
		return nil, r, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if input, err = row(m.Inputs); err != nil {
		return nil, r, err
	}
	r, err = measure(o, func(int) (func() error, func(), error) {
		return func() error {
			_, err := m.Run([]*tensor.Tensor{input})
			return err
		}, func() {}, nil
	})
	return input, r, err
}
