// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"
	"time"

	_ "github.com/modelplane/modelplane/cmd/modelplane/domains" // what is measured: another version of it is measured again
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestCounts is the gate: what a service costs the API server does not depend on
// the machine, so it holds with few services as with thousands.
func TestCounts(t *testing.T) {
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
