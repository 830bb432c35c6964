// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modelplane/modelplane/internal/maas/keys"
	"github.com/modelplane/modelplane/internal/maas/metering"
	"github.com/modelplane/modelplane/internal/maas/selection"
	"github.com/modelplane/modelplane/internal/maas/store"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/postgres"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	ann, bob, admin = "ann-token", "bob-token", "admin-token"
	broken          = "token-at-which-the-cluster-fails"
	gatewaySecret   = "only the gateway knows this"
	tenantName      = "acme"
)

var llama, falcon = selection.Model{Namespace: "models", Name: "llama"}, selection.Model{Namespace: "models", Name: "falcon"}

// people are what the cluster knows.
func people(_ context.Context, token string) (*Caller, error) {
	switch token {
	case ann:
		return &Caller{Username: "ann", Groups: []string{"team"}}, nil
	case bob:
		return &Caller{Username: "bob", Groups: []string{"other"}}, nil
	case admin:
		return &Caller{Username: "root", Groups: []string{"admins"}}, nil
	case "gateway-account":
		return &Caller{Username: "system:serviceaccount:gateway:authorino"}, nil
	case broken:
		return nil, errors.New("the cluster is away")
	}
	return nil, nil //nolint:nilnil // it is nobody's
}

// server is an API with a client.
type server struct {
	*testing.T
	public, internal string
	api              *API
	store            *store.Store
	clock            *clock
}

type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return time.Now().Add(c.ahead) }

func (c *clock) pass(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.ahead += d }

func everywhere(t *testing.T, test func(s *server)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(start(t, "sqlite://"+filepath.Join(t.TempDir(), "db")))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(start(t, postgres.Shared(t)+"?sslmode=disable"))
	})
}

func start(t *testing.T, url string) *server {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	kept, err := store.Open(t.Context(), store.Config{URL: url, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	digester, err := keys.NewDigester([]byte("a pepper for the tests"))
	if err != nil {
		t.Fatal(err)
	}
	usage := metering.NewSQL(kept.DB(), kept.Postgres())
	if err := usage.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &server{T: t, store: kept, clock: &clock{}}
	uses := store.NewUses(kept, 50*time.Millisecond, log)
	cache := keys.NewCache(kept, digester, keys.CacheOptions{Tenant: tenantName, Used: uses.Note, Debounce: time.Minute, Now: s.clock.now})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = kept.Watch(ctx, cache) })
	tasks.Go(func() { _ = uses.Run(ctx) })
	t.Cleanup(func() { stop(); tasks.Wait(); _ = kept.Close() })
	s.api = New(Options{
		Log: log, Tenant: tenantName, MaxDays: 90, Store: kept, Cache: cache, Digester: digester, Index: index(), Usage: usage, Metrics: NewMetrics(prometheus.NewRegistry()),
		Identity: &Identity{Cache: cache, Review: people, Gateway: GatewayTrust{Secret: func() string { return gatewaySecret }}.Is},
		Admin: func(_ context.Context, who Caller) (bool, error) {
			if who.Username == "ann" && len(who.Groups) > 5 {
				return false, errors.New("the cluster is away")
			}
			return who.Username == "root", nil
		},
		Now: s.clock.now,
	})
	public := httptest.NewServer(s.api.Handler())
	inner := httptest.NewServer(s.api.Internal(InternalTrust{Accounts: []string{"system:serviceaccount:gateway:*"}, Review: people}.May))
	t.Cleanup(public.Close)
	t.Cleanup(inner.Close)
	s.public, s.internal = public.URL, inner.URL
	return s
}

