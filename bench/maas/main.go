// SPDX-License-Identifier: Apache-2.0

// Command maas measures what stands between a client and a model that is paid for: how fast API keys are checked where a
// million of them are stored, how a subscription is found among many, and what the payload processor adds to a request in
// Envoy. The README beside it says how to read the figures. Of the servers it knows what clients, gateways and the operating
// system know, and their metrics; only the rows of its database are made by the store's own code.
package main

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/bench/load"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
	"github.com/modelplane/modelplane/internal/testkit/terminal"
)

// modelVariable makes this program the server of a model at an address.
const modelVariable = "MODELPLANE_BENCH_MODEL"

// options are what to measure of our own.
type options struct {
	keys, hot, cold int
	// sizes are how many subscriptions there are for each server, the fewest first.
	sizes   []int
	clients int
	each    time.Duration

	envoy   string // its program; empty: fetched
	rate    float64
	streams int
	prompt  int // bytes
	// held is how many bytes of prompts the processor is told to hold at most; 0: what it holds if nobody says.
	held int
	say  func(format string, args ...any)
}

func main() {
	ctrl.SetLogger(logr.Discard()) // what matters is in the figures
	os.Exit(command())
}

func command() int {
	if address := os.Getenv(modelVariable); address != "" {
		return complain(modelProcess(address))
	}
	o := options{sizes: []int{10, 1_000, 10_000}}
	var f foreign
	flag.IntVar(&o.keys, "n", 1_000_000, "API keys that are stored")
	flag.IntVar(&o.hot, "hot", 1_000, "keys that are asked for again and again")
	flag.IntVar(&o.cold, "cold", 150_000, "keys that are asked for once each; more than a server remembers")
	flag.IntVar(&o.clients, "clients", 8, "clients that ask at the same time where requests per second are counted")
	flag.DurationVar(&o.each, "each", 10*time.Second, "how long each thing is measured")
	flag.StringVar(&o.envoy, "envoy", "", "Envoy's program; empty: `go run ./hack/envoy binary` finds or fetches it")
	flag.Float64Var(&o.rate, "rate", 200, "requests per second through the payload processor, and as many past it")
	flag.IntVar(&o.streams, "streams", 150, "streams at the same time")
	flag.IntVar(&o.prompt, "prompt", 220<<10, "bytes of their prompts")
	f.register()
	out := flag.String("out", "dist/bench/maas.json", "file for the figures")
	flag.Parse()
	if o.hot < 1 || o.cold < 1 || o.keys < o.hot+o.cold || o.clients < 1 || o.each <= 0 || o.rate <= 0 || o.streams < 1 || o.prompt < 1<<10 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "maas: -n must be at least -hot and -cold together, all numbers at least 1, -prompt at least 1024, and nothing may follow the flags")
		return 2
	}
	begin := time.Now()
	o.say = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%4.0f s  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	if f.target != "" {
		return complain(f.run(o, *out))
	}
	return o.ours(*out)
}

func complain(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "maas:", err)
	return 1
}

// ours starts everything on this machine, and compares the figures with the promises.
func (o options) ours(out string) int {
	self, err := os.Executable()
	if err != nil {
		return complain(err)
	}
	var r *report
	if !terminal.Run("maas", func(t testing.TB) {
		o.say("building")
		r = o.measure(t, o.newBed(t, self, checkout.Program(t, "modelplane")))
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
