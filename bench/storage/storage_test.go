// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	_ "github.com/modelplane/modelplane/internal/fetch" // what is measured: another version of it is measured again
)

// TestCounts measures a small plan and checks what does not depend on the machine: requests and memory.
func TestCounts(t *testing.T) {
	binary, err := build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := plan{size: 100_000_000, count: 300, small: 1 << 10, parallel: 8, rounds: 1, dir: t.TempDir(), binary: binary}
	r, err := p.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.print(t.Output())
	if err := r.broken(); err != nil {
		t.Error(err)
	}
	if r.LargePlain.Requests != 1 || r.SmallPlain.Requests != 300 {
		t.Errorf("the plain download took %d and %d requests, want 1 and 300", r.LargePlain.Requests, r.SmallPlain.Requests)
	}
}
