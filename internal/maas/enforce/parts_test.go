// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/modelplane/modelplane/internal/maas/keys"
	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/quota"
	"github.com/modelplane/modelplane/internal/maas/selection"
)

// finder is a store of keys of one tenant.
type finder struct {
	mu      sync.Mutex
	records map[string]*keys.Record
	gone    bool
}

func (f *finder) Find(_ context.Context, _ string, digests []string) (*keys.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return nil, errGone
	}
	for _, d := range digests {
		if r := f.records[d]; r != nil {
			return r, nil
		}
	}
	return nil, keys.ErrNotFound
}

// whole is an enforcer of real parts, with a key.
type whole struct {
	*Enforcer
	finder *finder
	index  *selection.Index
	synced atomic.Bool
	key    string
	record *keys.Record
	cache  *keys.Cache
}

func newWhole(t testing.TB) *whole {
	t.Helper()
	digester, err := keys.NewDigester([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := keys.Mint()
	if err != nil {
		t.Fatal(err)
	}
	r := &whole{finder: &finder{}, index: selection.NewIndex(), key: key.Reveal()}
	r.record = &keys.Record{ID: "id-1", Tenant: "t", Username: "alice", Groups: []string{"team"}, Subscription: "gold", Stored: keys.Active, Digest: digester.Digest(key)}
	r.finder.records = map[string]*keys.Record{r.record.Digest: r.record}
	r.cache = keys.NewCache(r.finder, digester, keys.CacheOptions{Tenant: "t"})
	granite := selection.Model{Namespace: "llm", Name: "granite"}
	r.index.PutModelRef(&selection.ModelRef{Model: granite, Alias: "publishers/llm/models/granite", Ready: true})
	r.index.PutSubscription(&selection.Subscription{
		Namespace: "n", Name: "gold", Groups: []string{"team"}, Phase: selection.Active, OrganizationID: "acme",
		Models: []selection.SubscribedModel{{Model: granite, Limits: []selection.Limit{{Tokens: 100, Window: "1m"}, {Tokens: 1000, Window: "24h"}}}},
	})
	r.index.PutAuthPolicy(&selection.AuthPolicy{Namespace: "n", Name: "open", Users: []string{"alice"}, Models: []selection.Model{granite}})
	r.synced.Store(true)
	r.Enforcer, err = New(Options{
		Tenant: "t", Keys: CheckedBy(r.cache), Selector: ChosenBy(r.index, r.synced.Load), Ledger: quota.NewLedger(quota.NewMemory(0, nil), quota.LedgerOptions{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *whole) request() enforcer.Request {
	return chat("publishers/llm/models/granite", "Authorization", "Bearer "+r.key)
}

// TestRealParts takes what a request needs away, piece by piece, and gives it back.
func TestRealParts(t *testing.T) {
	r := newWhole(t)
	allowed := func(when string) {
		t.Helper()
		d := ask(t, r.Enforcer, r.request())
		if !d.Allowed() || d.Headers["X-MaaS-Subscription"] != "gold" {
			t.Fatalf("%s: %+v", when, d)
		}
		d.Report(enforcer.Usage{Status: 500})
	}
	refused := func(when string, status int, reason string) {
		t.Helper()
		if d := ask(t, r.Enforcer, r.request()); d.Status != status || d.Headers["x-ext-auth-reason"] != reason {
			t.Errorf("%s: %+v", when, d)
		}
	}
	allowed("all is there")
	r.finder.gone = true
	refused("the store is gone", 503, "internal_error")
	r.finder.gone = false
	r.synced.Store(false)
	refused("the index has not seen everything", 503, "internal_error")
	r.synced.Store(true)
	allowed("all is there again")

	r.index.DeleteAuthPolicy("n", "open")
	refused("the policy is gone", 403, "unauthorized")
	granite := selection.Model{Namespace: "llm", Name: "granite"}
	r.index.PutAuthPolicy(&selection.AuthPolicy{Namespace: "n", Name: "open", Groups: []string{"team"}, Models: []selection.Model{granite}})
	allowed("a group is let in")

	broken := &selection.Subscription{Namespace: "n", Name: "gold", Groups: []string{"team"}, Phase: selection.Active, Models: []selection.SubscribedModel{{Model: granite, Limits: []selection.Limit{{Tokens: 1, Window: "1d"}}}}}
	r.index.PutSubscription(broken)
	refused("a limit that cannot be read", 503, "internal_error")
	failed := *broken
	failed.Phase = selection.Failed
	r.index.PutSubscription(&failed)
	refused("the subscription failed", 403, "model_unhealthy")
	r.index.DeleteSubscription("n", "gold")
	refused("the subscription is gone", 403, "not_found")
	r.record.Stored = keys.Revoked
	refused("the key is revoked", 403, "unauthorized")
}

// TestRemoteKeys asks a server over a socket, and believes nothing else that comes from there.
func TestRemoteKeys(t *testing.T) {
	r := newWhole(t)
	var asked atomic.Int64
	var broken atomic.Value
	broken.Store("")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		if b, _ := broken.Load().(string); b != "" {
			if b == "500" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = w.Write([]byte(b))
			return
		}
		var ask struct{ Key string }
		if err := json.NewDecoder(req.Body).Decode(&ask); err != nil || req.URL.Path != "/internal/v1/api-keys/validate" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		v, err := r.cache.Validate(req.Context(), ask.Key)
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		out := map[string]any{"valid": v.Valid, "tenant": "t", "reason": v.Reason}
		if v.Valid {
			out["username"], out["keyId"], out["groups"], out["subscription"], out["keyName"] = v.Record.Username, v.Record.ID, v.Record.Groups, v.Record.Subscription, v.Record.Name
		}
		_ = json.NewEncoder(w).Encode(out)
	}))
	defer server.Close()
	remote := NewRemoteKeys(server.Client(), server.URL+"/", "t")
	at := time.Now()
	remote.memo.Now = func() time.Time { return at }
	want := Identity{Username: "alice", Groups: []string{"team"}, Subscription: "gold", KeyID: "id-1"}
	for range 3 {
		who, err := remote.Validate(t.Context(), r.key)
		if err != nil || !cmp.Equal(want, who) {
			t.Fatalf("%+v, %v", who, err)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
	r.record.Stored = keys.Revoked
	at = at.Add(believeKey)
	if who, err := remote.Validate(t.Context(), r.key); !errors.Is(err, ErrRefused) {
		t.Errorf("revoked half a second ago: %+v, %v", who, err)
	}
	r.record.Stored = keys.Active
	for _, b := range []string{"500", "{}", "[]", "null", "<html>", `{"valid":"yes"}`} {
		broken.Store(b)
		at = at.Add(believeKey)
		if who, err := remote.Validate(t.Context(), r.key); err == nil || errors.Is(err, ErrRefused) || errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %+v, %v", b, who, err)
		}
	}
	broken.Store("")
	if _, err := NewRemoteKeys(server.Client(), server.URL, "another").Validate(t.Context(), r.key); !errors.Is(err, ErrRefused) {
		t.Errorf("a key of another tenant: %v", err)
	}
	server.Close()
	at = at.Add(believeKey)
	if _, err := remote.Validate(t.Context(), r.key); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("the server is gone: %v", err)
	}
}

// TestClusterTokens reviews tokens at an API server over a socket.
func TestClusterTokens(t *testing.T) {
	var asked atomic.Int64
	var gone atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil || gone.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		switch review.Spec.Token {
		case goodToken:
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: review.Spec.Audiences, User: authenticationv1.UserInfo{Username: "bob", Groups: []string{"staff"}}}
		case "for others":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"others"}, User: authenticationv1.UserInfo{Username: "bob"}}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	tokens := NewClusterTokens(client, []string{"us"})
	at := time.Now()
	tokens.memo.Now = func() time.Time { return at }
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			who, err := tokens.Review(context.Background(), goodToken)
			if err != nil || !cmp.Equal(Identity{Username: "bob", Groups: []string{"staff", "system:authenticated"}}, who) {
				t.Errorf("%+v, %v", who, err)
			}
		})
	}
	all.Wait()
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
	for _, token := range []string{"nobody's", "for others"} {
		if who, err := tokens.Review(t.Context(), token); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %+v, %v", token, who, err)
		}
	}
	gone.Store(true)
	if _, err := tokens.Review(t.Context(), goodToken); err != nil {
		t.Errorf("known a moment ago: %v", err)
	}
	at = at.Add(believeToken)
	if who, err := tokens.Review(t.Context(), goodToken); err == nil || errors.Is(err, ErrUnknown) {
		t.Errorf("the API server is gone: %+v, %v", who, err)
	}
}

