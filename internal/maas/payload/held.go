// SPDX-License-Identifier: Apache-2.0

package payload

import "sync"

// held counts the bytes of bodies that are waiting to be complete or to be sent on.
type held struct {
	mu        sync.Mutex
	now, most int64
}

// take tells whether there is room.
func (h *held) take(n int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.most > 0 && h.now+n > h.most {
		return false
	}
	h.now += n
	return true
}

func (h *held) give(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now -= n
}

func (h *held) bytes() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return float64(h.now)
}
