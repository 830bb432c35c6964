// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNotFound is a key of which nothing is stored.
var ErrNotFound = errors.New("there is no such key")

// Finder looks a key up by what may be stored of it; ErrNotFound if nothing is.
type Finder interface {
	Find(ctx context.Context, tenant string, digests []string) (*Record, error)
}

// Cache checks keys, and asks the store only about those that it does not know. It believes what it knows as long as it
// is told of changes: Forget and ForgetAll when something changed, and Trust again and again by whoever listens, for as
// long as a change cannot have been missed. Without Trust every check asks the store, so that a key that was revoked is never
// accepted for longer than the last trust lasts.
type Cache struct {
	finder Finder
	digest *Digester
	tenant string
	size   int
	now    func() time.Time
	used   func(id string, at time.Time)
	// debounce is the least time between two reports of one key's use.
	debounce time.Duration

	trusted atomic.Int64 // until when, in nanoseconds of now
	changes atomic.Uint64

	hits, misses atomic.Uint64

	lookups chan struct{}

	mu    sync.RWMutex
	known map[[sha256.Size]byte]*entry
	byID  map[string][sha256.Size]byte
	// unknown are keys of which nothing was stored a moment ago, until when that is believed.
	unknown map[[sha256.Size]byte]time.Time
}

const (
	// believeUnknown is short: a key may be written by hand into the database.
	believeUnknown, maxUnknown = time.Second, 20_000
	// maxLookups is how many keys are looked up at once; a store has more connections than that, for other questions.
	maxLookups = 16
)

type entry struct {
	record *Record
	noted  atomic.Int64 // when its use was told last
}

// CacheOptions of a Cache; zero fields have a meaning.
type CacheOptions struct {
	// Tenant whose keys are accepted.
	Tenant string
	// Size is how many keys are remembered (100,000 if zero).
	Size int
	// Used is told when a valid key is used, at most once in Debounce for each key. It must not block.
	Used     func(id string, at time.Time)
	Debounce time.Duration
	// Now is time.Now if nil.
	Now func() time.Time
}

// NewCache asks a finder about keys that it does not know.
func NewCache(finder Finder, digester *Digester, o CacheOptions) *Cache {
	c := &Cache{
		finder: finder, digest: digester, tenant: o.Tenant, size: o.Size, now: o.Now, used: o.Used, debounce: o.Debounce,
		known: map[[sha256.Size]byte]*entry{}, byID: map[string][sha256.Size]byte{}, unknown: map[[sha256.Size]byte]time.Time{},
		lookups: make(chan struct{}, maxLookups),
	}
	if c.size <= 0 {
		c.size = 100_000
	}
	if c.now == nil {
		c.now = time.Now
	}
	return c
}

// Validate tells whether a text is a key that may be used now. An error means that nobody could say: the request must
// not be let through, and may be tried again.
func (c *Cache) Validate(ctx context.Context, text string) (Verdict, error) {
	key, err := Parse(text)
	if err != nil {
		return Verdict{Reason: ReasonFormat}, nil //nolint:nilerr // the answer is that it is none
	}
	mark := markOf(key)
	if e := c.recall(mark); e != nil {
		c.hits.Add(1)
		return c.tell(e, e.record.verdict(c.now())), nil
	}
	if c.isUnknown(mark) {
		c.hits.Add(1)
		return Verdict{Reason: ReasonUnknown}, nil
	}
	c.misses.Add(1)
	before := c.changes.Load()
	record, err := c.find(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		c.missed(mark, before)
		return Verdict{Reason: ReasonUnknown}, nil
	case err != nil:
		return Verdict{}, err
	case !c.digest.Matches(record.Digest, key) || record.Tenant != c.tenant:
		return Verdict{Reason: ReasonUnknown}, nil
	}
	e := &entry{record: record}
	if !record.LastUsed.IsZero() {
		e.noted.Store(record.LastUsed.UnixNano())
	}
	c.remember(mark, e, before)
	return c.tell(e, record.verdict(c.now())), nil
}

// find looks a key up when it is its turn.
func (c *Cache) find(ctx context.Context, key Key) (*Record, error) {
	select {
	case c.lookups <- struct{}{}:
		defer func() { <-c.lookups }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return c.finder.Find(ctx, c.tenant, c.digest.Candidates(key))
}

func (c *Cache) isUnknown(mark [sha256.Size]byte) bool {
	now := c.now()
	if now.UnixNano() >= c.trusted.Load() {
		return false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return now.Before(c.unknown[mark])
}

// missed remembers that nothing is stored of a key, apart from those that are known: wrong ones take no room of good ones.
func (c *Cache) missed(mark [sha256.Size]byte, before uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes.Load() != before {
		return
	}
	for old := range c.unknown {
		if len(c.unknown) < maxUnknown {
			break
		}
		delete(c.unknown, old)
	}
	c.unknown[mark] = c.now().Add(believeUnknown)
}

// markOf is by what a key is remembered: not the key itself, which a dump of the memory would show.
func markOf(k Key) [sha256.Size]byte { return sha256.Sum256(message(k)) }

// tell reports the use of a valid key.
func (c *Cache) tell(e *entry, v Verdict) Verdict {
	if !v.Valid || c.used == nil {
		return v
	}
	now := c.now()
	noted := e.noted.Load()
	if now.UnixNano()-noted >= int64(c.debounce) && e.noted.CompareAndSwap(noted, now.UnixNano()) {
		c.used(e.record.ID, now)
	}
	return v
}

func (c *Cache) recall(mark [sha256.Size]byte) *entry {
	if c.now().UnixNano() >= c.trusted.Load() {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.known[mark]
}

// remember keeps what was found, unless something changed since it was asked for.
func (c *Cache) remember(mark [sha256.Size]byte, e *entry, before uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes.Load() != before {
		return
	}
	for old, was := range c.known { // any will do: whoever is forgotten is asked for again
		if len(c.known) < c.size {
			break
		}
		delete(c.known, old)
		delete(c.byID, was.record.ID)
	}
	c.known[mark] = e
	c.byID[e.record.ID] = mark
}

// Trust lets the cache believe itself until a time.
func (c *Cache) Trust(until time.Time) { c.trusted.Store(until.UnixNano()) }

// Forget drops a key that changed.
func (c *Cache) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes.Add(1)
	if mark, ok := c.byID[id]; ok {
		delete(c.known, mark)
		delete(c.byID, id)
	}
}

// ForgetAll drops everything.
func (c *Cache) ForgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes.Add(1)
	clear(c.known)
	clear(c.byID)
	clear(c.unknown)
}

// Counts are for metrics: checks answered from memory, checks that asked the store, and keys in memory.
func (c *Cache) Counts() (hits, misses uint64, known int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.hits.Load(), c.misses.Load(), len(c.known)
}
