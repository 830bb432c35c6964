// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/bench/load"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

// TestMain lets the test's program be a runtime, too.
func TestMain(m *testing.M) {
	if what := os.Getenv(runtimeVariable); what != "" {
		os.Exit(complain(runtimeProcess(what)))
	}
	testkit.Main(m)
}

// TestCounts goes through all phases with few models, and checks what does not depend on the machine.
func TestCounts(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := options{models: 300, processes: 3, hot: 60, clients: 2, payload: 100, each: 200 * time.Millisecond, idle: 2 * time.Second, round: 6 * time.Second, say: t.Logf}
	r := o.measure(t, self, checkout.Program(t, "modelplane-pod"))
	for _, broken := range r.counts() {
		t.Error(broken)
	}
	if r.Beside.Mesh.Requests < 10 || r.Forwarded.Mesh.Requests < 10 || r.Loss.Others.Requests < 10 {
		t.Errorf("hardly anything was called: %+v", r)
	}
	if len(r.IdleMiB) != 3 || len(r.PeakMiB) != 2 || r.PeakMiB[0] < 1 {
		t.Errorf("memory was not seen: %v %v", r.IdleMiB, r.PeakMiB)
	}
}

// TestRuntime: the figures are worth something only if the runtime refuses what a runtime refuses.
func TestRuntime(t *testing.T) {
	address, e := runtimeHere(t, 2)
	c, err := dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c[0].Close() }()
	ctx, api := t.Context(), wire.NewModelRuntimeClient(c[0])
	is := func(what string, err error, want codes.Code) {
		t.Helper()
		if status.Code(err) != want {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	load := func(id string) error {
		_, err := api.LoadModel(ctx, &wire.LoadModelRequest{ModelId: id})
		return err
	}
	is("a call of a model that is not loaded", call(ctx, c[0], "a", []byte("x"), true), codes.NotFound)
	is("a load", load("a"), codes.OK)
	is("a call", call(ctx, c[0], "a", []byte("x"), true), codes.OK)
	is("a second load", load("b"), codes.OK)
	is("a load beyond the memory", load("c"), codes.ResourceExhausted)
	_, err = api.UnloadModel(ctx, &wire.UnloadModelRequest{ModelId: "a"})
	is("an unload", err, codes.OK)
	is("a call after it", call(ctx, c[0], "a", []byte("x"), true), codes.NotFound)
	got, err := api.RuntimeStatus(ctx, &wire.RuntimeStatusRequest{})
	if err != nil || got.GetCapacityInBytes() != 2*modelBytes {
		t.Errorf("status: %v, %v", got, err)
	}
	is("a call after a new mesh came", call(ctx, c[0], "b", []byte("x"), true), codes.NotFound)
	if e.loads.Load() != 2 || e.unloads.Load() != 1 || e.answers.Load() != 1 {
		t.Errorf("it counts %d loads, %d unloads, %d answers", e.loads.Load(), e.unloads.Load(), e.answers.Load())
	}
}

func runtimeHere(t *testing.T, models uint64) (string, *echo) {
	t.Helper()
	e := newEcho(models*modelBytes, modelBytes, time.Millisecond)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return listener.Addr().String(), e
}

// TestLoad: what the generator says is what the server saw, and failures are counted by their codes.
func TestLoad(t *testing.T) {
	address, e := runtimeHere(t, 10)
	e.loaded["there-000000"] = true
	c, err := dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c[0].Close() }()
	asked := calls{connections: c, models: names("there-", 1), payload: 10, checked: true, patience: time.Minute}
	got := asked.run(t.Context(), load.Load{Clients: 3, Rate: 500, Duration: 300 * time.Millisecond})
	if got.Failures() != 0 || int64(got.Requests) != e.answers.Load() || got.Requests != 150 {
		t.Errorf("it tells of %d answers and %d failures, want 500 per second; the server gave %d", got.Requests, got.Failures(), e.answers.Load())
	}
	if got.P50 <= 0 || got.P99 < got.P50 || got.Max < got.P99 {
		t.Errorf("times are %+v", got)
	}
	asked.models = names("gone-", 1)
	if got = asked.run(t.Context(), load.Load{Clients: 3, Duration: 50 * time.Millisecond}); got.Requests != 0 || got.Failed["NotFound"] == 0 || got.First == "" {
		t.Errorf("of models that are not there it tells %+v", got)
	}
}

// TestPromises can be broken.
func TestPromises(t *testing.T) {
	good := report{Processes: 4, IdleSeconds: 60, IdleWrites: 8, IdleMiB: []float64{150}, PeakMiB: []float64{150}, Beside: routing{AddedP99: 1}}
	if got := good.broken(); len(got) != 0 {
		t.Errorf("kept promises are broken: %v", got)
	}
	bad := report{Processes: 4, IdleSeconds: 60, IdleWrites: 9, IdleMiB: []float64{151}, PeakMiB: []float64{151}, Beside: routing{AddedP99: 1.1}}
	bad.Loss.Others.Failed = map[string]int{"Unavailable": 1}
	if got := bad.broken(); len(got) != 5 {
		t.Errorf("five broken promises are %v", got)
	}
}

// TestPredictors goes through all phases of the control plane with few Predictors, and holds it to every promise.
func TestPredictors(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := options{predictors: 30, processes: 2, idle: 3 * time.Second, say: t.Logf}
	r := o.measurePredictors(t, self, checkout.Program(t, "modelplane-pod"), checkout.Program(t, "modelplane"))
	t.Logf("%+v", *r)
	for _, broken := range r.starved() { // by other tests
		t.Error(broken)
	}
	if r.Writes < 1 || r.Calls < 1 || r.PeakMiB < 1 || r.P50 <= 0 {
		t.Errorf("it was not counted: %+v", r)
	}
}

// TestPredictorPromises can be broken, also where a machine has no time.
func TestPredictorPromises(t *testing.T) {
	bad := predictorsReport{Writes: 4.1, Calls: 3.1, IdleCalls: 1}
	if got := bad.broken(); len(got) != 3 {
		t.Errorf("three broken promises are %v", got)
	}
	slow := predictorsReport{Writes: 5.1, Between: 1, Calls: 3.1}
	if got := slow.starved(); len(got) != 0 {
		t.Errorf("a machine without time breaks %v", got)
	}
	slow = predictorsReport{Writes: 5, Between: 0.5, Calls: 3.2, IdleWrites: 1}
	if got := slow.starved(); len(got) != 3 {
		t.Errorf("three promises broken by more than a lack of time are %v", got)
	}
}