// TestWrongTokensDelayNobody: while one place sends unknown tokens without end, and the API server is slow to say so, somebody with
// a good token from elsewhere is let in.
func TestWrongTokensDelayNobody(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if review.Spec.Token == goodToken {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "bob"}}
		} else {
			select {
			case <-release:
			case <-req.Context().Done():
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{}
	e := h.enforcer(t)
	e.Tokens, e.Meter = NewClusterTokens(client, nil), nil
	var all sync.WaitGroup
	refused := make(chan int, 500)
	for i := range cap(refused) {
		all.Go(func() {
			r := chat("granite", "Authorization", fmt.Sprintf("Bearer wrong-%d", i), "X-Forwarded-For", fmt.Sprintf("10.0.0.%d, 1.2.3.4", i))
			d, err := e.Decide(context.Background(), r)
			if err != nil || d.Status == 0 {
				t.Errorf("%+v, %v", d, err)
			}
			refused <- d.Status
		})
	}
	for range cap(refused) - 64 { // those for which there is no room are told so at once
		select {
		case <-refused:
		case <-time.After(2 * time.Minute):
			t.Fatal("the flood waits")
		}
	}
	if d := ask(t, e, chat("granite", "Authorization", "Bearer "+goodToken, "X-Forwarded-For", "5.6.7.8")); !d.Allowed() {
		t.Errorf("a good token: %+v", d)
	}
	close(release)
	all.Wait()
}

// BenchmarkRealDecide is one decision and its report, in process: a cached key, an index, counters in memory.
func BenchmarkRealDecide(b *testing.B) {
	r := newWhole(b)
	r.cache.Trust(time.Now().Add(time.Hour))
	granite := selection.Model{Namespace: "llm", Name: "granite"}
	r.index.PutSubscription(&selection.Subscription{
		Namespace: "n", Name: "gold", Groups: []string{"team"}, Phase: selection.Active,
		Models: []selection.SubscribedModel{{Model: granite, Limits: []selection.Limit{{Tokens: 1_000_000_000, Window: "1m"}, {Tokens: 1_000_000_000, Window: "24h"}}}},
	})
	request := r.request()
	took := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		d, err := r.Decide(b.Context(), request)
		if err != nil || !d.Allowed() {
			b.Fatal(d, err)
		}
		if len(took) < cap(took) {
			took = append(took, time.Since(began))
		}
		d.Report(enforcer.Usage{Status: 500})
	}
	percentiles(b, took)
}
