// SPDX-License-Identifier: Apache-2.0

package lru

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

type entry = Entry[string, int]

// naive is the cache as one would explain it: a list that is sorted before anything is given up.
type naive struct {
	capacity int64
	list     []entry // in order of arrival
}

func (n *naive) index(key string) int {
	return slices.IndexFunc(n.list, func(e entry) bool { return e.Key == key })
}

func (n *naive) used() (sum int64) {
	for _, e := range n.list {
		sum += e.Weight
	}
	return sum
}

func (n *naive) sorted() []entry {
	list := slices.Clone(n.list)
	slices.SortStableFunc(list, func(a, b entry) int { return cmp.Compare(a.LastUsed, b.LastUsed) })
	return list
}

func (n *naive) oldest() (entry, bool) {
	for _, e := range n.sorted() {
		if !e.Pinned {
			return e, true
		}
	}
	return entry{}, false
}

func (n *naive) remove(key string) (entry, bool) {
	i := n.index(key)
	if i < 0 {
		return entry{}, false
	}
	e := n.list[i]
	n.list = slices.Delete(n.list, i, i+1)
	return e, true
}

func (n *naive) shrink() (gone []entry) {
	for n.used() > n.capacity {
		e, ok := n.oldest()
		if !ok {
			break
		}
		n.remove(e.Key)
		gone = append(gone, e)
	}
	return gone
}

func (n *naive) put(key string, value int, weight, lastUsed int64) []entry {
	was, _ := n.remove(key)
	e := entry{key, value, weight, lastUsed, was.Pinned}
	if weight > n.capacity && !was.Pinned {
		return []entry{e}
	}
	n.list = append(n.list, e)
	return n.shrink()
}

func (n *naive) setWeight(key string, weight int64) []entry {
	i := n.index(key)
	if i < 0 {
		return nil
	}
	n.list[i].Weight = weight
	if weight > n.capacity && !n.list[i].Pinned {
		e, _ := n.remove(key)
		return append([]entry{e}, n.shrink()...)
	}
	return n.shrink()
}

func (n *naive) touch(key string, t int64) (int, bool) {
	i := n.index(key)
	if i < 0 {
		return 0, false
	}
	n.list[i].LastUsed = max(n.list[i].LastUsed, t)
	return n.list[i].Value, true
}

// TestAgainstNaive does the same things to both, in many orders. Few keys and few times make collisions common.
func TestAgainstNaive(t *testing.T) {
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 1))
		capacity := 5 + r.Int64N(60)
		c, n := New[string, int](capacity), &naive{capacity: capacity}
		for step := range 150 {
			did := one(t, r, c, n, step)
			agree(t, c, n, fmt.Sprintf("seed %d, step %d, after %s", seed, step, did))
			if t.Failed() {
				return
			}
		}
	}
}

