// SPDX-License-Identifier: Apache-2.0

package testkit

import "sync"

var ending struct {
	sync.Mutex
	do []func()
}

// AtEnd does something when all tests of this binary are over: for what they share. It needs Main.
func AtEnd(do func()) {
	ending.Lock()
	defer ending.Unlock()
	ending.do = append(ending.do, do)
}

// atEnd does what was left for the end, the last first.
func atEnd() {
	ending.Lock()
	defer ending.Unlock()
	for i := len(ending.do) - 1; i >= 0; i-- {
		ending.do[i]()
	}
}
