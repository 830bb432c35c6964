// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// shelf is a store in memory that counts questions.
type shelf struct {
	mu      sync.Mutex
	records map[string]*Record // by digest
	asked   int
	away    error
	// during is called when something was found, before it is handed over.
	during func()
}

func (s *shelf) Find(_ context.Context, tenant string, digests []string) (*Record, error) {
	s.mu.Lock()
	s.asked++
	var found *Record
	for _, d := range digests {
		if r := s.records[d]; r != nil && r.Tenant == tenant {
			c := *r
			found = &c
		}
	}
	away, during := s.away, s.during
	s.mu.Unlock()
	if during != nil {
		during()
	}
	switch {
	case away != nil:
		return nil, away
	case found == nil:
		return nil, ErrNotFound
	}
	return found, nil
}

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }

func (c *clock) pass(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.at = c.at.Add(d) }

type fixture struct {
	*testing.T
	*Cache
	shelf *shelf
	clock *clock
	used  []string
}

func newFixture(t *testing.T, size int) *fixture {
	t.Helper()
	d, err := NewDigester(nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, shelf: &shelf{records: map[string]*Record{}}, clock: &clock{at: time.Unix(1_000_000, 0)}}
	f.Cache = NewCache(f.shelf, d, CacheOptions{
		Tenant: "t", Size: size, Debounce: time.Minute, Now: f.clock.now,
		Used: func(id string, _ time.Time) { f.used = append(f.used, id) },
	})
	f.Trust(f.clock.now().Add(time.Hour))
	return f
}

// keep stores a key of an id and gives its text.
func (f *fixture) keep(id string) string {
	f.Helper()
	k, err := Mint()
	if err != nil {
		f.Fatal(err)
	}
	r := &Record{ID: id, Tenant: "t", Subscription: "s", Stored: Active, Digest: f.digest.Digest(k), Expires: f.clock.now().Add(24 * time.Hour)}
	f.shelf.mu.Lock()
	defer f.shelf.mu.Unlock()
	f.shelf.records[r.Digest] = r
	return k.Reveal()
}

func (f *fixture) set(id string, change func(*Record)) {
	f.shelf.mu.Lock()
	defer f.shelf.mu.Unlock()
	for _, r := range f.shelf.records {
		if r.ID == id {
			change(r)
		}
	}
}

func (f *fixture) is(text, reason string, asked int, when string) {
	f.Helper()
	before := f.shelf.asked
	v, err := f.Validate(f.Context(), text)
	if err != nil || v.Reason != reason || v.Valid != (reason == "") || v.Valid != (v.Record != nil) {
		f.Errorf("%s it is %+v (%v), not %q", when, v, err, reason)
	}
	if got := f.shelf.asked - before; got != asked {
		f.Errorf("%s the store is asked %d times, not %d", when, got, asked)
	}
}

func TestCache(t *testing.T) {
	f := newFixture(t, 10)
	key := f.keep("1")
	f.is("nonsense", ReasonFormat, 0, "what is no key")
	f.is("sk-oai-a_b", ReasonUnknown, 1, "an unknown key")
	f.is(key, "", 1, "at first")
	f.is(key, "", 0, "at second")
	f.set("1", func(r *Record) { r.Stored = Revoked })
	f.Forget("1")
	f.is(key, ReasonEnded, 1, "after its revocation")
	f.is(key, ReasonEnded, 0, "again")

	second := f.keep("2")
	f.is(second, "", 1, "another one")
	f.clock.pass(2 * time.Hour)
	f.set("2", func(r *Record) { r.Stored = Revoked }) // and nobody tells
	f.is(second, ReasonEnded, 1, "when nobody listens any more")

	third := f.keep("3")
	f.Trust(f.clock.now().Add(100 * time.Hour))
	f.is(third, "", 1, "a third")
	f.clock.pass(25 * time.Hour)
	f.is(third, ReasonEnded, 0, "when it has expired")

	f.set("3", func(r *Record) { r.Expires, r.Subscription = time.Time{}, "" })
	f.ForgetAll()
	f.is(third, ReasonNoSubscription, 1, "without a subscription")

	theirs := f.keep("4")
	f.set("4", func(r *Record) { r.Tenant = "another" })
	f.is(theirs, ReasonUnknown, 1, "of another tenant")

	f.clock.pass(believeUnknown)
	f.shelf.away = errors.New("away")
	if v, err := f.Validate(t.Context(), theirs); err == nil || v.Valid {
		t.Errorf("without a store it is %+v", v)
	}
}

