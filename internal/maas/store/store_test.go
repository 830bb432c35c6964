// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/maas/keys"
	"github.com/modelplane/modelplane/internal/testkit"
	pgserver "github.com/modelplane/modelplane/internal/testkit/postgres"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const tenant = "acme"

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// everywhere runs a test on both databases.
func everywhere(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, open(t, "sqlite://"+filepath.Join(t.TempDir(), "a file?.db")))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, open(t, pgserver.Shared(t)+"?sslmode=disable"))
	})
}

func open(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{URL: url, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func record(id, user, subscription string, created time.Duration) *keys.Record {
	return &keys.Record{
		ID: id, Tenant: tenant, Username: user, Name: "name of " + id, Groups: []string{"a", `b"{},\`}, Subscription: subscription,
		Stored: keys.Active, Created: start.Add(created), Expires: start.Add(24 * time.Hour), Digest: "digest of " + id,
	}
}

func keep(t *testing.T, s *Store, records ...*keys.Record) {
	t.Helper()
	for _, r := range records {
		if err := s.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStore walks through all that can be done with keys.
func TestStore(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		t.Run("life of a key", func(t *testing.T) { lifeOfAKey(t, s) })
		t.Run("search", func(t *testing.T) { search(t, s) })
		t.Run("pages", func(t *testing.T) { pages(t, s) })
		t.Run("metacharacters", func(t *testing.T) { metacharacters(t, s) })
		t.Run("watch", func(t *testing.T) { watch(t, s) })
		t.Run("used", func(t *testing.T) { used(t, s) })
	})
}

func lifeOfAKey(t *testing.T, s *Store) {
	r := record("life", "ann", "gold", 0)
	r.Description, r.Labels, r.Ephemeral = "for a test", map[string]string{"a/b": "c d"}, true
	keep(t, s, r)
	if err := s.Create(t.Context(), r); err == nil {
		t.Error("a second one with the same id is taken")
	}
	got, err := s.Find(t.Context(), tenant, []string{"no", r.Digest})
	if diff := cmp.Diff(r, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for what, ask := range map[string]func() (*keys.Record, error){
		"an unknown digest":         func() (*keys.Record, error) { return s.Find(t.Context(), tenant, []string{"no"}) },
		"the digest elsewhere":      func() (*keys.Record, error) { return s.Find(t.Context(), "other", []string{r.Digest}) },
		"the id elsewhere":          func() (*keys.Record, error) { return s.Get(t.Context(), "other", r.ID) },
		"the revocation elsewhere":  func() (*keys.Record, error) { return s.Revoke(t.Context(), "other", r.ID, start) },
		"revoking an expired one":   func() (*keys.Record, error) { return s.Revoke(t.Context(), tenant, r.ID, r.Expires) },
		"revoking one not there":    func() (*keys.Record, error) { return s.Revoke(t.Context(), tenant, "no", start) },
		"a digest that is a number": func() (*keys.Record, error) { return s.Get(t.Context(), tenant, "0") },
	} {
		if got, err := ask(); !errors.Is(err, keys.ErrNotFound) {
			t.Errorf("%s: %v (%v)", what, got, err)
		}
	}
	if got, err := s.Revoke(t.Context(), tenant, r.ID, start); err != nil || got.Stored != keys.Revoked {
		t.Errorf("revoked it is %+v (%v)", got, err)
	}
	if _, err := s.Revoke(t.Context(), tenant, r.ID, start); !errors.Is(err, keys.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
	if n, err := s.CleanUp(t.Context(), tenant, r.Expires); n != 0 || err != nil {
		t.Errorf("%d are removed before their time (%v)", n, err)
	}
	if n, err := s.CleanUp(t.Context(), tenant, r.Expires.Add(time.Second)); n != 1 || err != nil {
		t.Errorf("%d are removed (%v)", n, err)
	}
}

func search(t *testing.T, s *Store) {
	yes, no := true, false
	expired, revoked, short, labelled := record("s2", "bob", "gold", 2*time.Hour), record("s3", "ann", "gold", 3*time.Hour), record("s4", "ann", "tin", 4*time.Hour), record("s5", "ann", "tin", 5*time.Hour)
	expired.Expires, revoked.Stored, short.Ephemeral = start.Add(time.Minute), keys.Revoked, true
	labelled.Labels, labelled.Expires, labelled.Description, labelled.LastUsed = map[string]string{"team": "x", "env": "100%_"}, time.Time{}, "Nightly RUN", start.Add(time.Hour)
	keep(t, s, record("s1", "ann", "gold", time.Hour), expired, revoked, short, labelled)
	now := start.Add(2 * time.Hour)
	for want, ask := range map[string]Query{
		"s5 s3 s2 s1":    {},
		"s5 s4 s3 s2 s1": {IncludeEphemeral: true},
		"s5 s3 s1":       {Username: "ann"},
		"s3 s2 s1":       {Subscription: "gold"},
		"s5 s1":          {Statuses: []keys.Status{keys.Active}},
		"s2":             {Statuses: []keys.Status{keys.Expired}},
		"s3 s2":          {Statuses: []keys.Status{keys.Revoked, keys.Expired}},
		"s5":             {Labels: map[string]string{"team": "x", "env": "100%_"}},
		"":               {Labels: map[string]string{"team": "y"}},
		"s5 s3":          {CreatedAfter: start.Add(2 * time.Hour)},
		"s1":             {CreatedBefore: start.Add(2 * time.Hour)},
		"s3 s1":          {ExpiresAfter: start.Add(time.Hour)},
		"s2 ":            {ExpiresBefore: start.Add(time.Hour)},
		"s5 ":            {LastUsedAfter: start},
		"s5  ":           {HasExpiration: &no},
		"s3 s2 s1 ":      {HasExpiration: &yes},
		"s5   ":          {HasBeenUsed: &yes},
		"s3 s2 s1  ":     {HasBeenUsed: &no},
		"s1 ":            {NameContains: "OF S1"},
		"s5    ":         {DescriptionContains: "nightly run"},
		"s1 s2 s3 s5":    {Ascending: true},
		"s5 s3 s2 s1 ":   {Sort: ByName},
		"s2 s3 s1 s5":    {Sort: ByExpires, Ascending: true},
		"s5 s3 s2 s1  ":  {Sort: ByLastUsed, Ascending: true},
		"s1 s3 s2 s5":    {Sort: ByExpires},
		"s3 s2 ":         {Offset: 1, Limit: 2},
	} {
		want = strings.TrimSpace(want)
		ask.Tenant, ask.Now = tenant, now
		if ask.Limit == 0 {
			ask.Limit = 10
		}
		got, more, err := s.Search(t.Context(), ask)
		if err != nil || more != (ask.Limit == 2) {
			t.Errorf("%+v: more is %v (%v)", ask, more, err)
		}
		if ids(got) != want {
			t.Errorf("%+v finds %q, not %q", ask, ids(got), want)
		}
	}
	if n, err := s.CountActive(t.Context(), Scope{tenant, "ann", "gold"}, now); n != 1 || err != nil {
		t.Errorf("%d are counted (%v)", n, err)
	}
	if n, err := s.RevokeAll(t.Context(), Scope{Tenant: tenant}, now); n != 3 || err != nil {
		t.Errorf("%d are revoked (%v)", n, err)
	}
}

func ids(found []*keys.Record) string {
	var out []string
	for _, r := range found {
		out = append(out, r.ID)
	}
	return strings.Join(out, " ")
}

// pages: walking by positions sees every key once in every order, values that are the same or missing included.
func pages(t *testing.T, s *Store) {
	all := map[string]bool{}
	for i := range 23 {
		r := record(fmt.Sprintf("p%02d", i), "pager", "gold", time.Duration(i%5)*time.Minute)
		r.Name = fmt.Sprint("same", i%3)
		if i%4 == 0 {
			r.Expires = time.Time{}
		}
		if i%3 == 0 {
			r.LastUsed = start.Add(time.Duration(i%2) * time.Second)
		}
		keep(t, s, r)
		all[r.ID] = true
	}
	for _, by := range []Sort{ByCreated, ByExpires, ByLastUsed, ByName} {
		for _, ascending := range []bool{true, false} {
			ask := Query{Tenant: tenant, Username: "pager", Sort: by, Ascending: ascending, Limit: 100}
			whole, _, err := s.Search(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			var walked []*keys.Record
			ask.Limit = 4
			for more := true; more; {
				var page []*keys.Record
				if page, more, err = s.Search(t.Context(), ask); err != nil || len(page) == 0 {
					t.Fatal(err, len(page))
				}
				walked = append(walked, page...)
				position := PositionOf(page[len(page)-1], by)
				ask.After = &position
			}
			if ids(walked) != ids(whole) || len(whole) != len(all) {
				t.Errorf("by %s: %s\n is walked as %s", by, ids(whole), ids(walked))
			}
		}
	}
}

// metacharacters mean nothing.
func metacharacters(t *testing.T, s *Store) {
	for i, evil := range []string{`'; DROP TABLE api_keys; --`, `" OR ""="`, `%`, `_`, `\`, `$1`, `{"a":1}`, "\u202e", `*/ --`} {
		r := record(fmt.Sprint("e", i), evil, evil, 0)
		r.Name, r.Description, r.Labels, r.Groups = evil, evil, map[string]string{"k": evil}, []string{evil, "x,y", "NULL", ""}
		keep(t, s, r)
		got, _, err := s.Search(t.Context(), Query{
			Tenant: tenant, Username: evil, Subscription: evil, NameContains: evil, DescriptionContains: evil, Labels: r.Labels, Limit: 10, Now: start,
		})
		if err != nil || len(got) != 1 || cmp.Diff(r, got[0]) != "" {
			t.Errorf("%q: %v %s", evil, err, cmp.Diff([]*keys.Record{r}, got))
		}
		if n, err := s.RevokeAll(t.Context(), Scope{tenant, evil, evil}, start); n != 1 || err != nil {
			t.Errorf("%q: %d are revoked (%v)", evil, n, err)
		}
	}
}

// heard is a sink that remembers.
type heard struct {
	mu      sync.Mutex
	ids     map[string]bool
	all     int
	trusted time.Time
}

func (h *heard) Forget(id string) { h.mu.Lock(); defer h.mu.Unlock(); h.ids[id] = true }

func (h *heard) ForgetAll() { h.mu.Lock(); defer h.mu.Unlock(); h.all++ }

func (h *heard) Trust(until time.Time) { h.mu.Lock(); defer h.mu.Unlock(); h.trusted = until }

func (h *heard) eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	testkit.Eventually(t, time.Minute, what, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !is() {
			return fmt.Errorf("heard of %v, %d times of all, trusted until %s", slices.Sorted(maps.Keys(h.ids)), h.all, h.trusted)
		}
		return nil
	})
}

// watch: a change is heard of, whoever makes it; the note of a use is no change.
func watch(t *testing.T, s *Store) {
	keep(t, s, record("w1", "ann", "gold", 0), record("w2", "ann", "gold", 0), record("w3", "ann", "gold", 0))
	h := &heard{ids: map[string]bool{}}
	done := make(chan error, 1)
	ctx, stop := contextOf(t)
	go func() { done <- s.Watch(ctx, h) }()
	h.eventually(t, "trust", func() bool { return h.trusted.After(time.Now()) && h.all > 0 })
	if err := s.Used(t.Context(), map[string]time.Time{"w3": start}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Revoke(t.Context(), tenant, "w1", start); err != nil {
		t.Fatal(err)
	}
	h.eventually(t, "the revocation", func() bool { return h.ids["w1"] })
	if s.postgres {
		if _, err := s.db.ExecContext(t.Context(), "UPDATE api_keys SET user_groups = '{}' WHERE id = 'w2'"); err != nil { // an operator's hand
			t.Fatal(err)
		}
		h.eventually(t, "the hand", func() bool { return h.ids["w2"] })
	}
	h.mu.Lock()
	if h.ids["w3"] {
		t.Error("the note of a use is told as a change")
	}
	before := h.all
	h.mu.Unlock()
	for i := range 120 {
		keep(t, s, record(fmt.Sprint("many", i), "many", "gold", 0))
	}
	if n, err := s.RevokeAll(t.Context(), Scope{Tenant: tenant, Username: "many"}, start); n != 120 || err != nil {
		t.Fatal(n, err)
	}
	h.eventually(t, "all", func() bool { return h.all > before })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// used: times are written together, never backwards, and what could not be written is written later.
func used(t *testing.T, s *Store) {
	keep(t, s, record("u1", "ann", "gold", 0), record("u2", "ann", "gold", 0))
	u := NewUses(s, time.Hour, s.log)
	u.Note("u1", start.Add(2*time.Second))
	u.Note("u1", start.Add(time.Second))
	u.Note("gone", start)
	ended, stop := contextOf(t)
	stop()
	u.Flush(ended)
	u.Note("u2", start)
	if err := u.Run(ended); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]time.Time{"u1": start.Add(2 * time.Second), "u2": start} {
		if r, err := s.Get(t.Context(), tenant, id); err != nil || !r.LastUsed.Equal(want) {
			t.Errorf("%s was used at %v (%v)", id, r, err)
		}
	}
	if err := s.Used(t.Context(), map[string]time.Time{"u1": start}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Get(t.Context(), tenant, "u1"); err != nil || !r.LastUsed.Equal(start.Add(2*time.Second)) {
		t.Errorf("it goes back to %v (%v)", r, err)
	}
	for i := range maxWaiting + 5 {
		u.Note(fmt.Sprint(i), start)
	}
	if len(u.waiting) != maxWaiting || u.lost != 5 {
		t.Errorf("%d wait, %d are lost", len(u.waiting), u.lost)
	}
}

// TestManyRows: what a statement costs grows with its rows and not with their square, also after one of a single row: the uses of
// all keys are noted within the time of a question.
func TestManyRows(t *testing.T) {
	const many = 10_000
	s, err := Open(t.Context(), Config{URL: pgserver.Shared(t) + "?sslmode=disable", MaxOpen: 1}) // one session, which keeps its plans
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	q := s.query("INSERT INTO api_keys (id, username, name, key_hash, user_groups, tenant) SELECT 'm' || i, 'ann', 'key', 'digest ' || i, '{a}', ")
	q.add(q.arg(tenant), "::text FROM generate_series(1, ", q.arg(many), "::int) i")
	if n, err := s.exec(t.Context(), q); n != many || err != nil {
		t.Fatalf("%d keys (%v)", n, err)
	}
	uses := map[string]time.Time{}
	for i := range many {
		uses[fmt.Sprintf("m%d", i+1)] = start
	}
	if err := s.Used(t.Context(), map[string]time.Time{"m1": start}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.exec(t.Context(), s.query("UPDATE api_keys SET description = 'somebody looked at it'")); n != many || err != nil {
		t.Errorf("%d keys are described (%v)", n, err)
	}
	if err := s.Used(t.Context(), uses); err != nil {
		t.Error(err)
	}
	var noted int
	if err := s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM api_keys WHERE last_used_at IS NOT NULL").Scan(&noted); err != nil || noted != many {
		t.Errorf("the uses of %d keys are noted (%v)", noted, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, url := range []string{"", "mysql://me:s3cret@db/x", "me:s3cret@db", "postgres://me:s3cret@%zz/x", "sqlite://", "postgres://me:s3cret@127.0.0.1:1/x?sslmode=disable&connect_timeout=1"} {
		if _, err := Open(t.Context(), Config{URL: url}); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	path := filepath.Join(t.TempDir(), "db")
	open(t, "sqlite://"+path)
	if _, err := Open(t.Context(), Config{URL: "sqlite://" + path}); err == nil || !strings.Contains(err.Error(), "one replica") {
		t.Errorf("a second process: %v", err)
	}
}
