// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

// options say what to measure.
type options struct {
	services int           // N
	clients  int           // who create services at once
	workers  int           // objects that our manager, and the plain client, work on at once
	touched  int           // services that are changed
	idle     time.Duration // how long to look for writes without a reason
	quiet    time.Duration // how long no request must come before a phase counts as over
	patience time.Duration // how long anything may take
	binary   string        // our manager; empty: built from this checkout
	manager  string        // command of another manager; empty: ours
	setup    []string      // manifests of another manager
	floor    bool          // measure the plain client, too
	trace    io.Writer     // where requests of the manager are written down, if anywhere
}

// measure runs all phases. Each begins when the one before has come to rest.
func measure(t testing.TB, o options, say func(format string, args ...any)) *report {
	t.Helper()
	ctx := t.Context()
	r := &report{Services: o.services, Clients: o.clients, Workers: o.workers, Cores: runtime.NumCPU(), Touched: o.touched}
	command := o.manager
	if command == "" {
		if o.binary == "" {
			say("building the manager")
			o.binary = checkout.Program(t, "modelplane")
		}
		command = ours(t, o.binary, o.workers)
	}
	say("starting a cluster")
	b := newBed(t, o.services, o.trace)
	if o.manager == "" {
		b.installOurs()
	}
	b.installTheirs(o.setup)
	m := &run{bed: b, options: o, report: r, say: say, command: command, clock: b.watchServices(ctx)}
	m.kubeconfig = b.KubeconfigFor(t, b.proxy.through(b.measured))
	for _, phase := range []func(context.Context){m.begin, m.make, m.rest, m.restart, m.touch} {
		phase(ctx)
	}
	if o.floor {
		say("measuring a plain client that creates the same children, in a cluster of its own")
		r.Floor = measureFloor(t, m.children, o.services, o.workers)
		r.Ratio = r.Make.Seconds / r.Floor.Seconds
	}
	return r
}

// run is one measurement on its way.
type run struct {
	*bed
	options
	*report
	say                 func(format string, args ...any)
	command, kubeconfig string
	process             *manager
	clock               *clock
	children            []string
}

// phase fills in what was counted since the snapshot.
func (r *run) phase(p *phase, before testkit.Counts, begin, end time.Time, per int) {
	work := r.proxy.work(before)
	p.Seconds = end.Sub(begin).Seconds()
	p.count(work, per)
}

// begin starts the manager and has it make one service. What it asks for once,
// whatever the number of services, is asked for here: lists, watches, discovery.
func (r *run) begin(ctx context.Context) {
	r.say("starting the manager")
	before := r.proxy.Snapshot()
	r.process = r.start(r.command, r.kubeconfig)
	r.askForFirst(ctx, r.clock, r.process, r.patience)
	end := r.proxy.settled(r.t, r.quiet, r.patience)
	r.phase(&r.Start, before, r.process.started, end, 0)
	r.children = r.childrenOf(ctx, nameOf(0))
	r.Children = len(r.children)
}

// make asks for all services at once and waits until all are ready.
func (r *run) make(ctx context.Context) {
	r.say("creating %d services", r.services)
	before, used, begin := r.proxy.Snapshot(), r.process.usage(r.t), time.Now()
	r.askForAll(ctx, r.clock, r.services, r.clients)
	r.CreateSeconds = time.Since(begin).Seconds()
	r.until(ctx, r.patience, "all services to be ready", func() error {
		r.process.usage(r.t)
		return r.clock.missing()
	})
	ready, took := r.clock.times(begin)
	r.proxy.settled(r.t, r.quiet, r.patience)
	r.phase(&r.Make, before, begin, begin.Add(ready[len(ready)-1]), r.services)
	r.Usage = r.process.usage(r.t)
	r.Usage.CPUSeconds -= used.CPUSeconds
	r.P50, r.P99, r.Slowest = percentile(took, 50), percentile(took, 99), percentile(took, 100)
	r.Ready = seconds(ready)
}

// rest looks for writes that have no reason. Nobody changes anything meanwhile
// but the controllers of Kubernetes themselves.
func (r *run) rest(ctx context.Context) {
	r.say("idle for %s", r.idle)
	before, used, begin := r.proxy.Snapshot(), r.process.usage(r.t), time.Now()
	select {
	case <-time.After(r.idle):
	case <-ctx.Done():
	}
	r.phase(&r.Idle, before, begin, time.Now(), 0)
	r.IdleUsage = r.process.usage(r.t)
	r.IdleUsage.CPUSeconds -= used.CPUSeconds
}

// restart ends the manager and lets another find what the first has made.
func (r *run) restart(ctx context.Context) {
	r.say("restarting the manager")
	r.process.Stop(r.t, stopPatience)
	before := r.proxy.Snapshot()
	r.process = r.start(r.command, r.kubeconfig)
	end := r.process.caughtUp(r.t, r.proxy, before, r.quiet, r.patience)
	r.phase(&r.Restart, before, r.process.started, end, 0)
	r.RestartUsage = r.process.usage(r.t)
	if err := r.allReady(ctx); err != nil {
		r.t.Fatalf("after the restart: %v", err)
	}
}

// touch changes one field of some services after the other, and waits each time
// until all has followed.
func (r *run) touch(ctx context.Context) {
	for _, c := range changes {
		r.say("changing %s of %d services", c.name, r.touched)
		before, begin := r.proxy.Snapshot(), time.Now()
		r.bed.touch(ctx, c, r.touched, r.clients, r.patience)
		end := r.proxy.settled(r.t, r.quiet, r.patience)
		p := touchPhase{Field: c.name}
		r.phase(&p.phase, before, begin, end, r.touched)
		r.Touch = append(r.Touch, p)
		if err := r.allReady(ctx); err != nil {
			r.t.Fatalf("after the change of %s: %v", c.name, err)
		}
	}
	r.process.Stop(r.t, stopPatience)
}