// TestChangeWhileAsking: a key that is revoked between the answer of the store and its being remembered is not remembered.
func TestChangeWhileAsking(t *testing.T) {
	f := newFixture(t, 10)
	key := f.keep("1")
	f.shelf.during = func() {
		f.set("1", func(r *Record) { r.Stored = Revoked })
		f.Forget("1")
	}
	if _, err := f.Validate(t.Context(), key); err != nil { // it was valid when it was asked
		t.Fatal(err)
	}
	f.shelf.during = nil
	f.is(key, ReasonEnded, 1, "after its revocation")
}

func TestCacheIsBounded(t *testing.T) {
	f := newFixture(t, 10)
	for i := range 100 {
		f.is(f.keep(fmt.Sprint(i)), "", 1, "a new key")
	}
	if _, _, known := f.Counts(); known != 10 || len(f.byID) != 10 {
		t.Errorf("%d keys are remembered, and %d ids", known, len(f.byID))
	}
}

// TestUsedIsToldRarely: once a minute, and only of keys that were let through.
func TestUsedIsToldRarely(t *testing.T) {
	f := newFixture(t, 10)
	key, revoked := f.keep("1"), f.keep("2")
	f.set("2", func(r *Record) { r.Stored = Revoked })
	for range 6 {
		f.is(revoked, ReasonEnded, f.first(revoked), "a revoked key")
		f.is(key, "", f.first(key), "a valid key")
		f.clock.pass(20 * time.Second)
	}
	if !slices.Equal(f.used, []string{"1", "1"}) {
		t.Errorf("told were %v", f.used)
	}
}

// first is 1 for a key that the cache does not know yet.
func (f *fixture) first(text string) int {
	k, err := Parse(text)
	if err != nil {
		f.Fatal(err)
	}
	if f.recall(markOf(k)) == nil {
		return 1
	}
	return 0
}

func BenchmarkValidate(b *testing.B) {
	d, err := NewDigester(nil)
	if err != nil {
		b.Fatal(err)
	}
	k, err := Mint()
	if err != nil {
		b.Fatal(err)
	}
	s := &shelf{records: map[string]*Record{d.Digest(k): {ID: "1", Tenant: "t", Subscription: "s", Stored: Active, Digest: d.Digest(k)}}}
	c := NewCache(s, d, CacheOptions{Tenant: "t"})
	c.Trust(time.Now().Add(time.Hour))
	text := k.Reveal()
	b.ReportAllocs()
	for b.Loop() {
		if v, err := c.Validate(b.Context(), text); err != nil || !v.Valid {
			b.Fatal(v, err)
		}
	}
}

// TestUnknownKeys: one that nobody has is looked up once in a while, takes no room of good ones, and does not fill the store's
// connections.
func TestUnknownKeys(t *testing.T) {
	f := newFixture(t, 0)
	good := f.keep("1")
	f.is(good, "", 1, "at first")
	stranger, err := Mint()
	if err != nil {
		t.Fatal(err)
	}
	f.is(stranger.Reveal(), ReasonUnknown, 1, "at first")
	f.is(stranger.Reveal(), ReasonUnknown, 0, "a moment later")
	f.clock.pass(believeUnknown)
	f.is(stranger.Reveal(), ReasonUnknown, 1, "later")
	f.ForgetAll()
	f.is(stranger.Reveal(), ReasonUnknown, 1, "when something changed")
	f.Trust(f.clock.now())
	f.is(stranger.Reveal(), ReasonUnknown, 1, "when nobody hears of changes")
	f.Trust(f.clock.now().Add(time.Hour))
	f.is(good, "", 1, "when all was forgotten")
	for range maxUnknown + 10 {
		k, err := Mint()
		if err != nil {
			t.Fatal(err)
		}
		f.is(k.Reveal(), ReasonUnknown, 1, "of many")
	}
	if len(f.unknown) != maxUnknown {
		t.Errorf("%d unknown keys are remembered", len(f.unknown))
	}
	f.is(good, "", 0, "after many wrong ones")

	var mu sync.Mutex
	underWay, most := 0, 0
	f.shelf.during = func() {
		mu.Lock()
		underWay++
		most = max(most, underWay)
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
		underWay--
		mu.Unlock()
	}
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if k, err := Mint(); err != nil {
				t.Error(err)
			} else if v, err := f.Validate(context.Background(), k.Reveal()); err != nil || v.Valid {
				t.Error(v, err)
			}
		})
	}
	all.Wait()
	if most > maxLookups {
		t.Errorf("%d keys were looked up at once", most)
	}
}