// index has a subscription for ann's team, one for everybody, and some that do not work.
func index() *selection.Index {
	x := selection.NewIndex()
	subscribed := func(models ...selection.Model) (out []selection.SubscribedModel) {
		for _, m := range models {
			out = append(out, selection.SubscribedModel{Model: m, Limits: []selection.Limit{{Tokens: 100, Window: "1m"}}, PerToken: "0.001"})
		}
		return out
	}
	for _, s := range []*selection.Subscription{
		{Name: "gold", Priority: 10, Groups: []string{"team"}, Phase: selection.Active, Models: subscribed(llama, falcon), DisplayName: "Gold", Description: "the best", OrganizationID: "org", CostCenter: "cc", Labels: map[string]string{"a": "b"}},
		{Name: "free", Groups: []string{"system:authenticated"}, Phase: selection.Active, Models: subscribed(llama)},
		{Name: "failed", Groups: []string{"team"}, Phase: selection.Failed, Models: subscribed(llama)},
		{Name: "pending", Groups: []string{"team"}, Phase: selection.Pending, Models: subscribed(llama)},
		{Name: "new", Groups: []string{"team"}, Models: subscribed(llama)},
		{Name: "going", Groups: []string{"team"}, Phase: selection.Active, Models: subscribed(llama), Deleted: time.Unix(1, 0)},
		{Name: "theirs", Users: []string{"carl"}, Phase: selection.Active, Models: subscribed(llama)},
	} {
		s.Namespace = "maas"
		x.PutSubscription(s)
	}
	x.PutAuthPolicy(&selection.AuthPolicy{Namespace: "maas", Name: "all", Groups: []string{"system:authenticated"}, Models: []selection.Model{llama}})
	x.PutModelRef(&selection.ModelRef{Model: llama, Alias: "publishers/models/models/llama", Kind: "LLMInferenceService", URL: "https://models.example", Ready: true, Created: time.Unix(7, 0), DisplayName: "Llama", Capabilities: []string{"chat"}})
	x.PutModelRef(&selection.ModelRef{Model: falcon, Alias: "falcon", Kind: "ExternalModel", Ready: true, Created: time.Unix(8, 0)})
	return x
}

// response of a call.
type response struct {
	code   int
	header http.Header
	text   string
	fields map[string]any
}

// call sends a body with headers of the form "Name: value".
func (s *server) call(method, url, body string, headers ...string) response {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, url, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	answered, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer answered.Body.Close()
	text, err := io.ReadAll(answered.Body)
	if err != nil {
		s.Fatal(err)
	}
	out := response{code: answered.StatusCode, header: answered.Header, text: string(text)}
	_ = json.Unmarshal(text, &out.fields) // an array has no fields
	return out
}

// as calls a public path with a token.
func (s *server) as(token, method, path, body string, headers ...string) response {
	s.Helper()
	return s.call(method, s.public+path, body, append(headers, "Authorization: Bearer "+token)...)
}

// inside calls an internal path as the gateway does.
func (s *server) inside(method, path, body string) response {
	s.Helper()
	return s.call(method, s.internal+path, body, "Authorization: Bearer gateway-account")
}

func (r response) is(t testing.TB, code int, contains ...string) response {
	t.Helper()
	if r.code != code {
		t.Fatalf("it answers %d, not %d: %s", r.code, code, r.text)
	}
	for _, c := range contains {
		if !strings.Contains(r.text, c) {
			t.Errorf("%s is not in %s", c, r.text)
		}
	}
	return r
}

func (r response) get(field string) string { v, _ := r.fields[field].(string); return v }

// make mints a key.
func (s *server) make(token, body string) (id, key string) {
	s.Helper()
	r := s.as(token, "POST", "/v1/api-keys", body).is(s, http.StatusCreated)
	return r.get("id"), r.get("key")
}

func (s *server) validate(key string) response {
	s.Helper()
	body, err := json.Marshal(map[string]string{"key": key})
	if err != nil {
		s.Fatal(err)
	}
	return s.inside("POST", "/internal/v1/api-keys/validate", string(body))
}

