// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/modelplane/modelplane/bench/load"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
	"github.com/modelplane/modelplane/internal/testkit"
)

// options are what to measure of our own mesh.
type options struct {
	models, processes, hot, clients, payload int
	// predictors, if there are to be any: then the control plane is measured and not the mesh.
	predictors int
	each, idle time.Duration
	// round is how often the leader looks after all models; 0: as often as in a pod.
	round time.Duration
	say   func(format string, args ...any)
}

// mostHot is how many models one runtime holds: as many as are ever loaded, since one may be all that is left.
const mostHot = 1024

// modelType is any: without constraints every runtime takes every type.
const modelType = "echo"

// measure goes through the phases of the README.
func (o options) measure(t testing.TB, self, binary string) *report {
	o.say("starting %d processes", o.processes)
	b := newBed(t, self, binary, bedOptions{processes: o.processes, service: "bench", root: "bench", models: mostHot, round: o.round})
	r := &report{Models: o.models, Processes: o.processes}
	models := names("bench-", o.models)

	o.say("registering %d models", o.models)
	began := time.Now()
	if err := register(t.Context(), callsOf(b.nodes), models, modelType, o.clients*o.processes); err != nil {
		t.Fatal(err)
	}
	r.RegisterSeconds = time.Since(began).Seconds()
	for _, n := range b.nodes {
		n.waitKnows(t, models[len(models)-1])
	}

	o.measureIdle(t, b, r)

	hot := models[:min(o.hot, len(models))]
	o.say("loading %d models", len(hot))
	places := b.load(t, hot)
	o.say("calling them directly, through the mesh beside them, and through another one")
	o.measureRouting(t, b, places, r)
	o.say("killing a process")
	for _, n := range o.measureLoss(t, b, places, r) {
		_, most, err := n.mesh.Memory()
		if err != nil {
			t.Fatal(err)
		}
		r.PeakMiB = append(r.PeakMiB, most)
	}
	return r
}

// waitKnows waits until an instance has heard of a model that another one has registered.
func (n *node) waitKnows(t testing.TB, model string) {
	t.Helper()
	testkit.Eventually(t, time.Minute, n.id+" to know the last model", func() error {
		got, err := wire.NewModelMeshClient(n.calls).GetModelStatus(t.Context(), &wire.GetStatusRequest{ModelId: model})
		if err == nil && got.GetStatus() == wire.ModelStatusInfo_NOT_FOUND {
			err = fmt.Errorf("it does not know %s", model)
		}
		return err
	})
}

// measureIdle counts what is written to etcd while nobody asks for anything.
func (o options) measureIdle(t testing.TB, b *bed, r *report) {
	o.say("waiting until the leader has looked after all models, as it does now and then: it fills free memory with some")
	b.afterRound(t, o.idle/2+o.idle)
	o.say("idle for %v", o.idle)
	settled(t, o.idle/2) // what the round began ends
	before := b.revision(t)
	settled(t, o.idle)
	r.IdleSeconds, r.IdleWrites = o.idle.Seconds(), b.revision(t)-before
	for _, n := range b.nodes {
		now, _, err := n.mesh.Memory()
		if err != nil {
			t.Fatal(err)
		}
		r.IdleMiB = append(r.IdleMiB, now)
	}
}

// usualRound is the least time between two rounds of a leader in a pod.
const usualRound = 7 * time.Minute

// afterRound waits until a round of the leader is over and the next one is not due for a while. Who leads is not known: whoever
// says it does.
func (b *bed) afterRound(t testing.TB, quiet time.Duration) {
	t.Helper()
	round := cmp.Or(b.options.round, usualRound)
	testkit.Eventually(t, 2*round+time.Minute, "a round of the leader to be over", func() error {
		var last time.Time
		for _, n := range b.nodes {
			if at := lastRound(n.mesh.Output()); at.After(last) {
				last = at
			}
		}
		if last.IsZero() || time.Until(last.Add(round)) < quiet {
			return fmt.Errorf("the last one was over at %s", last)
		}
		return nil
	})
}

// lastRound is when a process said last that a round was over.
func lastRound(log string) (last time.Time) {
	for line := range strings.Lines(log) {
		var said struct {
			Msg  string
			Time time.Time
		}
		if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "The round of the leader is over" {
			last = said.Time
		}
	}
	return last
}

