// SPDX-License-Identifier: Apache-2.0

// Package lru keeps what an instance has loaded: a cache bounded by weight that gives up what was used longest ago, and the
// arithmetic of the memory that is between being given up and being free. Times are milliseconds since 1970, as in the
// records that instances share, and come from the caller: a model may arrive with a last use that lies hours back.
//
// It must not know what it keeps, start goroutines, or ask for the time.
package lru

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
)

// Entry is what the cache says of one thing it keeps, or has just given up.
type Entry[K comparable, V any] struct {
	Key      K
	Value    V
	Weight   int64
	LastUsed int64
	Pinned   bool
}

const shards = 32

// Cache is safe for many goroutines. Finding and touching an entry takes only a read lock of a 32nd of it; what changes
// the order or the weight takes one lock for all.
//
// Touching leaves the order alone: it raises the entry's time, and whoever looks for the oldest entry puts those right
// that were touched since. That is sound because a time only ever moves forward, so that no entry is older than the order says.
type Cache[K comparable, V any] struct {
	seed   maphash.Seed
	shards [shards]shard[K, V]

	mu       sync.Mutex // taken before a shard's
	order    queue[K, V]
	capacity int64
	used     int64
	count    int
	next     uint64
}

type shard[K comparable, V any] struct {
	sync.RWMutex
	nodes map[K]*node[K, V]
}

type node[K comparable, V any] struct {
	key      K
	value    V
	lastUsed atomic.Int64
	weight   atomic.Int64
	pinned   atomic.Bool

	// What follows is guarded by the cache's lock.
	ordered int64  // the last use that the order knows
	number  uint64 // tells apart what was used at the same millisecond
	place   int    // in the order; -1 when pinned or removed
}

func (n *node[K, V]) entry() Entry[K, V] {
	return Entry[K, V]{Key: n.key, Value: n.value, Weight: n.weight.Load(), LastUsed: n.lastUsed.Load(), Pinned: n.pinned.Load()}
}

// touch moves the last use forward, never back.
func (n *node[K, V]) touch(t int64) {
	for {
		was := n.lastUsed.Load()
		if t <= was || n.lastUsed.CompareAndSwap(was, t) {
			return
		}
	}
}

// New returns an empty cache for things of that weight in all.
func New[K comparable, V any](capacity int64) *Cache[K, V] {
	c := &Cache[K, V]{seed: maphash.MakeSeed(), capacity: capacity}
	for i := range c.shards {
		c.shards[i].nodes = map[K]*node[K, V]{}
	}
	return c
}

func (c *Cache[K, V]) shard(key K) *shard[K, V] {
	return &c.shards[maphash.Comparable(c.seed, key)%shards]
}

func (c *Cache[K, V]) find(key K) *node[K, V] {
	s := c.shard(key)
	s.RLock()
	defer s.RUnlock()
	return s.nodes[key]
}

// Get finds an entry and notes that it is used now.
func (c *Cache[K, V]) Get(key K, now int64) (V, bool) {
	n := c.find(key)
	if n == nil {
		var none V
		return none, false
	}
	n.touch(now)
	return n.value, true
}

// Peek finds an entry without using it.
func (c *Cache[K, V]) Peek(key K) (Entry[K, V], bool) {
	n := c.find(key)
	if n == nil {
		return Entry[K, V]{}, false
	}
	return n.entry(), true
}

// Touch notes a use at t. A time before the last use changes nothing.
func (c *Cache[K, V]) Touch(key K, t int64) bool {
	n := c.find(key)
	if n != nil {
		n.touch(t)
	}
	return n != nil
}

// Put keeps the value, in place of another one of the same key (whose pin it inherits), and returns what had to go for it.
// That is the value itself when it is the one used longest ago, or when it weighs more than the cache may hold: such a one
// is given back at once, and nothing else is lost for it.
func (c *Cache[K, V]) Put(key K, value V, weight, lastUsed int64) []Entry[K, V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.find(key)
	pinned := was != nil && was.pinned.Load()
	if was != nil {
		c.drop(was)
	}
	return c.put(key, value, weight, lastUsed, pinned)
}

