// SPDX-License-Identifier: Apache-2.0

// Command modelmesh measures a mesh of multi-model runtimes: what many models cost each process, what the way through the
// mesh adds to a call, and how long a lost process is noticed. The README beside it says how to read the figures. Of the
// mesh it knows what clients, runtimes, etcd and the operating system know, and must not know more, since its load can be
// put on any mesh of the same API.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/bench/load"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
	"github.com/modelplane/modelplane/internal/testkit/terminal"
)

// runtimeVariable makes this program a runtime at an address, so that processes of the mesh have one each.
const runtimeVariable = "MODELPLANE_BENCH_RUNTIME"

func main() {
	ctrl.SetLogger(logr.Discard()) // what matters is in the figures
	os.Exit(command())
}

// foreign is a mesh that is already there.
type foreign struct {
	addresses, ids, prefix, register string
	rate                             float64
}

func command() int {
	if what := os.Getenv(runtimeVariable); what != "" {
		return complain(runtimeProcess(what))
	}
	var o options
	var f foreign
	flag.IntVar(&o.models, "n", 100_000, "models")
	flag.IntVar(&o.predictors, "predictors", 0, "measure the control plane with so many Predictors instead, on a real API server and our mesh")
	flag.IntVar(&o.processes, "processes", 4, "processes of our mesh, at least 2")
	flag.IntVar(&o.hot, "hot", 400, "models that are loaded and called")
	flag.IntVar(&o.clients, "clients", 8, "clients that call at the same time")
	flag.IntVar(&o.payload, "payload", 256, "bytes of a request")
	flag.DurationVar(&o.each, "each", 10*time.Second, "how long calls are measured")
	flag.DurationVar(&o.idle, "idle", time.Minute, "how long nobody asks for anything")
	flag.StringVar(&f.addresses, "address", "", "host:port of another mesh of this API, several with commas: only the load is put on it; empty: ours is started and measured")
	flag.StringVar(&f.ids, "ids", "", "with -address: file with ids of models to call, one per line; empty: -n of them, by -prefix and a number of six digits")
	flag.StringVar(&f.prefix, "prefix", "bench-", "with -address: how ids begin")
	flag.StringVar(&f.register, "register", "", "with -address: type of model with which these models are registered first")
	flag.Float64Var(&f.rate, "rate", 0, "with -address: calls per second of all clients; 0: as many as get an answer")
	out := flag.String("out", "dist/bench/modelmesh.json", "file for the figures")
	flag.Parse()
	if o.models < 1 || o.processes < 2 || o.hot < 1 || o.hot > mostHot || o.predictors < 0 || o.clients < 1 || o.payload < 0 || o.payload > mostMessage/2 || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "modelmesh: -n, -hot (at most %d) and -clients must be at least 1, -processes at least 2, and nothing may follow the flags\n", mostHot)
		return 2
	}
	begin := time.Now()
	o.say = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%4.0f s  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	if f.addresses != "" {
		return complain(f.run(o, *out))
	}
	return o.ours(*out)
}

func complain(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "modelmesh:", err)
	return 1
}

// result is what a measurement comes to.
type result interface {
	show(w io.Writer)
	broken() []string
}

// ours measures our mesh, or our control plane, and compares the figures with the promises.
func (o options) ours(out string) int {
	self, err := os.Executable()
	if err != nil {
		return complain(err)
	}
	var r result
	if !terminal.Run("modelmesh", func(t testing.TB) {
		o.say("building")
		pod := checkout.Program(t, "modelplane-pod")
		if o.predictors == 0 {
			r = o.measure(t, self, pod)
			return
		}
		r = o.measurePredictors(t, self, pod, checkout.Program(t, "modelplane"))
	}) {
		return 1
	}
	r.show(os.Stdout)
	if err := load.Save(r, out); err != nil {
		return complain(err)
	}
	broken := r.broken()
	for _, b := range broken {
		fmt.Fprintln(os.Stderr, "not as promised:", b)
	}
	return min(len(broken), 1)
}

// run puts a load on a mesh of which nothing is known but its addresses. Answers are not compared with requests there.
func (f foreign) run(o options, out string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	models := names(f.prefix, o.models)
	if f.ids != "" {
		var err error
		if models, err = load.Lines(f.ids); err != nil {
			return err
		}
	}
	connections, err := dial(strings.Split(f.addresses, ",")...)
	if err != nil {
		return err
	}
	if f.register != "" {
		o.say("registering %d models", len(models))
		if err := register(ctx, connections, models, f.register, o.clients); err != nil {
			return fmt.Errorf("register models: %w", err)
		}
	}
	o.say("calling %d models for %v", len(models), o.each)
	got := calls{connections: connections, models: models, payload: o.payload, patience: time.Minute}.
		run(ctx, load.Load{Clients: o.clients, Rate: f.rate, Duration: o.each})
	fmt.Fprintf(os.Stdout, "%d calls (%.0f/s), p50 %.3f ms, p99 %.3f ms, max %.3f ms, %d failed %v\n",
		got.Requests, got.PerSecond, got.P50, got.P99, got.Max, got.Failures(), got.Failed)
	if got.First != "" {
		fmt.Fprintln(os.Stdout, "the first failure:", got.First)
	}
	return load.Save(got, out)
}
