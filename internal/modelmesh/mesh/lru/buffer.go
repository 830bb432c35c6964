// SPDX-License-Identifier: Apache-2.0

package lru

import "sync"

// Buffer accounts for memory that the cache's order does not show. A model that was given up still fills memory until the
// runtime has unloaded it; one that has just been taken in fills none until its load begins. The cache may hold Limit, and
// a load may begin when the memory is really there.
//
// Written as sums, all in the same unit: the memory in use is what the cache holds, less what is claimed and not loading
// yet, plus what is being unloaded. A reserve is kept out of the cache so that loads can begin while unloads go on; space
// that is being freed for a claim is borrowed, not taken from the cache a second time, or one eviction would cause the next.
//
// The order of calls matters for that: Claim before the entry is put, Unloading for what was evicted, then SetCapacity of
// the cache with Limit. It is safe for many goroutines; who changes buffer and cache together needs a lock around both.
type Buffer struct {
	mu        sync.Mutex
	capacity  int64
	reserve   int64
	unloading int64 // given up, not free yet
	claimed   int64 // in the cache, not in memory yet
	deficit   int64 // grown beyond what was free; part of unloading pays for it
	changed   chan struct{}
}

// NewBuffer accounts for the capacity of a runtime that loads so many models at once, of that weight if nothing better is known.
func NewBuffer(capacity int64, threads int, typical int64) *Buffer {
	return &Buffer{capacity: capacity, reserve: Reserve(capacity, threads, typical), changed: make(chan struct{})}
}

// Reserve is room for half of the loads that may run at once (a quarter when there are more than two), but from one to ten
// hundredths of the capacity.
func Reserve(capacity int64, threads int, typical int64) int64 {
	share := int64(4)
	if threads <= 2 {
		share = 2
	}
	return min(max(int64(threads)*typical/share, capacity/100), capacity/10)
}

// MinSpace is the free space below which an instance counts as full: room for a model or two, or for one per load that may
// run at once while that is at most a twentieth of the capacity. With an unload buffer the next model needs no second place.
func MinSpace(capacity int64, threads int, typical int64, buffered bool) int64 {
	models := int64(2)
	if buffered || threads == 1 {
		models = 1
	}
	return max(typical*models, min(typical*int64(threads), capacity/20))
}

// LeastCapacity is what an instance must have to be of use: two models of the typical weight, or ten as long as these are
// no more than half a gibibyte. Both are in bytes.
func LeastCapacity(typical int64) int64 {
	const half = 512 << 20
	return max(2*typical, min(half, 10*typical))
}

// Limit is what the cache may hold now.
func (b *Buffer) Limit() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.capacity - max(b.reserve, b.unloading-b.claimed-b.deficit)
}

// Capacity is what there is in all, less what failed unloads have taken for good.
func (b *Buffer) Capacity() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.capacity
}

// Claim takes note of an entry that is put into the cache and whose load has not begun; also of one whose expected weight
// changes before that, with the difference.
func (b *Buffer) Claim(weight int64) { b.change(func() { b.claimed += weight }) }

// Release is for an entry that left the cache before its load began.
func (b *Buffer) Release(weight int64) { b.Claim(-weight) }

// Start asks whether the load of a claimed entry may begin, given what the cache holds. If so, the claim has become memory.
// If not, wait for Changed and ask again.
func (b *Buffer) Start(weight, held int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held-b.claimed+b.unloading+weight > b.capacity {
		return false
	}
	b.claimed -= weight
	return true
}

// Resize takes note that a model in memory weighs by so much more, or less, than the cache of that limit and content thought.
// What goes beyond free space is a deficit until others are unloaded: these pay for memory that is in use already, so they
// do not shrink the cache.
func (b *Buffer) Resize(by, held int64) {
	b.change(func() {
		if by < 0 {
			b.deficit = max(0, b.deficit+by)
			return
		}
		free := max(0, b.capacity-max(b.reserve, b.unloading-b.claimed-b.deficit)-held)
		b.deficit += max(0, by-free)
	})
}

// Unloading takes note of an entry that left the cache while in memory.
func (b *Buffer) Unloading(weight int64) { b.change(func() { b.unloading += weight }) }

// Unloaded takes note that this memory is free. Deficits are paid first.
func (b *Buffer) Unloaded(weight int64) {
	b.change(func() {
		b.unloading -= weight
		b.deficit = max(0, min(b.deficit-weight, b.unloading))
	})
}

// Lost takes note that this memory will never be free: the runtime did not unload the model, however often it was asked.
func (b *Buffer) Lost(weight int64) {
	b.change(func() {
		b.unloading -= weight
		b.capacity -= weight
		b.deficit = max(0, min(b.deficit, b.unloading))
	})
}

// Unfreed is the memory of models that were given up and not unloaded yet.
func (b *Buffer) Unfreed() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unloading
}

// Changed is closed at the next change after which a load that was refused may be permitted.
func (b *Buffer) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *Buffer) change(how func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	how()
	close(b.changed)
	b.changed = make(chan struct{})
}
