// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/postgres"
)

// TestKeyLifeCycle: whatever is done to keys in whatever order, a key is valid from its making until it is revoked or its
// time is up, and never again.
func TestKeyLifeCycle(t *testing.T) {
	everywhere(t, func(s *server) {
		w := &life{server: s, Rand: rand.New(rand.NewPCG(1, 2)), keys: map[string]*lived{}}
		for range 250 {
			w.step()
		}
		w.all()
	})
}

type lived struct {
	id, key, owner            string
	expires                   time.Time
	ended, ephemeral, removed bool
}

type life struct {
	*server
	*rand.Rand
	keys map[string]*lived
}

func (w *life) any() *lived {
	if len(w.keys) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(w.keys))
	return w.keys[ids[w.IntN(len(ids))]]
}

// expired has a margin: what is asked takes a moment.
func (w *life) expired(k *lived) bool { return w.clock.now().After(k.expires) }

func (w *life) step() {
	owner := []string{ann, bob}[w.IntN(2)]
	switch w.IntN(8) {
	case 0, 1:
		w.made(owner)
	case 2:
		if k := w.any(); k != nil {
			w.revoke(k, owner)
		}
	case 3, 4:
		if k := w.any(); k != nil {
			w.check(k)
		}
	case 5:
		w.clock.pass(time.Duration(w.IntN(20)) * time.Minute)
	case 6:
		if w.IntN(4) == 0 {
			w.revokeAll(owner)
		}
	case 7:
		w.cleanUp()
	}
}

func (w *life) made(owner string) {
	minutes, ephemeral := 1+w.IntN(55), w.IntN(3) == 0
	r := w.as(owner, "POST", "/v1/api-keys", fmt.Sprintf(`{"name":"k","subscription":"free","ephemeral":%v,"expiresIn":"%dm"}`, ephemeral, minutes)).is(w, http.StatusCreated)
	w.keys[r.get("id")] = &lived{id: r.get("id"), key: r.get("key"), owner: owner, expires: w.clock.now().Add(time.Duration(minutes) * time.Minute), ephemeral: ephemeral}
}

func (w *life) revoke(k *lived, by string) {
	want := http.StatusNotFound
	if by == k.owner && !k.ended && !k.removed && !w.expired(k) {
		want, k.ended = http.StatusOK, true
	}
	w.as(by, "DELETE", "/v1/api-keys/"+k.id, "").is(w, want)
}

func (w *life) revokeAll(owner string) {
	n := 0
	for _, k := range w.keys {
		if k.owner == owner && !k.ended && !k.removed && !w.expired(k) {
			k.ended = true
			n++
		}
	}
	w.as(owner, "POST", "/v1/api-keys/bulk-revoke", fmt.Sprintf(`{"username":%q}`, strings.TrimSuffix(owner, "-token"))).is(w, http.StatusOK, fmt.Sprintf(`"revokedCount":%d`, n))
}

func (w *life) cleanUp() {
	n := 0
	for _, k := range w.keys {
		if k.ephemeral && !k.removed && w.clock.now().Add(-cleanUpAfter).After(k.expires) {
			k.removed = true
			n++
		}
	}
	w.inside("POST", "/internal/v1/api-keys/cleanup", "").is(w, http.StatusOK, fmt.Sprintf(`"deletedCount":%d`, n))
}

func (w *life) check(k *lived) {
	want, status := `"valid":true`, `"status":"active"`
	switch {
	case k.removed:
		w.validate(k.key).is(w, http.StatusOK, "key not found")
		w.as(k.owner, "GET", "/v1/api-keys/"+k.id, "").is(w, http.StatusNotFound)
		return
	case k.ended:
		want, status = "key revoked or expired", `"status":"revoked"`
	case w.expired(k):
		want, status = "key revoked or expired", `"status":"expired"`
	}
	w.validate(k.key).is(w, http.StatusOK, want)
	w.as(k.owner, "GET", "/v1/api-keys/"+k.id, "").is(w, http.StatusOK, status)
}

