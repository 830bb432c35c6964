// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"slices"
	"testing"
)

// TestCollecting: memory is saved while nobody calls, and from when nobody has called between two looks.
func TestCollecting(t *testing.T) {
	var got []int
	c := &collecting{set: func(percent int) int { got = append(got, percent); return 0 }}
	c.rest()
	c.use()
	c.use()
	c.rest() // somebody has called
	c.use()
	c.rest()
	c.rest()
	c.rest()
	c.use()
	if want := []int{swift, thrifty, swift}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	t.Setenv("GOGC", "100")
	own := &collecting{}
	own.begin()
	own.use()
	own.rest()
	own.rest()
	if own.set != nil {
		t.Error("the environment is overruled")
	}
}
