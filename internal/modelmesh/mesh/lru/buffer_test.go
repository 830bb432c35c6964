// SPDX-License-Identifier: Apache-2.0

package lru

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// machine is a runtime with real memory: what it has loaded, and what it is told to unload and has not yet.
type machine struct {
	t         *testing.T
	r         *rand.Rand
	c         *Cache[string, *model]
	b         *Buffer
	capacity  int64
	heaviest  int64
	models    []*model // every one that was ever taken in
	unloading []*model
	clock     int64
	grown     bool // a model was larger than it said: memory may be short until enough is unloaded
}

type model struct {
	key            string
	weight         int64
	loaded, inside bool
}

func (m *machine) memory() (sum int64) {
	for _, x := range m.models {
		if x.loaded {
			sum += x.weight
		}
	}
	return sum
}

// gone does what the mesh does with entries that had to go, and returns their weight.
func (m *machine) gone(list []Entry[string, *model]) (sum int64) {
	for _, e := range list {
		x := e.Value
		x.inside = false
		sum += x.weight
		if x.loaded {
			m.b.Unloading(x.weight)
			m.unloading = append(m.unloading, x)
		} else {
			m.b.Release(x.weight)
		}
	}
	return sum
}

// settle brings the cache to the buffer's limit; it must need one attempt, or an eviction would cause the next.
func (m *machine) settle() (sum int64) {
	sum = m.gone(m.c.SetCapacity(m.b.Limit()))
	if more := m.gone(m.c.SetCapacity(m.b.Limit())); more > 0 {
		m.t.Errorf("after evicting %d the limit fell again and %d more had to go", sum, more)
	}
	return sum
}

func (m *machine) pick(which func(*model) bool) *model {
	var list []*model
	for _, x := range m.models {
		if which(x) {
			list = append(list, x)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[m.r.IntN(len(list))]
}

func (m *machine) take() {
	m.clock++
	x := &model{key: fmt.Sprint(len(m.models)), weight: 1 + m.r.Int64N(m.heaviest), inside: true}
	m.models = append(m.models, x)
	m.b.Claim(x.weight)
	evicted := m.settle()
	evicted += m.gone(m.c.Put(x.key, x, x.weight, m.clock))
	evicted += m.settle()
	if evicted > 2*m.heaviest {
		m.t.Errorf("taking in %d evicted %d, though none weighs more than %d", x.weight, evicted, m.heaviest)
	}
}

func (m *machine) start() {
	x := m.pick(func(x *model) bool { return x.inside && !x.loaded })
	if x == nil {
		return
	}
	fits := m.memory()+x.weight <= m.b.Capacity()
	if got := m.b.Start(x.weight, m.c.Used()); got != fits {
		m.t.Errorf("Start(%d) = %v with %d of %d in memory", x.weight, got, m.memory(), m.b.Capacity())
	}
	x.loaded = fits
	if more := m.settle(); more > 0 {
		m.t.Errorf("the beginning of a load evicted %d", more)
	}
}

func (m *machine) resize() {
	x := m.pick(func(x *model) bool { return x.inside && x.loaded })
	if x == nil {
		return
	}
	weight := 1 + m.r.Int64N(m.heaviest)
	m.grown = m.grown || weight > x.weight
	m.b.Resize(weight-x.weight, m.c.Used())
	x.weight = weight
	evicted := m.gone(m.c.SetWeight(x.key, weight))
	if evicted += m.settle(); evicted > 3*m.heaviest {
		m.t.Errorf("growing to %d evicted %d", weight, evicted)
	}
}

func (m *machine) freed() {
	if len(m.unloading) == 0 {
		return
	}
	x := m.unloading[0]
	m.unloading = m.unloading[1:]
	x.loaded = false
	if m.r.IntN(200) == 0 {
		m.capacity -= x.weight
		m.b.Lost(x.weight)
	} else {
		m.b.Unloaded(x.weight)
	}
	m.settle()
}

// TestBufferAgainstMemory: a load begins exactly when its memory is there, evictions cause no further ones, and when all has
// been unloaded the cache may hold everything but the reserve.
func TestBufferAgainstMemory(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		capacity := 400 + r.Int64N(2000)
		m := &machine{t: t, r: r, capacity: capacity, heaviest: 1 + r.Int64N(capacity/10),
			b: NewBuffer(capacity, 1+r.IntN(6), 1+r.Int64N(100)), c: New[string, *model](0)}
		m.settle()
		do := []func(){m.take, m.take, m.start, m.start, m.start, m.freed, m.freed}
		if seed%2 == 1 {
			do = append(do, m.resize)
		}
		for step := range 300 {
			do[r.IntN(len(do))]()
			if over := m.memory() - m.capacity; over > 0 && !m.grown {
				t.Errorf("seed %d, step %d: %d more in memory than there is", seed, step, over)
			}
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
		m.drain()
	}
}

func (m *machine) drain() {
	for len(m.unloading) > 0 {
		m.freed()
	}
	for {
		x := m.pick(func(x *model) bool { return x.inside && !x.loaded })
		if x == nil {
			break
		}
		e, _ := m.c.Remove(x.key)
		m.gone([]Entry[string, *model]{e})
		m.settle()
	}
	if want := m.capacity - m.b.reserve; m.b.Limit() != want || m.b.Unfreed() != 0 || m.b.Capacity() != m.capacity {
		m.t.Errorf("with nothing under way the limit is %d of %d, want %d", m.b.Limit(), m.b.Capacity(), want)
	}
}

func TestReserve(t *testing.T) {
	for _, c := range []struct {
		capacity int64
		threads  int
		typical  int64
		want     int64
	}{
		{10000, 1, 400, 200},
		{10000, 2, 400, 400},
		{10000, 4, 400, 400},
		{10000, 8, 10, 100},    // at least a hundredth
		{10000, 8, 4000, 1000}, // at most a tenth
	} {
		if got := Reserve(c.capacity, c.threads, c.typical); got != c.want {
			t.Errorf("Reserve(%d, %d, %d) = %d, want %d", c.capacity, c.threads, c.typical, got, c.want)
		}
	}
}

func TestThresholds(t *testing.T) {
	for _, c := range []struct {
		got, want int64
		what      string
	}{
		{MinSpace(10000, 1, 100, false), 100, "one thread"},
		{MinSpace(10000, 2, 100, false), 200, "two threads without a buffer"},
		{MinSpace(10000, 2, 100, true), 200, "one model per thread"},
		{MinSpace(10000, 40, 100, true), 500, "a twentieth"},
		{MinSpace(1000, 40, 100, true), 100, "a small one"},
		{LeastCapacity(10 << 20), 100 << 20, "ten small models"},
		{LeastCapacity(100 << 20), 512 << 20, "half a gibibyte"},
		{LeastCapacity(400 << 20), 800 << 20, "two large ones"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.got, c.want)
		}
	}
}

// TestChanged wakes whoever waits for memory.
func TestChanged(t *testing.T) {
	b := NewBuffer(100, 1, 10)
	b.Unloading(60)
	b.Claim(50)
	wait := b.Changed()
	if b.Start(50, 95) {
		t.Fatal("a load began without memory")
	}
	b.Unloaded(60)
	select {
	case <-wait:
	default:
		t.Fatal("nobody was told that memory is free")
	}
	if !b.Start(50, 95) {
		t.Error("the load cannot begin though there is memory")
	}
}