// TestLifeOfAKey: made, checked, listed, read, revoked, refused.
func TestLifeOfAKey(t *testing.T) {
	everywhere(t, func(s *server) {
		r := s.as(ann, "POST", "/v1/api-keys", `{"name":" ci ","description":"d","expiresIn":"30d","labels":{"team/env":"x"}}`).is(s, http.StatusCreated, `"subscription":"gold"`, `"name":"ci"`, `"ephemeral":false`, `"labels":{"team/env":"x"}`)
		id, key := r.get("id"), r.get("key")
		if !strings.HasPrefix(key, "sk-oai-") || r.get("keyPrefix") != key[:19]+"..." || r.header.Get("Cache-Control") != "no-store" {
			s.Errorf("it is %s", r.text)
		}
		s.validate(key).is(s, http.StatusOK, `"valid":true`, `"username":"ann"`, `"keyName":"ci"`, `"userId":"`+id, `"keyId":"`+id, `"groups":["team","system:authenticated"]`, `"subscription":"gold"`, `"tenant":"acme"`)
		s.as(ann, "GET", "/v1/api-keys/"+id, "").is(s, http.StatusOK, `"status":"active"`, `"description":"d"`)
		s.as(ann, "POST", "/v1/api-keys/search", `{}`).is(s, http.StatusOK, `"object":"list"`, id, `"has_more":false`)
		s.as(bob, "POST", "/v1/api-keys/search", ``).is(s, http.StatusOK, `"data":[]`)
		testkit.Eventually(s, time.Minute, "the use to be noted", func() error {
			if r := s.as(ann, "GET", "/v1/api-keys/"+id, ""); r.get("lastUsedAt") == "" {
				return errors.New(r.text)
			}
			return nil
		})
		s.as(ann, "DELETE", "/v1/api-keys/"+id, "").is(s, http.StatusOK, `"status":"revoked"`)
		s.validate(key).is(s, http.StatusOK, `"valid":false`, `"reason":"key revoked or expired"`, `"tenant":"acme"`)
		s.as(ann, "DELETE", "/v1/api-keys/"+id, "").is(s, http.StatusNotFound, `{"error":"`)
		if strings.Contains(s.as(admin, "POST", "/v1/api-keys/search", `{}`).is(s, http.StatusOK, id).text, key) {
			s.Error("a list shows the key")
		}
	})
}

// TestMint: what can be asked for, and how it is refused.
func TestMint(t *testing.T) {
	everywhere(t, func(s *server) {
		for _, c := range []struct {
			token, body string
			code        int
			contains    string
		}{
			{ann, `{"name":"a"}`, 201, `"subscription":"gold"`},
			{bob, `{"name":"a"}`, 201, `"subscription":"free"`},
			{ann, `{"name":"a","subscription":"free"}`, 201, `"subscription":"free"`},
			{ann, `{"name":"a","subscription":"maas/free"}`, 201, `"subscription":"free"`},
			{ann, `{"name":"a","subscription":"pending"}`, 201, `"subscription":"pending"`},
			{ann, `{"name":"a","subscription":"failed"}`, 403, `"code":"subscription_not_ready"`},
			{ann, `{"name":"a","subscription":"new"}`, 400, `"code":"subscription_not_ready"`},
			{ann, `{"name":"a","subscription":"going"}`, 400, `"code":"subscription_not_ready"`},
			{ann, `{"name":"a","subscription":"theirs"}`, 400, `"code":"invalid_subscription"`},
			{ann, `{"name":"a","subscription":"none"}`, 400, `"code":"invalid_subscription"`},
			{ann, `{"ephemeral":true}`, 201, `"name":"ephemeral-`},
			{ann, `{"ephemeral":true,"expiresIn":"2h"}`, 400, "1 hour"},
			{ann, `{"name":"a","expiresIn":3600}`, 201, `"expiresAt":"`},
			{ann, `{"name":"a","expiresIn":"91d"}`, 400, "90 days"},
			{ann, `{"name":"a","expiresIn":-1}`, 400, "positive"},
			{ann, `{"name":"a","expiresIn":{}}`, 400, "expiresIn"},
			{ann, `{}`, 400, "name is required"},
			{ann, `{"name":"a\u0000b"}`, 400, "control characters"},
			{ann, `{"name":"a","description":"\u0000"}`, 400, "error"},
			{ann, `{"name":"a","subscription":"\u0000"}`, 400, "error"},
			{ann, `{"name":"a","labels":{"":"x"}}`, 400, "label key"},
			{ann, `{"name":7}`, 400, `field \"name\"`},
			{ann, ``, 400, "empty"}, {ann, `{`, 400, "byte"}, {ann, `[]`, 400, "JSON object"}, {ann, `{"name":"a"}{}`, 400, "byte"}, {ann, "\xff", 400, "byte"},
			{"nobody", `{"name":"a"}`, 401, `"exceptionCode":"AUTH_FAILURE"`},
			{broken, `{"name":"a"}`, 503, "try again"},
		} {
			r := s.as(c.token, "POST", "/v1/api-keys", c.body)
			if r.code != c.code || !strings.Contains(r.text, c.contains) || c.code >= 400 && r.get("error") == "" {
				s.Errorf("%s with %q answers %d %s", c.token, c.body, r.code, r.text)
			}
		}
		s.call("POST", s.public+"/v1/api-keys", `{"name":"a"}`).is(s, http.StatusUnauthorized, `"error":"Authentication required"`, `"refId":"001"`)
		_, key := s.make(ann, `{"name":"a","subscription":"free"}`) // what it made would outlive it
		s.as(key, "POST", "/v1/api-keys", `{"name":"b"}`).is(s, http.StatusForbidden, "token_required")
	})
}

