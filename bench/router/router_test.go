// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	_ "github.com/modelplane/modelplane/internal/serving/router" // what is measured: another version of it is measured again
)

// TestWays measures for a moment and checks what does not depend on the machine: failures and memory.
func TestWays(t *testing.T) {
	binary, err := build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, err := plan{clients: 4, size: 256, time: 200 * time.Millisecond, binary: binary}.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.print(t.Output())
	if err := r.broken(); err != nil {
		t.Error(err)
	}
	for _, f := range r.Ways {
		if f.Requests == 0 || f.P50 <= 0 || f.P99 < f.P50 {
			t.Errorf("%+v", f)
		}
	}
	r.Ways[1].Failed, r.Ways[2].PeakRSS = 1, 1<<30
	if r.broken() == nil {
		t.Error("broken promises are not noticed")
	}
}
