// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

// TestPromises measures shortly and holds the agent to what does not depend on the machine.
func TestPromises(t *testing.T) {
	r := options{clients: 4, rounds: 1, each: 200 * time.Millisecond}.measure(t, checkout.Program(t, "modelplane-pod"))
	for _, broken := range r.broken() {
		t.Error(broken)
	}
	if len(r.Ways) != 4 || r.Ways[3].Requests < 10 || r.EventsDue < 20 {
		t.Errorf("hardly anything was asked: %+v", r)
	}
}

// TestBroken: promises can be broken.
func TestBroken(t *testing.T) {
	bad := report{IdleMiB: []float64{21}, Ways: []figures{{Requests: 1, Failed: 1}, {Requests: 0}, {Requests: 1, PeakMiB: 129}}, Events: 1, EventsDue: 2}
	if got := bad.broken(); len(got) != 5 {
		t.Errorf("five broken promises are %v", got)
	}
	good := report{IdleMiB: []float64{20}, Ways: []figures{{Requests: 1, PeakMiB: 128}}, Events: 2, EventsDue: 2}
	if got := good.broken(); len(got) != 0 {
		t.Errorf("kept promises are broken: %v", got)
	}
}