// TestSearch: filters are honoured, and nobody sees the keys of others.
func TestSearch(t *testing.T) {
	everywhere(t, func(s *server) {
		first, _ := s.make(ann, `{"name":"Nightly 100%","description":"runs'; DROP TABLE api_keys; --","labels":{"env":"a"},"expiresIn":"1h"}`)
		second, _ := s.make(ann, `{"name":"other","subscription":"free"}`)
		short, _ := s.make(ann, `{"ephemeral":true}`)
		theirs, _ := s.make(bob, `{"name":"bob's"}`)
		finds := func(token, body string, want ...string) {
			s.Helper()
			r := s.as(token, "POST", "/v1/api-keys/search", body).is(s, http.StatusOK)
			for _, id := range []string{first, second, short, theirs} {
				wanted := strings.Contains(strings.Join(want, " "), id)
				if strings.Contains(r.text, id) != wanted {
					s.Errorf("%s: that %s is found is not %v: %s", body, id, wanted, r.text)
				}
			}
		}
		finds(ann, `{}`, first, second)
		finds(ann, `{"filters":{"includeEphemeral":true}}`, first, second, short)
		finds(admin, `{}`, first, second, theirs)
		finds(admin, `{"filters":{"username":"bob"}}`, theirs)
		finds(ann, `{"filters":{"username":"ann","status":["active"]}}`, first, second)
		finds(ann, `{"filters":{"status":["revoked","expired"]}}`)
		finds(ann, `{"filters":{"subscription":"free"}}`, second)
		finds(ann, `{"filters":{"labelsContain":{"env":"a"}}}`, first)
		finds(ann, `{"filters":{"nameContains":"nightly 100%"}}`, first)
		finds(ann, `{"filters":{"nameContains":"%"}}`, first)
		finds(ann, `{"filters":{"descriptionContains":"'; DROP TABLE"}}`, first)
		finds(ann, `{"filters":{"createdAfter":"2000-01-01T00:00:00Z","expiresAfter":"2000-01-01T00:00:00+02:00"}}`, first, second)
		finds(ann, `{"filters":{"createdBefore":"2000-01-01T00:00:00Z"}}`)
		finds(ann, fmt.Sprintf(`{"filters":{"expiresBefore":%q}}`, time.Now().Add(2*time.Hour).Format(time.RFC3339)), first)
		finds(ann, `{"filters":{"lastUsedAfter":"2000-01-01T00:00:00Z"}}`)
		finds(ann, `{"filters":{"hasBeenUsed":false,"hasExpiration":true}}`, first, second)
		finds(ann, `{"filters":{"hasExpiration":false}}`)
		finds(ann, `{"pagination":{"limit":1},"sort":{"by":"name","order":"asc"}}`, first)
		page := s.as(ann, "POST", "/v1/api-keys/search", `{"pagination":{"limit":1},"sort":{"by":"name","order":"asc"}}`).is(s, http.StatusOK, `"has_more":true`)
		finds(ann, fmt.Sprintf(`{"pagination":{"limit":1,"cursor":%q},"sort":{"by":"name","order":"asc"}}`, page.get("next_cursor")), second)
		finds(ann, `{"pagination":{"limit":1,"offset":1},"sort":{"by":"name","order":"asc"}}`, second)
		finds(ann, `{"pagination":{"limit":100000}}`, first, second)
		for body, contains := range map[string]string{
			`{"filters":{"status":["dead"]}}`: "status", `{"sort":{"by":"id; DROP TABLE api_keys"}}`: "sort.by", `{"sort":{"order":"up"}}`: "sort.order", `{"pagination":{"limit":0}}`: "limit",
			`{"pagination":{"offset":-1}}`: "offset", `{"filters":{"labelsContain":{"a b":"c"}}}`: "labelsContain", `{"filters":{"createdAfter":"yesterday"}}`: "createdAfter",
			`{"pagination":{"cursor":"!"}}`: "cursor", `{"filters":{"username":"\u0000"}}`: "characters", `{"filters":[]}`: "filters", `nonsense`: "byte",
			fmt.Sprintf(`{"pagination":{"cursor":%q}}`, page.get("next_cursor")): "another order",
		} {
			s.as(ann, "POST", "/v1/api-keys/search", body).is(s, http.StatusBadRequest, contains, `{"error":"`)
		}
		s.as(ann, "POST", "/v1/api-keys/search", `{"filters":{"username":"bob"}}`).is(s, http.StatusForbidden, `{"error":"`)
		s.call("POST", s.public+"/v1/api-keys/search", `{}`).is(s, http.StatusOK, `"data":[]`)
		s.as("nobody", "POST", "/v1/api-keys/search", `{}`).is(s, http.StatusUnauthorized)
		s.as(bob, "GET", "/v1/api-keys/"+first, "").is(s, http.StatusNotFound, `{"error":"`)
		s.as(bob, "DELETE", "/v1/api-keys/"+first, "").is(s, http.StatusNotFound)
		s.as(admin, "GET", "/v1/api-keys/"+first, "").is(s, http.StatusOK, `"username":"ann"`)
		s.as(ann, "GET", "/v1/api-keys/%00", "").is(s, http.StatusNotFound)
		s.as(ann, "GET", "/v1/api-keys/'%20OR%20''='", "").is(s, http.StatusNotFound)
		s.as(ann, "GET", "/v1/api-keys/config", "").is(s, http.StatusOK, `{"max_expiration_days":90,"ephemeral_max_expiration":"1h0m0s"}`)
	})
}

