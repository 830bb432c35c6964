// SPDX-License-Identifier: Apache-2.0

package testkit

import "sync"

// holders remembers which tests need a third-party definition, so that it goes
// with the last of them.
type holders struct {
	sync.Mutex
}
