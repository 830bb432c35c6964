// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"
)

// ErrFull is that there is no room for one more counter.
var ErrFull = errors.New("there is no room for another counter of tokens")

// Memory counts in this process. It ends with it, so it is for one replica alone.
type Memory struct {
	seed   maphash.Seed
	shards [shards]shard
	now    func() time.Time
}

const (
	shards = 64
	// DefaultSize is how many counters there may be.
	DefaultSize = 200_000
	// glances is how many counters are looked at, whether they are over, whenever one is added.
	glances = 4
)

type shard struct {
	mu       sync.Mutex
	subjects map[Subject]*counter
	size     int
	swept    time.Time
}

// span is a window of a kind: limits that share them share a counter.
type span struct {
	of     Kind
	window time.Duration
}

type counter struct {
	used map[span]usage
	held [2]leased
}

type usage struct {
	tokens int64
	end    time.Time
}

// leased is what is held in one lease. Two of them are remembered, the even and the odd.
type leased struct {
	lease  int64
	tokens Tokens
}

// NewMemory has room for so many counters (DefaultSize if zero). A nil clock is time.Now.
func NewMemory(size int, now func() time.Time) *Memory {
	if size <= 0 {
		size = DefaultSize
	}
	if now == nil {
		now = time.Now
	}
	m := &Memory{seed: maphash.MakeSeed(), now: now}
	for i := range m.shards {
		m.shards[i] = shard{subjects: map[Subject]*counter{}, size: (size + shards - 1) / shards}
	}
	return m
}

func (m *Memory) shard(s Subject) *shard { return &m.shards[maphash.Comparable(m.seed, s)%shards] }

// Reserve is of Counters.
func (m *Memory) Reserve(_ context.Context, s Subject, limits []Limit, want Tokens) (Verdict, error) {
	if err := check(limits); err != nil {
		return Verdict{}, err
	}
	now, sh := m.now(), m.shard(s)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c, err := sh.counter(s, now)
	if err != nil {
		return Verdict{}, err
	}
	if v, refused := c.refuse(limits, now); refused {
		return v, nil
	}
	h := Hold{Subject: s, Limits: limits, Tokens: held(limits, want), lease: leaseAt(now)}
	c.hold(h.lease, h.Tokens, 1)
	return Verdict{Allowed: true, Hold: h}, nil
}

// Settle is of Counters.
func (m *Memory) Settle(_ context.Context, h Hold, used Tokens) error {
	if err := check(h.Limits); err != nil {
		return err
	}
	now, sh := m.now(), m.shard(h.Subject)
	used = used.whole()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c, err := sh.counter(h.Subject, now)
	if err != nil {
		return err
	}
	c.hold(h.lease, h.Tokens, -1)
	c.count(h.Limits, used, now)
	return nil
}

func leaseAt(now time.Time) int64 { return now.UnixMilli() / lease.Milliseconds() }

// counter of a subject; a new one takes the room of those that are over.
func (sh *shard) counter(s Subject, now time.Time) (*counter, error) {
	if c := sh.subjects[s]; c != nil {
		return c, nil
	}
	seen := 0
	for other, c := range sh.subjects {
		if seen++; seen > glances {
			break
		}
		sh.drop(other, c, now)
	}
	if len(sh.subjects) >= sh.size {
		sh.sweep(now)
	}
	if len(sh.subjects) >= sh.size {
		return nil, ErrFull
	}
	c := &counter{used: map[span]usage{}}
	sh.subjects[s] = c
	return c, nil
}

func (sh *shard) drop(s Subject, c *counter, now time.Time) {
	if c.over(now) {
		delete(sh.subjects, s)
	}
}

// sweep looks at all of them, but not again and again while none of them is over.
func (sh *shard) sweep(now time.Time) {
	if d := now.Sub(sh.swept); d >= 0 && d < time.Second {
		return
	}
	sh.swept = now
	for s, c := range sh.subjects {
		sh.drop(s, c, now)
	}
}

// over tells that nothing is counted and nothing is held.
func (c *counter) over(now time.Time) bool {
	for _, u := range c.used {
		if now.Before(u.end) {
			return false
		}
	}
	return c.holding(now) == Tokens{}
}

func (c *counter) holding(now time.Time) Tokens {
	var out Tokens
	for _, l := range c.held {
		if current := leaseAt(now); l.lease == current || l.lease == current-1 {
			out.Prompt += l.tokens.Prompt
			out.Completion += l.tokens.Completion
			out.Total += l.tokens.Total
		}
	}
	return out
}

// hold adds to what is held in a lease, or takes from it. What was held in a lease that is over is held no more.
func (c *counter) hold(number int64, t Tokens, sign int64) {
	l := &c.held[number&1]
	switch {
	case l.lease == number:
	case sign < 0 || l.lease > number:
		return
	default:
		*l = leased{lease: number}
	}
	l.tokens.Prompt = max(l.tokens.Prompt+sign*t.Prompt, 0)
	l.tokens.Completion = max(l.tokens.Completion+sign*t.Completion, 0)
	l.tokens.Total = max(l.tokens.Total+sign*t.Total, 0)
}

// refuse finds the limit that lasts longest of those that have nothing left.
func (c *counter) refuse(limits []Limit, now time.Time) (Verdict, bool) {
	var out Verdict
	refused := false
	holding := c.holding(now)
	for _, l := range limits {
		u := c.used[span{l.kind(), l.Window}]
		spent, wait := int64(0), l.Window // a limit of nothing is never open
		if now.Before(u.end) {
			spent, wait = u.tokens, u.end.Sub(now)
		}
		if spent+holding.of(l.kind()) < l.Tokens {
			continue
		}
		v := Verdict{Refused: l, RetryAfter: wait}
		if spent < l.Tokens {
			v.RetryAfter, v.Busy = min(busy, wait), true
		}
		if !refused || v.RetryAfter > out.RetryAfter {
			out, refused = v, true
		}
	}
	return out, refused
}

func (c *counter) count(limits []Limit, used Tokens, now time.Time) {
	counted := make(map[span]bool, len(limits))
	for _, l := range limits {
		k := span{l.kind(), l.Window}
		n := used.of(k.of)
		if n == 0 || counted[k] {
			continue
		}
		counted[k] = true
		u := c.used[k]
		if !now.Before(u.end) {
			u = usage{end: now.Add(l.Window)}
		}
		u.tokens += n
		c.used[k] = u
	}
}

// Size is how many counters there are.
func (m *Memory) Size() int {
	n := 0
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		n += len(sh.subjects)
		sh.mu.Unlock()
	}
	return n
}