func (w *life) all() {
	for _, k := range w.keys {
		w.check(k)
	}
}

// TestConcurrent: many make, check and revoke at once. A key that was confirmed to be revoked is never valid afterwards.
func TestConcurrent(t *testing.T) {
	everywhere(t, func(s *server) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 10 {
					id, key := s.make(ann, `{"name":"k"}`)
					var checks sync.WaitGroup
					var revoked atomic.Bool
					for range 3 {
						checks.Go(func() {
							for range 5 {
								before := revoked.Load()
								if r := s.validate(key); r.code != http.StatusOK || before && strings.Contains(r.text, `"valid":true`) {
									s.Errorf("a key that was revoked answers %d %s", r.code, r.text)
								}
							}
						})
					}
					s.as(ann, "DELETE", "/v1/api-keys/"+id, "").is(s, http.StatusOK)
					revoked.Store(true)
					checks.Wait()
					s.validate(key).is(s, http.StatusOK, `"valid":false`)
				}
			})
		}
		all.Wait()
	})
}

// TestOtherReplica: what one replica revokes, another refuses within a second, though it has the key in memory.
func TestOtherReplica(t *testing.T) {
	db := postgres.Start(t)
	url := db.URI("postgres") + "?sslmode=disable"
	one, two := start(t, url), start(t, url)
	warm := func(key string) {
		t.Helper()
		testkit.Eventually(t, time.Minute, "the key to be checked from memory", func() error {
			before, _, _ := two.api.Cache.Counts()
			two.validate(key).is(t, http.StatusOK, `"valid":true`)
			if after, _, _ := two.api.Cache.Counts(); after == before {
				return errors.New("it was looked up")
			}
			return nil
		})
	}
	refused := func(key, how string) {
		t.Helper()
		// The promise is about questions that come later than that. How long this machine takes to answer one is not part of it.
		began := time.Now()
		for {
			late := time.Since(began)
			if !strings.Contains(two.validate(key).is(t, http.StatusOK).text, `"valid":true`) {
				break
			}
			if late > time.Second {
				t.Fatalf("%s is accepted %s later", how, late)
			}
		}
		t.Logf("%s is refused after %s", how, time.Since(began))
	}
	for range 5 {
		id, key := one.make(ann, `{"name":"k"}`)
		warm(key)
		one.as(ann, "DELETE", "/v1/api-keys/"+id, "").is(t, http.StatusOK)
		refused(key, "a key that was revoked")
	}
	_, key := one.make(ann, `{"name":"k"}`)
	warm(key)
	db.Query(t, "postgres", "UPDATE api_keys SET status = 'revoked'")
	refused(key, "a key that an operator revoked by hand")
	_, key = one.make(ann, `{"name":"k"}`)
	warm(key)
	// The connection on which changes are told dies, and the key is revoked before there is another.
	db.Query(t, "postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_notify%' AND pid <> pg_backend_pid()")
	db.Query(t, "postgres", "UPDATE api_keys SET status = 'revoked'")
	refused(key, "a key that was revoked while nobody listened")
}

