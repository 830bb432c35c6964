// SPDX-License-Identifier: Apache-2.0

// Command gateway measures what a gateway adds to a request, by asking a model's server through Envoy and directly, in one
// run. The README beside it says how to read the figures. Of a gateway it knows what a client knows, and must not know more,
// since its load can be put on any.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit/terminal"
)

// serverVariable makes this program the model's server at an address.
const serverVariable = "MODELPLANE_BENCH_SERVER"

// options are what a person says.
type options struct {
	envoy   string // its program; empty: fetched
	clients int
	payload int
	each    time.Duration
	say     func(format string, args ...any)
}

func main() { os.Exit(command()) }

func command() int {
	if address := os.Getenv(serverVariable); address != "" {
		return complain(serverProcess(address))
	}
	var o options
	var direct, through, host string
	flag.StringVar(&o.envoy, "envoy", "", "Envoy's program; empty: `go run ./hack/envoy binary` finds or fetches it")
	flag.IntVar(&o.clients, "clients", 8, "clients that ask at the same time where requests per second are counted")
	flag.IntVar(&o.payload, "payload", 256, "bytes of a request, about")
	flag.DurationVar(&o.each, "each", 10*time.Second, "how long each thing is measured")
	flag.StringVar(&direct, "direct", "", "with -through: URL of a model at its Service")
	flag.StringVar(&through, "through", "", "URL of the same model at a gateway that is there already: only the load is put on both")
	flag.StringVar(&host, "host", "", "with -through: the host that the gateway knows it by")
	out := flag.String("out", "dist/bench/gateway.json", "file for the figures")
	flag.Parse()
	if o.clients < 1 || o.payload < 0 || o.payload > 1<<20 || o.each <= 0 || flag.NArg() > 0 || (direct == "") != (through == "") {
		fmt.Fprintln(os.Stderr, "gateway: -clients must be at least 1, -direct and -through go together, and nothing may follow the flags")
		return 2
	}
	begin := time.Now()
	o.say = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%4.0f s  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	if through != "" {
		return o.foreign(target{url: direct}, target{url: through, host: host}, *out)
	}
	return o.ours(*out)
}

func complain(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "gateway:", err)
	return 1
}

// foreign compares two addresses of a model in a cluster. Answers are compared with the first one.
func (o options) foreign(direct, through target, out string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	body, err := os.ReadFile("examples/onnx/iris/request-v1.json")
	if err != nil {
		return complain(fmt.Errorf("no question to ask (run this in the checkout): %w", err))
	}
	direct.body, through.body = body, body
	client := newClient(o.clients)
	answer, err := direct.send(ctx, client)
	if err != nil {
		return complain(fmt.Errorf("the model does not answer at %s: %w", direct.url, err))
	}
	direct.answer, through.answer = answer, answer
	r, err := o.compare(ctx, direct, through)
	if err != nil {
		return complain(err)
	}
	return finish(r, out)
}

// ours starts everything on this machine.
func (o options) ours(out string) int {
	self, err := os.Executable()
	if err != nil {
		return complain(err)
	}
	var r *report
	if !terminal.Run("gateway", func(t testing.TB) {
		r = o.measure(t, self)
	}) {
		return 1
	}
	return finish(r, out)
}

func finish(r *report, out string) int {
	r.show(os.Stdout)
	if err := save(r, out); err != nil {
		return complain(err)
	}
	broken := r.broken()
	for _, b := range broken {
		fmt.Fprintln(os.Stderr, "not as promised:", b)
	}
	return min(len(broken), 1)
}