// one does one thing to both and compares what they return.
func one(t *testing.T, r *rand.Rand, c *Cache[string, int], n *naive, step int) string {
	key := string(rune('a' + r.IntN(12)))
	weight, at := r.Int64N(15), r.Int64N(40)
	var did string
	var got, want any
	switch r.IntN(9) {
	case 0, 1:
		did = fmt.Sprintf("Put(%s, weight %d, at %d)", key, weight, at)
		got, want = c.Put(key, step, weight, at), n.put(key, step, weight, at)
	case 2:
		did = "Touch " + key
		_, there := n.touch(key, at)
		got, want = c.Touch(key, at), there
	case 3:
		did = "Get " + key
		v, ok := c.Get(key, at)
		nv, nok := n.touch(key, at)
		got, want = []any{v, ok}, []any{nv, nok}
	case 4:
		did = fmt.Sprintf("SetWeight(%s, %d)", key, weight)
		got, want = c.SetWeight(key, weight), n.setWeight(key, weight)
	case 5:
		did = "Remove " + key
		e, ok := c.Remove(key)
		ne, nok := n.remove(key)
		got, want = []any{e, ok}, []any{ne, nok}
	case 6:
		capacity := 5 + r.Int64N(60)
		did = fmt.Sprintf("SetCapacity(%d)", capacity)
		n.capacity = capacity
		got, want = c.SetCapacity(capacity), n.shrink()
	case 7:
		pin := r.IntN(3) == 0
		did = fmt.Sprintf("Pin(%s, %v)", key, pin)
		i := n.index(key)
		if i >= 0 {
			n.list[i].Pinned = pin
		}
		got, want = c.Pin(key, pin), i >= 0
	case 8:
		did = "Add " + key
		value, added, gone := c.Add(key, step, weight, at)
		if i := n.index(key); i >= 0 {
			got, want = []any{value, added, gone}, []any{n.list[i].Value, false, []entry(nil)}
		} else {
			got, want = []any{value, added, gone}, []any{step, true, n.put(key, step, weight, at)}
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s returns (-want +got):\n%s", did, diff)
	}
	return did
}

func agree(t *testing.T, c *Cache[string, int], n *naive, when string) {
	t.Helper()
	if diff := gocmp.Diff(n.sorted(), slices.Collect(c.All()), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s the entries differ (-want +got):\n%s", when, diff)
	}
	e, ok := c.Oldest()
	ne, nok := n.oldest()
	if e != ne || ok != nok {
		t.Errorf("%s the oldest is %v, want %v", when, e, ne)
	}
	if c.Used() != n.used() || c.Len() != len(n.list) || c.Capacity() != n.capacity {
		t.Errorf("%s it has %d entries of %d, want %d of %d", when, c.Len(), c.Used(), len(n.list), n.used())
	}
	for _, e := range n.list {
		if got, ok := c.Peek(e.Key); !ok || got != e {
			t.Errorf("%s Peek(%s) = %v, %v, want %v", when, e.Key, got, ok, e)
		}
	}
}

func TestRemoveIf(t *testing.T) {
	c := New[string, int](10)
	c.Put("a", 1, 1, 0)
	if _, ok := c.RemoveIf("a", func(e entry) bool { return e.Value == 2 }); ok {
		t.Error("removed another value than was meant")
	}
	if e, ok := c.RemoveIf("a", func(e entry) bool { return e.Value == 1 }); !ok || e.Value != 1 || c.Len() != 0 {
		t.Errorf("RemoveIf = %v, %v with %d left", e, ok, c.Len())
	}
}

// TestManyGoroutines: whatever happens at once, the sums are right at the end, nothing was handed out twice, and every value
// that went in either came out or is still there.
func TestManyGoroutines(t *testing.T) {
	const workers, each = 8, 3000
	c := New[int, int](500)
	out := make([][]Entry[int, int], workers)
	put := make([]int, workers)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 2))
			for i := range each {
				key := r.IntN(200)
				c.Touch(key, int64(i))
				c.Get(r.IntN(200), int64(i))
				switch r.IntN(8) {
				case 0:
					_, added, gone := c.Add(key, w*each+i, 1+r.Int64N(10), int64(i))
					out[w] = append(out[w], gone...)
					if added {
						put[w]++
					}
				case 1:
					out[w] = append(out[w], c.SetWeight(key, 1+r.Int64N(10))...)
				case 2:
					if e, ok := c.Remove(key); ok {
						out[w] = append(out[w], e)
					}
				case 3:
					c.Pin(key, r.IntN(20) == 0)
				case 4:
					for range c.All() {
						break
					}
				}
			}
		})
	}
	group.Wait()
	seen, all, sum := map[int]bool{}, 0, int64(0)
	left := slices.Collect(c.All())
	for _, e := range left {
		sum += e.Weight
	}
	for _, list := range slices.Concat(out, [][]Entry[int, int]{left}) {
		for _, e := range list {
			if seen[e.Value] {
				t.Fatalf("value %d is there twice", e.Value)
			}
			seen[e.Value] = true
		}
	}
	for _, n := range put {
		all += n
	}
	if len(seen) != all {
		t.Errorf("%d values went in, %d came out or are left", all, len(seen))
	}
	if c.Used() != sum || c.Len() != len(left) {
		t.Errorf("it says %d entries of %d; they are %d of %d", c.Len(), c.Used(), len(left), sum)
	}
}

// TestTouchAllocatesNothing: it is on the way of every request.
func TestTouchAllocatesNothing(t *testing.T) {
	c := New[string, int](10)
	c.Put("a", 1, 1, 0)
	now := int64(1)
	if n := testing.AllocsPerRun(100, func() { now++; c.Get("a", now) }); n != 0 {
		t.Errorf("Get allocates %v times", n)
	}
}

func BenchmarkTouch(b *testing.B) {
	c := New[string, int](1 << 20)
	keys := make([]string, 1<<14)
	for i := range keys {
		keys[i] = fmt.Sprint("model-", i)
		c.Put(keys[i], i, 1, int64(i))
	}
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			c.Touch(keys[i&(len(keys)-1)], int64(i))
		}
	})
}