// TestDatabaseRestarts: while the database is away every answer is a clear 503, no key is let through, and afterwards all
// are there.
func TestDatabaseRestarts(t *testing.T) {
	db := postgres.Start(t)
	s := start(t, db.URI("postgres")+"?sslmode=disable")
	var mu sync.Mutex
	made, codes := map[string]bool{}, map[int]int{}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r := s.as(ann, "POST", "/v1/api-keys", `{"name":"k"}`)
				mu.Lock()
				codes[r.code]++
				if r.code == http.StatusCreated {
					made[r.get("key")] = true
				}
				mu.Unlock()
			}
		})
	}
	count := func(code int) int { mu.Lock(); defer mu.Unlock(); return codes[code] }
	grows := func(code int, what string) {
		t.Helper()
		before := count(code)
		testkit.Eventually(t, time.Minute, what, func() error {
			if count(code) < before+5 {
				return errors.New("not yet")
			}
			return nil
		})
	}
	grows(201, "keys to be made")
	db.Stop()
	grows(503, "the absence to be told")
	if r := s.as(ann, "POST", "/v1/api-keys", `{"name":"k"}`).is(t, 503, `{"error":"keys cannot be reached now`); r.header.Get("Retry-After") == "" {
		t.Error("nobody says when to try again")
	}
	s.call("GET", s.public+"/readyz", "").is(t, 503)
	s.call("GET", s.public+"/health", "").is(t, 503, "unhealthy")
	s.call("GET", s.public+"/livez", "").is(t, 200)
	testkit.Eventually(t, time.Minute, "checks to say that nobody knows", func() error {
		if r := s.validate("sk-oai-a_b"); r.code != 503 {
			return errors.New(r.text)
		}
		return nil
	})
	db.Again(t)
	grows(201, "keys to be made again")
	close(stop)
	all.Wait()
	if len(codes) != 2 {
		t.Errorf("clients were told %v; they should hear of 201 and 503 alone", codes)
	}
	for key := range made {
		s.validate(key).is(t, http.StatusOK, `"valid":true`)
	}
	s.call("GET", s.public+"/readyz", "").is(t, 200)
	t.Logf("%d keys were made, answers were %v", len(made), codes)
}

// Fuzz targets: whatever is sent, a decoder refuses it with a sentence that does not repeat it, or understands it within the rules.

func FuzzCreate(f *testing.F) {
	f.Add(`{"name":"a","expiresIn":"30d","labels":{"a":"b"}}`)
	f.Add(`{"ephemeral":true,"expiresIn":1e9}`)
	a := New(Options{MaxDays: 90, Tenant: tenantName})
	f.Fuzz(func(t *testing.T, body string) {
		var ask createRequest
		if decodeText([]byte(body), &ask, false) != nil {
			return
		}
		r, err := a.understand(&ask, Caller{Username: "ann"})
		if err != nil {
			return
		}
		if r.Name == "" || len(r.Labels) > 50 || !r.Expires.After(r.Created) || r.Expires.After(r.Created.AddDate(0, 0, 91)) || !storable(r.Name, r.Description) {
			t.Errorf("%q is understood as %+v", body, r)
		}
	})
}

func FuzzSearch(f *testing.F) {
	f.Add(`{"filters":{"status":["active"],"createdAfter":"2026-01-01T00:00:00Z"},"sort":{"by":"name"},"pagination":{"limit":3,"cursor":"eyJiIjoibmFtZSIsImkiOiIxIn0"}}`)
	f.Fuzz(func(t *testing.T, body string) {
		var ask searchRequest
		if decodeText([]byte(body), &ask, true) != nil {
			return
		}
		if q, err := ask.query(); err == nil && (q.Limit < 1 || q.Limit > largestPage || q.Offset < 0 || q.Sort == "" || q.After != nil && !storable(q.After.ID)) {
			t.Errorf("%q is understood as %+v", body, q)
		}
	})
}

func FuzzBodies(f *testing.F) {
	f.Add(`{"username":"a","groups":["b"],"requestedModel":"c","key":"sk-oai-a_b","dryRun":true}`)
	x := index()
	f.Fuzz(func(t *testing.T, body string) {
		for _, into := range []any{&selectRequest{}, &validateRequest{}, &revokeRequest{}} {
			err := decodeText([]byte(body), into, false)
			if p, ok := errors.AsType[*problem](err); err != nil && (!ok || p.code != http.StatusBadRequest) {
				t.Errorf("%q: %v", body, err)
			}
		}
		var ask selectRequest
		if json.Unmarshal([]byte(body), &ask) == nil {
			_ = x.Accessible(ask.Username, ask.Groups)
			_ = x.WithModel(ask.Username, ask.Groups, ask.RequestedModel)
		}
	})
}

func FuzzGroups(f *testing.F) {
	for _, s := range []string{`["a","b"]`, `[a b]`, `[`, `{}`, `null`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if groups, err := parseGroups(text); err == nil && len(groups) > maxGroups {
			t.Errorf("%d groups are taken", len(groups))
		}
	})
}
