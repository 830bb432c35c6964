// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestCounts is the gate: what a service costs the API server does not depend on
// the machine, so it holds with few services as with thousands.
func TestCounts(t *testing.T) {
	if os.Getenv("BENCH_SERVING") == "" {
		t.Skip("set BENCH_SERVING=1 to measure what services cost: it takes minutes and builds a simulator of nodes")
	}
	r := measure(t, options{
		services: 40, clients: 8, workers: 10, touched: 10,
		idle: 5 * time.Second, quiet: 2 * time.Second, patience: 5 * time.Minute, floor: true,
	}, t.Logf)
	if testing.Verbose() {
		r.print(os.Stdout)
	}
	for _, complaint := range r.broken() {
		t.Error(complaint)
	}
	if len(r.Ready) != r.Services {
		t.Errorf("%d of %d services are ready", len(r.Ready), r.Services)
	}
	if want := 5; r.Children != want {
		t.Errorf("%d children per service, want %d", r.Children, want)
	}
	if want := r.Services * r.Children; r.Floor.Requests != want {
		t.Errorf("the plain client sent %d requests, want %d", r.Floor.Requests, want)
	}
}
