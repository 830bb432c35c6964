// SPDX-License-Identifier: Apache-2.0

package freeport_test

import (
	"testing"

	"github.com/modelplane/modelplane/internal/testkit/freeport"
)

func TestNeverTheSame(t *testing.T) {
	seen := map[int]bool{}
	for i := range 50 {
		host := "127.0.0.1"
		if i%2 == 0 {
			host = "" // everywhere
		}
		got := freeport.At(t, host)
		if seen[got] {
			t.Fatalf("port %d twice", got)
		}
		seen[got] = true
	}
}