// settled lets time pass.
func settled(t testing.TB, d time.Duration) {
	t.Helper()
	if err := pause(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *bed) revision(t testing.TB) int64 {
	t.Helper()
	got, err := b.etcd.Client.Get(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	return got.Header.Revision
}

// place is a model and the process that has its only copy.
type place struct {
	model string
	node  *node
}

// load has models loaded, and finds out where they are.
func (b *bed) load(t testing.TB, models []string) []place {
	t.Helper()
	places := make([]place, len(models))
	each(t, len(models), func(ctx context.Context, i int) error {
		api := wire.NewModelMeshClient(b.nodes[i%len(b.nodes)].calls)
		got, err := api.EnsureLoaded(ctx, &wire.EnsureLoadedRequest{ModelId: models[i], Sync: true})
		for deadline := time.Now().Add(time.Minute); err == nil && got.GetStatus() < wire.ModelStatusInfo_LOADED && time.Now().Before(deadline); {
			if err = pause(ctx, 10*time.Millisecond); err != nil {
				break
			}
			got, err = api.GetModelStatus(ctx, &wire.GetStatusRequest{ModelId: models[i]}) // where it is loaded is known a moment later
		}
		if err != nil {
			return err
		}
		if got.GetStatus() != wire.ModelStatusInfo_LOADED || len(got.GetModelCopyInfos()) == 0 {
			return fmt.Errorf("model %s is %v with %d copies: %v", models[i], got.GetStatus(), len(got.GetModelCopyInfos()), got.GetErrors())
		}
		at := slices.IndexFunc(b.nodes, func(n *node) bool { return n.id == got.GetModelCopyInfos()[0].GetLocation() })
		if at < 0 {
			return fmt.Errorf("model %s is at %q, which is no instance", models[i], got.GetModelCopyInfos()[0].GetLocation())
		}
		places[i] = place{models[i], b.nodes[at]}
		return nil
	})
	return places
}

// each does something for 0 to n-1, some at the same time.
func each(t testing.TB, n int, do func(ctx context.Context, i int) error) {
	t.Helper()
	const workers = 16
	errs := make(chan error, workers)
	for w := range workers {
		go func() {
			var err error
			for i := w; err == nil && i < n; i += workers {
				err = do(t.Context(), i)
			}
			errs <- err
		}()
	}
	for range workers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// measureRouting compares three ways to the same models. One client at a time: what is measured is the way, not the queue.
func (o options) measureRouting(t testing.TB, b *bed, places []place, r *report) {
	t.Helper()
	at := map[string]int{}
	var models []string
	for _, p := range places {
		at[p.model] = slices.Index(b.nodes, p.node)
		models = append(models, p.model)
	}
	content := make([]byte, o.payload)
	through := func(pick func(home int) *grpc.ClientConn) load.Ask {
		return func(ctx context.Context, turn int) error {
			model := models[rand.New(rand.NewPCG(uint64(turn), 2)).IntN(len(models))] // the same for all ways
			return call(ctx, pick(at[model]), model, content, true)
		}
	}
	direct := through(func(home int) *grpc.ClientConn { return b.nodes[home].direct })
	beside := through(func(home int) *grpc.ClientConn { return b.nodes[home].calls })
	elsewhere := through(func(home int) *grpc.ClientConn { return b.nodes[(home+1)%len(b.nodes)].calls })
	for _, way := range []struct {
		to     load.Ask
		result *routing
	}{{beside, &r.Beside}, {elsewhere, &r.Forwarded}} {
		// Connections are made and code is warm before anything counts.
		if _, err := load.Turns(t.Context(), o.each/10, direct, way.to); err != nil {
			t.Fatal(err)
		}
		both, err := load.Turns(t.Context(), o.each, direct, way.to)
		if err != nil {
			t.Fatal(err)
		}
		d, m := both[0], both[1]
		*way.result = routing{Direct: d, Mesh: m, AddedP50: m.P50 - d.P50, AddedP99: m.P99 - d.P99}
	}
}

// measureLoss kills a process with its runtime while others are called, and asks for what it had until that answers. It returns
// those that are left.
func (o options) measureLoss(t testing.TB, b *bed, places []place, r *report) []*node {
	t.Helper()
	// Whoever fills free memory knows of its own models before it hears of those that others have got, and gives itself few.
	held := map[*node]int{}
	for _, p := range places {
		held[p.node]++
	}
	victim := slices.MaxFunc(b.nodes, func(one, other *node) int { return cmp.Compare(held[one], held[other]) })
	rest := slices.DeleteFunc(slices.Clone(b.nodes), func(n *node) bool { return n == victim })
	var lost, kept []string
	for _, p := range places {
		if p.node == victim {
			lost = append(lost, p.model)
		} else {
			kept = append(kept, p.model)
		}
	}
	if len(lost) == 0 || len(kept) == 0 {
		t.Fatalf("of %d models, %d are in the process that is to be killed", len(places), len(lost))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var others load.Figures
	var group sync.WaitGroup
	group.Go(func() {
		others = calls{connections: callsOf(rest), models: kept, payload: o.payload, checked: true, patience: 30 * time.Second}.
			run(ctx, load.Load{Clients: o.clients, Rate: 200, Duration: time.Hour})
	})
	settled(t, time.Second)
	victim.mesh.Kill()
	victim.runtime.Kill()
	began := time.Now()
	took := make([]time.Duration, len(lost))
	var refused load.Tally
	each(t, len(lost), func(ctx context.Context, i int) error {
		for {
			limited, cancel := context.WithTimeout(ctx, 30*time.Second)
			err := call(limited, rest[i%len(rest)].calls, lost[i], make([]byte, o.payload), true)
			cancel()
			took[i] = time.Since(began)
			if err == nil {
				return nil
			}
			refused.Add(0, err)
			if took[i] > 5*time.Minute {
				return fmt.Errorf("%s has not answered for %v: %w", lost[i], took[i], err)
			}
		}
	})
	settled(t, time.Second)
	cancel()
	group.Wait()
	r.Loss.Models = len(lost)
	r.Loss.P50, _, r.Loss.Max = load.Quantiles(took)
	failed := refused.Figures(0)
	r.Loss.Refused, r.Loss.FirstRefused = failed.Failures(), failed.First
	r.Loss.Others = others
	return rest
}