// TestBulkRevoke and what the platform's jobs do.
func TestBulkRevoke(t *testing.T) {
	everywhere(t, func(s *server) {
		_, first := s.make(ann, `{"name":"1"}`)
		_, second := s.make(ann, `{"name":"2","subscription":"free"}`)
		_, theirs := s.make(bob, `{"name":"3"}`)
		_, short := s.make(bob, `{"ephemeral":true}`)
		revoke := func(token, body string) response {
			return s.as(token, "POST", "/v1/api-keys/bulk-revoke", body)
		}
		revoke(ann, `{}`).is(s, http.StatusBadRequest, `{"error":"`)
		revoke(ann, `{"username":"bob"}`).is(s, http.StatusForbidden, `{"error":"`)
		revoke(ann, `{"username":"ann","subscription":"free"}`).is(s, http.StatusForbidden)
		revoke(ann, `{"username":"ann","dryRun":true}`).is(s, http.StatusOK, `"revokedCount":2`, `"dryRun":true`)
		s.validate(first).is(s, http.StatusOK, `"valid":true`)
		revoke(admin, `{"subscription":"free","username":"ann"}`).is(s, http.StatusOK, `"revokedCount":1`)
		s.validate(second).is(s, http.StatusOK, `"valid":false`)
		s.validate(theirs).is(s, http.StatusOK, `"valid":true`)
		revoke(ann, `{"username":"ann"}`).is(s, http.StatusOK, `"revokedCount":1`, `"message":"1 active`)
		s.validate(first).is(s, http.StatusOK, `"valid":false`)
		s.inside("POST", "/internal/v1/api-keys/cleanup", "").is(s, http.StatusOK, `"deletedCount":0`)
		s.clock.pass(65 * time.Minute)
		s.validate(short).is(s, http.StatusOK, `"reason":"key revoked or expired"`)
		s.inside("POST", "/internal/v1/api-keys/cleanup", "").is(s, http.StatusOK, `"deletedCount":0`)
		s.clock.pass(30 * time.Minute)
		s.inside("POST", "/internal/v1/api-keys/cleanup", "").is(s, http.StatusOK, `"deletedCount":1`)
		s.validate(short).is(s, http.StatusOK, `"reason":"key not found"`)
		s.inside("DELETE", "/internal/v1/tenants/other/api-keys", "").is(s, http.StatusBadRequest, `{"error":"`)
		s.inside("DELETE", "/internal/v1/tenants/acme/api-keys", "").is(s, http.StatusOK, `"revokedCount":1`)
		s.validate(theirs).is(s, http.StatusOK, `"valid":false`)
	})
}