// Add is Put for a key that must be new: when there is one already, its value is returned with false and nothing changes.
// Of many goroutines that want the same model, one gets to load it.
func (c *Cache[K, V]) Add(key K, value V, weight, lastUsed int64) (kept V, added bool, evicted []Entry[K, V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was := c.find(key); was != nil {
		return was.value, false, nil
	}
	return value, true, c.put(key, value, weight, lastUsed, false)
}

func (c *Cache[K, V]) put(key K, value V, weight, lastUsed int64, pinned bool) []Entry[K, V] {
	weight = max(weight, 0)
	if weight > c.capacity && !pinned {
		return []Entry[K, V]{{Key: key, Value: value, Weight: weight, LastUsed: lastUsed}}
	}
	n := &node[K, V]{key: key, value: value, ordered: lastUsed, number: c.next, place: -1}
	n.lastUsed.Store(lastUsed)
	n.weight.Store(weight)
	n.pinned.Store(pinned)
	c.next++
	c.count++
	c.used += weight
	s := c.shard(key)
	s.Lock()
	s.nodes[key] = n
	s.Unlock()
	if !pinned {
		c.order.push(n)
	}
	return c.shrink()
}

// SetWeight says that an entry weighs something else now, and returns what had to go for it: as with Put, possibly itself.
func (c *Cache[K, V]) SetWeight(key K, weight int64) []Entry[K, V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.find(key)
	if n == nil {
		return nil
	}
	weight = max(weight, 0)
	c.used += weight - n.weight.Swap(weight)
	if weight > c.capacity && !n.pinned.Load() {
		c.drop(n)
		return append([]Entry[K, V]{n.entry()}, c.shrink()...)
	}
	return c.shrink()
}

// Remove forgets an entry.
func (c *Cache[K, V]) Remove(key K) (Entry[K, V], bool) {
	return c.RemoveIf(key, func(Entry[K, V]) bool { return true })
}

// RemoveIf forgets an entry if it is the one that the caller means; the key may have another value by now. The function is
// called with the cache locked and must not call it.
func (c *Cache[K, V]) RemoveIf(key K, meant func(Entry[K, V]) bool) (Entry[K, V], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.find(key)
	if n == nil || !meant(n.entry()) {
		return Entry[K, V]{}, false
	}
	c.drop(n)
	return n.entry(), true
}

// Pin keeps an entry from being given up, or no longer does. What is pinned counts as used, also when it is more than the
// cache may hold. Unpinning evicts nothing by itself; the next change does.
func (c *Cache[K, V]) Pin(key K, pinned bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.find(key)
	if n == nil {
		return false
	}
	if n.pinned.Swap(pinned) == pinned {
		return true
	}
	if pinned {
		c.order.remove(n)
		return true
	}
	n.ordered = n.lastUsed.Load()
	c.order.push(n)
	return true
}

// Oldest is the entry that would go next: the one used longest ago that is not pinned.
func (c *Cache[K, V]) Oldest() (Entry[K, V], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.order.oldest()
	if n == nil {
		return Entry[K, V]{}, false
	}
	return n.entry(), true
}

// Used is the weight of all entries.
func (c *Cache[K, V]) Used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// Len is how many entries there are.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// Capacity is the weight that the cache may hold.
func (c *Cache[K, V]) Capacity() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.capacity
}

// SetCapacity returns what had to go because there is less room now.
func (c *Cache[K, V]) SetCapacity(capacity int64) []Entry[K, V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.capacity = capacity
	return c.shrink()
}

// All goes through a snapshot of the entries, pinned ones too, those used longest ago first. The cache may be changed
// meanwhile.
func (c *Cache[K, V]) All() iter.Seq[Entry[K, V]] {
	type numbered struct {
		Entry[K, V]
		number uint64
	}
	c.mu.Lock()
	entries := make([]numbered, 0, c.count)
	for i := range c.shards {
		s := &c.shards[i]
		for _, n := range s.nodes { // whoever writes to it holds the cache's lock
			entries = append(entries, numbered{n.entry(), n.number})
		}
	}
	c.mu.Unlock()
	slices.SortFunc(entries, func(a, b numbered) int {
		return cmp.Or(cmp.Compare(a.LastUsed, b.LastUsed), cmp.Compare(a.number, b.number))
	})
	return func(yield func(Entry[K, V]) bool) {
		for _, e := range entries {
			if !yield(e.Entry) {
				return
			}
		}
	}
}

// shrink gives up entries until the rest fits, or only pinned ones are left.
func (c *Cache[K, V]) shrink() []Entry[K, V] {
	var gone []Entry[K, V]
	for c.used > c.capacity {
		n := c.order.oldest()
		if n == nil {
			break
		}
		c.drop(n)
		gone = append(gone, n.entry())
	}
	return gone
}

func (c *Cache[K, V]) drop(n *node[K, V]) {
	s := c.shard(n.key)
	s.Lock()
	delete(s.nodes, n.key)
	s.Unlock()
	c.order.remove(n)
	c.used -= n.weight.Load()
	c.count--
}
