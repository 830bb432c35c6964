// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"os"
	"runtime/debug"
	"sync/atomic"
)

// How far memory grows before garbage is collected, in percent of what is in use: little while nobody calls, because memory is
// paid for in every pod, and far while somebody does, because with a hundred thousand records collecting is what the slowest
// calls wait for.
const (
	thrifty = 50
	swift   = 200
)

// collecting changes between the two.
type collecting struct {
	set          func(percent int) int // nil where the environment says it
	called, fast atomic.Bool
}

// begin is for a process that nobody calls yet. GOGC is for whoever knows better.
func (c *collecting) begin() {
	if os.Getenv("GOGC") == "" {
		c.set = debug.SetGCPercent
		c.set(thrifty)
	}
}

// use says that somebody calls.
func (c *collecting) use() {
	if !c.called.Load() {
		c.called.Store(true)
	}
	if !c.fast.Load() && c.set != nil && c.fast.CompareAndSwap(false, true) {
		c.set(swift)
	}
}

// rest is asked now and then, and goes back when nobody has called since.
func (c *collecting) rest() {
	if !c.called.Swap(false) && c.fast.CompareAndSwap(true, false) {
		c.set(thrifty)
	}
}
