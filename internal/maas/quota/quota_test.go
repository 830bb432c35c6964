// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/redis"
)

// clock of a test goes on only when it is told to.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixMilli())
	return c
}

func (c *clock) now() time.Time       { return time.UnixMilli(c.at.Load()) }
func (c *clock) pass(d time.Duration) { c.at.Add(d.Milliseconds()) }

// each runs a test over both implementations.
func each(t *testing.T, test func(t *testing.T, c Counters, at *clock)) {
	t.Run("memory", func(t *testing.T) {
		at := newClock()
		test(t, NewMemory(0, at.now), at)
	})
	t.Run("redis", func(t *testing.T) {
		at := newClock()
		r := open(t, redis.Start(t))
		r.now = at.now
		test(t, r, at)
	})
}

func open(t testing.TB, s *redis.Server) *Redis {
	t.Helper()
	r, err := OpenRedis(RedisOptions{URL: s.URL(0), Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func begin(t *testing.T, c Counters, s Subject, want int64, limits ...Limit) Verdict {
	t.Helper()
	v, err := c.Reserve(t.Context(), s, limits, Tokens{Total: want})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func end(t *testing.T, c Counters, h Hold, used int64) {
	t.Helper()
	if err := c.Settle(t.Context(), h, Tokens{Total: used}); err != nil {
		t.Fatal(err)
	}
}

var alice = Subject{"alice", "models-as-a-service/gold", "llm/granite"}

func TestWindow(t *testing.T) {
	each(t, func(t *testing.T, c Counters, at *clock) {
		limit := Limit{Tokens: 100, Window: time.Minute}
		end(t, c, begin(t, c, alice, 0, limit).Hold, 60)
		at.pass(20 * time.Second)
		// The last one that begins may go over.
		end(t, c, begin(t, c, alice, 0, limit).Hold, 60)
		v := begin(t, c, alice, 0, limit)
		if v.Allowed || v.RetryAfter != 40*time.Second || v.Busy || v.Refused != limit {
			t.Errorf("over the limit: %+v", v)
		}
		bob := alice
		bob.User = "bob"
		if !begin(t, c, bob, 0, limit).Allowed {
			t.Error("another user has a counter of their own")
		}
		silver := alice
		silver.Subscription = "models-as-a-service/silver"
		if !begin(t, c, silver, 0, limit).Allowed {
			t.Error("another subscription has a counter of its own")
		}
		at.pass(40*time.Second - time.Millisecond)
		if v := begin(t, c, alice, 0, limit); v.Allowed || v.RetryAfter != time.Millisecond {
			t.Errorf("just before the end: %+v", v)
		}
		at.pass(time.Millisecond)
		if v := begin(t, c, alice, 0, limit); !v.Allowed {
			t.Errorf("in the next window: %+v", v)
		}
	})
}

func TestEveryLimitIsChecked(t *testing.T) {
	each(t, func(t *testing.T, c Counters, at *clock) {
		limits := []Limit{{Tokens: 10, Window: time.Minute}, {Tokens: 15, Window: time.Hour}, {Tokens: 1000, Window: 24 * time.Hour}}
		end(t, c, begin(t, c, alice, 0, limits...).Hold, 10)
		if v := begin(t, c, alice, 0, limits...); v.Allowed || v.RetryAfter != time.Minute {
			t.Errorf("the shortest is used up: %+v", v)
		}
		at.pass(time.Minute)
		end(t, c, begin(t, c, alice, 0, limits...).Hold, 10)
		v := begin(t, c, alice, 0, limits...)
		if v.Allowed || v.RetryAfter != 59*time.Minute || v.Refused != limits[1] {
			t.Errorf("of two that are used up the longer one is told: %+v", v)
		}
	})
}

func TestKindsOfTokens(t *testing.T) {
	each(t, func(t *testing.T, c Counters, _ *clock) {
		limits := []Limit{{Tokens: 50, Window: time.Minute, Of: Prompt}, {Tokens: 20, Window: time.Minute, Of: Completion}}
		for range 2 {
			v, err := c.Reserve(t.Context(), alice, limits, Tokens{})
			if err != nil || !v.Allowed {
				t.Fatalf("%+v, %v", v, err)
			}
			if err := c.Settle(t.Context(), v.Hold, Tokens{Prompt: 11, Completion: 10}); err != nil {
				t.Fatal(err)
			}
		}
		v, err := c.Reserve(t.Context(), alice, limits, Tokens{})
		if err != nil || v.Allowed || v.Refused != limits[1] {
			t.Errorf("completions are used up: %+v, %v", v, err)
		}
		if v := begin(t, c, alice, 0, limits[0], Limit{Tokens: 42, Window: time.Minute}); !v.Allowed {
			t.Errorf("limits that are new count from now on: %+v", v)
		}
	})
}

func TestHolds(t *testing.T) {
	each(t, func(t *testing.T, c Counters, at *clock) {
		limit := Limit{Tokens: 1600, Window: time.Hour}
		var holds []Hold
		for v := begin(t, c, alice, 100, limit); v.Allowed; v = begin(t, c, alice, 100, limit) {
			holds = append(holds, v.Hold)
		}
		if len(holds) != share {
			t.Fatalf("%d requests ran at once, want %d", len(holds), share)
		}
		if v := begin(t, c, alice, 1, limit); !v.Busy || v.RetryAfter != time.Second {
			t.Errorf("others are in the way: %+v", v)
		}
		end(t, c, holds[0], 7)
		if v := begin(t, c, alice, 1, limit); !v.Allowed {
			t.Errorf("one is over: %+v", v)
		}
		// Whoever held the others never comes back.
		at.pass(2 * lease)
		for range share {
			if v := begin(t, c, alice, 100, limit); !v.Allowed {
				t.Fatalf("what was lost is held for longer than two leases: %+v", v)
			}
		}
		// One of them comes after all: its tokens count, and nobody's hold is taken.
		end(t, c, holds[1], 3)
		if v := begin(t, c, alice, 1, limit); v.Allowed || !v.Busy {
			t.Errorf("a late one took what others hold: %+v", v)
		}
	})
}

// TestABigOneRunsAlone: who asks for all of a limit has it while the request runs, and nobody else begins on top of it.
func TestABigOneRunsAlone(t *testing.T) {
	each(t, func(t *testing.T, c Counters, _ *clock) {
		limit := Limit{Tokens: 1600, Window: time.Hour}
		v := begin(t, c, alice, 1_000_000, limit)
		if !v.Allowed || v.Hold.Tokens.Total != limit.Tokens {
			t.Fatalf("%+v", v)
		}
		if other := begin(t, c, alice, 1, limit); other.Allowed || !other.Busy {
			t.Errorf("another began: %+v", other)
		}
		end(t, c, v.Hold, 10)
		if other := begin(t, c, alice, 1, limit); !other.Allowed {
			t.Errorf("it is over: %+v", other)
		}
	})
	if n := Guess([]Limit{{Tokens: 1600}, {Tokens: 32}}, 500); n != 2 {
		t.Errorf("a guess holds %d", n)
	}
}

func TestWhatCannotBeChecked(t *testing.T) {
	each(t, func(t *testing.T, c Counters, _ *clock) {
		for _, limits := range [][]Limit{nil, {{Tokens: 1}}, {{Tokens: -1, Window: time.Minute}}, {{Tokens: 1, Window: 9999 * time.Hour}}, {{Tokens: 1, Window: time.Minute, Of: 'x'}}, make([]Limit, 33)} {
			if v, err := c.Reserve(t.Context(), alice, limits, Tokens{}); !errors.Is(err, ErrLimits) || v.Allowed {
				t.Errorf("%v: %+v, %v", limits, v, err)
			}
		}
		if v := begin(t, c, alice, 0, Limit{Tokens: 0, Window: time.Minute}); v.Allowed || v.RetryAfter != time.Minute {
			t.Errorf("a limit of nothing: %+v", v)
		}
		// Nonsense in an answer neither gives tokens back nor overflows.
		limit := Limit{Tokens: 10, Window: time.Minute}
		h := begin(t, c, alice, 0, limit).Hold
		end(t, c, h, -5)
		for range 20 {
			end(t, c, h, 1<<62)
		}
		if v := begin(t, c, alice, 0, limit); v.Allowed {
			t.Errorf("%+v", v)
		}
	})
}

// naive is what a counter should be: a list of all that happened.
type naive struct {
	spent map[span][]spending
	holds map[int]spending
}

type spending struct {
	tokens int64
	end    time.Time
}

func (n *naive) refuses(limits []Limit, now time.Time) bool {
	var holding int64
	for _, h := range n.holds {
		holding += h.tokens
	}
	for _, l := range limits {
		sum := holding
		for _, s := range n.spent[span{Total, l.Window}] {
			if now.Before(s.end) {
				sum += s.tokens
			}
		}
		if sum >= l.Tokens {
			return true
		}
	}
	return false
}

func (n *naive) settle(limits []Limit, used int64, now time.Time) {
	for _, l := range limits {
		k := span{Total, l.Window}
		ends := now.Add(l.Window)
		for _, s := range n.spent[k] {
			if now.Before(s.end) {
				ends = s.end
			}
		}
		n.spent[k] = append(n.spent[k], spending{used, ends})
	}
}

// TestLikeANaiveCounter compares with lists of everything, for random requests. Time passes in steps that are shorter than a
// lease, and nothing runs for longer than one, so that every hold counts.
func TestLikeANaiveCounter(t *testing.T) {
	each(t, func(t *testing.T, c Counters, at *clock) {
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test that can be repeated
		limits := []Limit{{Tokens: 200, Window: 7 * time.Second}, {Tokens: 900, Window: time.Minute}, {Tokens: 3000, Window: 10 * time.Minute}}
		subjects := []Subject{alice, {"bob", alice.Subscription, alice.Model}, {"alice", alice.Subscription, "llm/other"}}
		naives := map[Subject]*naive{}
		for _, s := range subjects {
			naives[s] = &naive{map[span][]spending{}, map[int]spending{}}
		}
		running := map[int]Verdict{}
		refused, allowed := 0, 0
		for i := range 1500 {
			s := subjects[random.IntN(len(subjects))]
			n := naives[s]
			if random.IntN(3) == 0 {
				at.pass(time.Duration(random.IntN(1500)) * time.Millisecond)
			}
			if random.IntN(2) == 0 {
				for id, v := range running {
					if v.Hold.Subject != s {
						continue
					}
					used := random.Int64N(60) + 1
					end(t, c, v.Hold, used)
					n.settle(limits, used, at.now())
					delete(n.holds, id)
					delete(running, id)
					break
				}
				continue
			}
			v, want := begin(t, c, s, random.Int64N(30), limits...), !n.refuses(limits, at.now())
			if v.Allowed != want {
				t.Fatalf("step %d: allowed %t, want %t: %+v", i, v.Allowed, want, v)
			}
			if !v.Allowed {
				refused++
				continue
			}
			allowed++
			running[i] = v
			n.holds[i] = spending{tokens: v.Hold.Tokens.Total}
		}
		if refused < 50 || allowed < 50 {
			t.Errorf("%d refused, %d allowed: the test shows nothing", refused, allowed)
		}
	})
}

// TestManyAtOnce: however many come at once, no more begin than the limit has room for by what they hold, and every token
// that they use is counted.
func TestManyAtOnce(t *testing.T) {
	each(t, func(t *testing.T, c Counters, _ *clock) {
		limit := Limit{Tokens: 3200, Window: time.Hour}
		var all sync.WaitGroup
		var began, used atomic.Int64
		holds := make(chan Hold, 1000)
		for range 20 {
			all.Go(func() {
				for range 20 {
					v, err := c.Reserve(context.Background(), alice, []Limit{limit}, Tokens{Total: 200})
					if err != nil {
						t.Error(err)
					} else if v.Allowed {
						began.Add(1)
						holds <- v.Hold
					}
				}
			})
		}
		all.Wait()
		close(holds)
		if began.Load() != share {
			t.Errorf("%d began at once, want %d", began.Load(), share)
		}
		for h := range holds {
			all.Go(func() {
				used.Add(100)
				if err := c.Settle(context.Background(), h, Tokens{Total: 100}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		rest := limit.Tokens - used.Load()
		end(t, c, begin(t, c, alice, 0, limit).Hold, rest-1)
		h := begin(t, c, alice, 0, limit)
		if !h.Allowed {
			t.Fatal("one token is left")
		}
		end(t, c, h.Hold, 1)
		if begin(t, c, alice, 0, limit).Allowed {
			t.Error("no token is left")
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	at := newClock()
	m := NewMemory(shards, at.now)
	limit := Limit{Tokens: 10, Window: time.Minute}
	var full int
	for i := range 1000 {
		v, err := m.Reserve(t.Context(), Subject{User: fmt.Sprint(i)}, []Limit{limit}, Tokens{})
		if errors.Is(err, ErrFull) {
			full++
			continue
		}
		if err := m.Settle(t.Context(), v.Hold, Tokens{Total: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if full == 0 || m.Size() > shards {
		t.Errorf("%d counters, %d had no room", m.Size(), full)
	}
	at.pass(time.Minute)
	for i := range shards {
		if _, err := m.Reserve(t.Context(), Subject{User: fmt.Sprint("new", i)}, []Limit{limit}, Tokens{Total: 1}); err != nil && m.Size() < shards/2 {
			t.Errorf("counters that are over take room: %v", err)
		}
	}
	if _, err := m.Reserve(t.Context(), Subject{User: "one more"}, []Limit{limit}, Tokens{}); err != nil && !errors.Is(err, ErrFull) {
		t.Error(err)
	}
}

func TestRedisForgetsWhatIsOver(t *testing.T) {
	r := open(t, redis.Start(t))
	v := begin(t, r, alice, 10, Limit{Tokens: 100, Window: time.Hour})
	end(t, r, v.Hold, 10)
	ttl, err := r.client.PTTL(t.Context(), r.key(alice)).Result()
	if err != nil || ttl <= 59*time.Minute || ttl > time.Hour {
		t.Errorf("it goes in %s, %v; want the end of the window", ttl, err)
	}
	fields, err := r.client.HGetAll(t.Context(), r.key(alice)).Result()
	if err != nil || len(fields) != 2 {
		t.Errorf("it has %v, %v; want a sum and an end", fields, err)
	}
}

func TestTheServerGoesAndComesBack(t *testing.T) {
	server := redis.Start(t)
	r := open(t, server)
	limits := []Limit{{Tokens: 100, Window: time.Hour}}
	strict, lenient := NewLedger(r, LedgerOptions{}), NewLedger(r, LedgerOptions{Allow: true})
	v, err := strict.Reserve(t.Context(), alice, limits, Tokens{})
	if err != nil || !v.Allowed {
		t.Fatalf("%+v, %v", v, err)
	}
	server.Stop()
	for range 5 {
		if v, err := strict.Reserve(t.Context(), alice, limits, Tokens{}); err == nil || v.Allowed {
			t.Fatalf("without a server: %+v, %v", v, err)
		}
	}
	if v, err := lenient.Reserve(t.Context(), alice, nil, Tokens{}); err == nil || v.Allowed {
		t.Errorf("limits that cannot be checked: %+v, %v", v, err)
	}
	free, err := lenient.Reserve(t.Context(), alice, limits, Tokens{})
	if err != nil || !free.Allowed {
		t.Fatalf("it was to be let through: %+v, %v", free, err)
	}
	strict.Settle(v.Hold, Tokens{Total: 60})
	lenient.Settle(free.Hold, Tokens{Total: 40})
	if strict.Owed() != 1 || lenient.Owed() != 1 {
		t.Errorf("owed: %d and %d", strict.Owed(), lenient.Owed())
	}
	server.Again(t)
	for _, l := range []*Ledger{strict, lenient} {
		testkit.Eventually(t, 30*time.Second, "debts to be paid", func() error {
			if l.pay(t.Context()); l.Owed() > 0 {
				return errors.New("it is still owed")
			}
			return nil
		})
	}
	if v, err := strict.Reserve(t.Context(), alice, limits, Tokens{}); err != nil || v.Allowed {
		t.Errorf("what was used meanwhile is not counted: %+v, %v", v, err)
	}
}

func TestTheLedgerPaysWhenItEnds(t *testing.T) {
	counters := &forgetful{Memory: NewMemory(0, nil)}
	counters.away.Store(true)
	l := NewLedger(counters, LedgerOptions{})
	limits := []Limit{{Tokens: 10, Window: time.Hour}}
	l.Settle(Hold{Subject: alice, Limits: limits}, Tokens{Total: 10})
	counters.away.Store(false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Run(ctx); err != nil || l.Owed() != 0 {
		t.Errorf("%v, %d owed", err, l.Owed())
	}
	if v, err := l.Reserve(t.Context(), alice, limits, Tokens{}); err != nil || v.Allowed {
		t.Errorf("%+v, %v", v, err)
	}
}

// forgetful counters can be away.
type forgetful struct {
	*Memory
	away atomic.Bool
}

func (f *forgetful) Settle(ctx context.Context, h Hold, used Tokens) error {
	if f.away.Load() {
		return ErrAway
	}
	return f.Memory.Settle(ctx, h, used)
}

func TestParseWindow(t *testing.T) {
	for text, want := range map[string]time.Duration{"1s": time.Second, "5m": 5 * time.Minute, "24h": 24 * time.Hour, "8784h": longest, "9999s": 9999 * time.Second} {
		if got, err := ParseWindow(text); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0s", "01m", "1d", "10000s", "8785h", "9999h", "-1m", "1m ", "1m30s", "１m", "+1m", "1_0m", "m", "00001s"} {
		if got, err := ParseWindow(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

func TestAddressesAreNotShown(t *testing.T) {
	_, err := OpenRedis(RedisOptions{URL: "redis://user:hunter2@host:port:1/x"})
	if err == nil || errors.Is(err, ErrAway) || len(err.Error()) == 0 {
		t.Fatal(err)
	}
	if got := err.Error(); strings.Contains(got, "hunter2") {
		t.Error(got)
	}
}
