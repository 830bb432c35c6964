// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/maas/metering"
	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/quota"
)

const (
	goodKey    = KeyPrefix + "abcdefghijkl_0123456789"
	revokedKey = KeyPrefix + "revokedrevok_0123456789"
	otherKey   = KeyPrefix + "othersothers_0123456789"
	brokenKey  = KeyPrefix + "brokenbroken_0123456789"
	goodToken  = "cluster-token"
	slashed    = "token-of-slashes"
	strange    = "token-with-strange-groups"
)

// house is a world with a few people, subscriptions and models.
type house struct {
	mu                       sync.Mutex
	storeGone, apiServerGone bool
	unsynced                 bool
	records                  []metering.Record
	denials                  map[string]int
	questions                []Question
	limits                   []quota.Limit
	counters                 quota.Counters
}

var errGone = errors.New("it is gone")

func (h *house) Validate(_ context.Context, key string) (Identity, error) {
	switch {
	case h.storeGone:
		return Identity{}, errGone
	case key == goodKey:
		return Identity{Username: "alice", Groups: []string{"team"}, Subscription: "gold", KeyID: "id-1", KeyName: "first"}, nil
	case key == brokenKey:
		return Identity{Username: "alice", KeyID: "id-2"}, nil
	}
	return Identity{}, ErrRefused
}

func (h *house) Review(_ context.Context, token string) (Identity, error) {
	switch {
	case h.apiServerGone:
		return Identity{}, errGone
	case token == goodToken:
		return Identity{Username: "bob", Groups: []string{"staff", "system:authenticated"}}, nil
	case token == slashed:
		return Identity{Username: "carol", Groups: []string{"/org/team"}, Subscription: "forged", KeyID: "forged"}, nil
	case token == strange:
		return Identity{Username: "dave", Groups: []string{"a\",\"admins"}}, nil
	}
	return Identity{}, ErrUnknown
}

func (h *house) Select(_ context.Context, q Question) (Selection, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.questions = append(h.questions, q)
	if h.unsynced {
		return Selection{}, errGone
	}
	chosen := Selection{Namespace: "models-as-a-service", Name: "gold", Model: "llm/granite", Limits: h.limits, Allowed: true, OrganizationID: "acme", CostCenter: "42"}
	switch {
	case q.Model == "llm/closed":
		chosen.Model, chosen.Allowed = q.Model, false
	case q.Model == "llm/free":
		chosen.Model, chosen.Limits = q.Model, nil
	case q.Model == "llm/nowhere":
		return Selection{}, nil
	case strings.HasPrefix(q.Model, "deny/"):
		return Selection{}, &Denial{strings.TrimPrefix(q.Model, "deny/"), "no: " + q.Model}
	case q.Model != "llm/granite" && q.Model != "granite":
		return Selection{}, &Denial{"not_found", "no subscription of yours has the model"}
	}
	return chosen, nil
}

func (h *house) Used(r metering.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, r)
}

func (h *house) Denied(_, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.denials == nil {
		h.denials = map[string]int{}
	}
	h.denials[reason]++
}

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (h *house) enforcer(t testing.TB) *Enforcer {
	t.Helper()
	if h.counters == nil {
		h.counters = quota.NewMemory(0, func() time.Time { return now })
	}
	if h.limits == nil {
		h.limits = []quota.Limit{{Tokens: 100, Window: time.Minute}}
	}
	e, err := New(Options{
		Tenant: "models-as-a-service", Keys: h, Tokens: h, Selector: h, Ledger: quota.NewLedger(h.counters, quota.LedgerOptions{}), Meter: h,
		Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func ask(t testing.TB, e *Enforcer, r enforcer.Request) enforcer.Decision {
	t.Helper()
	d, err := e.Decide(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// chat is a request to the model of which a header is set, or several.
func chat(model string, headers ...string) enforcer.Request {
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	return enforcer.Request{Method: http.MethodPost, Path: "/v1/chat/completions", Model: model, Headers: h, Format: enforcer.ChatCompletions, BodyBytes: 40}
}

func at(method, path string, r enforcer.Request) enforcer.Request {
	r.Method, r.Path = method, path
	return r
}

// TestSituations has a row for everything that can be the matter with a request.
func TestSituations(t *testing.T) {
	key := []string{"Authorization", "Bearer " + goodKey}
	user := []string{"Authorization", "Bearer " + goodToken}
	with := func(base []string, more ...string) []string { return append(base[:len(base):len(base)], more...) }
	asAlice := map[string]string{"X-MaaS-Username": "alice", "X-MaaS-Group": `["team"]`, "X-MaaS-Subscription": "gold"}
	asBob := map[string]string{"X-MaaS-Username": "bob", "X-MaaS-Group": `["staff","system:authenticated"]`, "X-MaaS-Subscription": "gold"}
	unauthenticated := map[string]string{"x-ext-auth-reason": "Authentication required", "www-authenticate": "Bearer"}
	reason := func(code string) map[string]string { return map[string]string{"x-ext-auth-reason": code} }
	unable := map[string]string{"x-ext-auth-reason": "internal_error", "retry-after": "1"}
	wait := map[string]string{"retry-after": "60"}
	for name, c := range map[string]struct {
		house   *house
		request enforcer.Request
		status  int
		headers map[string]string
		body    string
	}{
		"an API key": {request: chat("granite", key...), headers: asAlice},
		"an API key as clients of messages send it": {request: chat("granite", "X-Api-Key", goodKey), headers: asAlice},
		"an API key beside another scheme":          {request: chat("granite", "Authorization", "Basic eA==", "X-Api-Key", goodKey), headers: asAlice},
		"a model in the path":                       {request: at("POST", "/llm/granite/v1/chat/completions", chat("", key...)), headers: asAlice},
		"a model in the header":                     {request: chat("", with(key, "X-Gateway-Model-Name", "granite")...), headers: asAlice},
		"a token of the cluster":                    {request: chat("granite", user...), headers: asBob},
		"a key's subscription stays":                {request: chat("granite", with(key, "X-MaaS-Subscription", "platinum")...), headers: asAlice},
		"groups with slashes":                       {request: at("GET", "/v1/models", chat("", "Authorization", "bearer "+slashed)), headers: map[string]string{"X-MaaS-Username": "carol", "X-MaaS-Group": `["/org/team"]`}},
		"health":                                    {request: at("GET", "/maas-api/health", chat(""))},
		"keys are made with a token":                {request: at("POST", "/maas-api/v1/api-keys", chat("", with(user, "X-MaaS-Subscription", "gold")...)), headers: asBob},
		"a list of models of one model":             {request: at("GET", "/llm/granite/v1/models", chat("", key...)), headers: asAlice},

		"no credentials":                      {request: chat("granite"), status: 401, headers: unauthenticated, body: "Authentication required"},
		"no credentials for a list":           {request: at("GET", "/v1/models", chat("")), status: 401, headers: unauthenticated},
		"health by another method":            {request: at("POST", "/maas-api/health", chat("")), status: 401, headers: unauthenticated},
		"a token that nobody vouches for":     {request: chat("granite", "Authorization", "Bearer nonsense"), status: 401, headers: unauthenticated},
		"another scheme":                      {request: chat("granite", "Authorization", "Basic "+goodToken), status: 401, headers: unauthenticated},
		"two tokens":                          {request: chat("granite", with(user, "Authorization", "Bearer other")...), status: 401, headers: unauthenticated},
		"two keys":                            {request: chat("granite", "X-Api-Key", goodKey, "X-Api-Key", otherKey), status: 401, headers: unauthenticated},
		"a list of tokens":                    {request: chat("granite", "Authorization", "Bearer "+goodToken+", Bearer x"), status: 401, headers: unauthenticated},
		"a malformed key":                     {request: chat("granite", "Authorization", "Bearer "+KeyPrefix+"!"), status: 403, headers: reason("unauthorized"), body: "access denied"},
		"an unknown key, or another tenant's": {request: chat("granite", "Authorization", "Bearer "+otherKey), status: 403, headers: reason("unauthorized")},
		"a revoked or expired key":            {request: chat("granite", "Authorization", "Bearer "+revokedKey), status: 403, headers: reason("unauthorized")},
		"a key without a subscription":        {request: chat("granite", "Authorization", "Bearer "+brokenKey), status: 403, headers: reason("unauthorized")},
		"groups that could be misread":        {request: chat("granite", "Authorization", "Bearer "+strange), status: 403, headers: reason("unauthorized")},
		"no subscription":                     {request: chat("unknown", key...), status: 403, headers: reason("not_found"), body: "no subscription of yours has the model"},
		"a subscription of others":            {request: chat("deny/access_denied", key...), status: 403, headers: reason("access_denied"), body: "no: deny/access_denied"},
		"a model that is not in it":           {request: chat("deny/model_not_in_subscription", key...), status: 403, headers: reason("model_not_in_subscription")},
		"several subscriptions":               {request: chat("deny/multiple_subscriptions", user...), status: 403, headers: reason("multiple_subscriptions")},
		"a subscription that does not work":   {request: chat("deny/model_unhealthy", key...), status: 403, headers: reason("model_unhealthy")},
		"no policy opens the model":           {request: chat("llm/closed", key...), status: 403, headers: reason("unauthorized")},
		"a forged user":                       {request: chat("granite", with(key, "X-MaaS-Username", "root")...), status: 403, headers: reason("unauthorized")},
		"a forged group":                      {request: chat("granite", with(key, "X-Maas-Group", `["admins"]`)...), status: 403, headers: reason("unauthorized")},
		"a forged user on the way to keys":    {request: at("POST", "/v1/api-keys", chat("", with(user, "x-maas-username-token", "root")...)), status: 403, headers: reason("unauthorized")},
		"internal paths":                      {request: at("POST", "/maas-api/internal/v1/api-keys/validate", chat("", user...)), status: 403, headers: reason("unauthorized")},
		"internal paths at the root":          {request: at("POST", "/internal/v1/subscriptions/select", chat("", user...)), status: 403, headers: reason("unauthorized")},
		"a path with dots":                    {request: at("POST", "/v1/models/../chat/completions", chat("granite", key...)), status: 403, headers: reason("unauthorized")},
		"a path with encoded dots":            {request: at("POST", "/v1/models/%2E%2e/chat/completions", chat("granite", key...)), status: 403, headers: reason("unauthorized")},
		"a path that routes take for another": {request: at("POST", "//v1/models", chat("granite", key...)), status: 403, headers: reason("unauthorized")},
		"no model":                            {request: chat("", key...), status: 429, headers: wait},
		"no limit":                            {request: chat("llm/free", key...), status: 429, headers: wait},

		"the store of keys is gone":       {house: &house{storeGone: true}, request: chat("granite", key...), status: 503, headers: unable},
		"the API server is gone":          {house: &house{apiServerGone: true}, request: chat("granite", user...), status: 503, headers: unable},
		"subscriptions were not seen yet": {house: &house{unsynced: true}, request: chat("granite", key...), status: 503, headers: unable},
		"subscriptions answer nothing":    {request: chat("llm/nowhere", key...), status: 503, headers: unable},
		"the counters are gone":           {house: &house{counters: gone{}}, request: chat("granite", key...), status: 503, headers: unable},
		"limits that cannot be checked":   {house: &house{limits: []quota.Limit{{Tokens: -1, Window: time.Minute}}}, request: chat("granite", key...), status: 503, headers: unable},
	} {
		t.Run(name, func(t *testing.T) {
			if c.house == nil {
				c.house = &house{}
			}
			d := ask(t, c.house.enforcer(t), c.request)
			if d.Status != c.status {
				t.Errorf("status %d, want %d: %s", d.Status, c.status, d.Message)
			}
			if diff := cmp.Diff(c.headers, d.Headers); diff != "" {
				t.Error(diff)
			}
			if c.body != "" && (string(d.Body) != c.body || d.ContentType != "text/plain") {
				t.Errorf("body %q of type %s", d.Body, d.ContentType)
			}
			if d.Status != 0 && (d.Report != nil || d.Message == "") {
				t.Errorf("a refusal without a word, or with a report: %+v", d)
			}
			if said, _ := json.Marshal([]any{d.Headers, d.Message, d.Body}); strings.Contains(string(said), "0123456789") || strings.Contains(string(said), goodToken) {
				t.Errorf("a credential is in the answer: %s", said)
			}
		})
	}
}

type gone struct{}

func (gone) Reserve(context.Context, quota.Subject, []quota.Limit, quota.Tokens) (quota.Verdict, error) {
	return quota.Verdict{Allowed: true}, errGone
}

func (gone) Settle(context.Context, quota.Hold, quota.Tokens) error { return errGone }

func TestWhatIsAsked(t *testing.T) {
	h := &house{}
	e := h.enforcer(t)
	ask(t, e, chat("granite", "Authorization", "Bearer "+goodKey, "X-MaaS-Subscription", "platinum"))
	ask(t, e, chat("granite", "Authorization", "Bearer "+goodToken, "X-MaaS-Subscription", "silver", "X-MaaS-Subscription", " "))
	ask(t, e, at("POST", "/llm/granite/v1/messages", chat("another", "Authorization", "Bearer "+slashed)))
	want := []Question{
		{"alice", []string{"team"}, "gold", "granite"},
		{"bob", []string{"staff", "system:authenticated"}, "silver", "granite"},
		{"carol", []string{"/org/team"}, "", "llm/granite"},
	}
	if diff := cmp.Diff(want, h.questions); diff != "" {
		t.Error(diff)
	}
}

func TestQuota(t *testing.T) {
	at := now
	h := &house{counters: quota.NewMemory(0, func() time.Time { return at })}
	e := h.enforcer(t)
	request := chat("granite", "Authorization", "Bearer "+goodKey)
	for _, used := range []int64{60, 60} {
		d := ask(t, e, request)
		if !d.Allowed() {
			t.Fatalf("%+v", d)
		}
		d.Report(enforcer.Usage{Prompt: used / 2, Completion: used / 2, Total: used, Known: true, Status: 200, Complete: true})
		at = at.Add(10 * time.Second)
	}
	d := ask(t, e, request)
	if d.Status != 429 || d.Headers["retry-after"] != "40" || d.Report != nil {
		t.Errorf("over the limit: %+v", d)
	}
	// Another user of the same subscription has their own.
	if d := ask(t, e, chat("granite", "Authorization", "Bearer "+goodToken)); !d.Allowed() {
		t.Errorf("%+v", d)
	}
	at = at.Add(40 * time.Second)
	if d := ask(t, e, request); !d.Allowed() {
		t.Errorf("in the next window: %+v", d)
	}
	want := metering.Record{
		Time: now, Tenant: "models-as-a-service", Subscription: "models-as-a-service/gold", Model: "llm/granite", KeyID: "id-1", Username: "alice",
		OrganizationID: "acme", CostCenter: "42", Status: 200, Prompt: 30, Completion: 30, Total: 60,
	}
	if diff := cmp.Diff([]metering.Record{want, want}, h.records); diff != "" {
		t.Error(diff)
	}
	if h.denials["rate_limited"] != 1 {
		t.Errorf("%v", h.denials)
	}
}

// TestAnswersWithoutUsage: one that failed costs nothing; one that was cut or says nothing costs what was delivered, or else
// what was expected.
func TestAnswersWithoutUsage(t *testing.T) {
	plain := chat("granite", "Authorization", "Bearer "+goodKey)
	stream, unknown, short, vectors, get := plain, plain, plain, plain, plain
	stream.Stream, unknown.Format, short.MaxTokens, vectors.Format = true, enforcer.Unknown, 7, enforcer.Embeddings
	get.Method, get.Path, get.Format, get.BodyBytes = http.MethodGet, "/llm/granite/version", enforcer.Unknown, 0
	for name, c := range map[string]struct {
		request   enforcer.Request
		usage     enforcer.Usage
		want      int64
		estimated bool
	}{
		"a good answer that does not say":     {plain, enforcer.Usage{Status: 200, Complete: true}, 510, true},
		"the same, with a bound":              {short, enforcer.Usage{Status: 200, Complete: true}, 17, true},
		"one that was seen":                   {plain, enforcer.Usage{Status: 200, Complete: true, Delivered: 33}, 43, true},
		"one of an unknown API":               {unknown, enforcer.Usage{Status: 200, Complete: true, Delivered: 33}, 43, true},
		"a list that nobody pays for":         {get, enforcer.Usage{Status: 200, Complete: true}, 0, true},
		"vectors":                             {vectors, enforcer.Usage{Status: 200, Complete: true, Delivered: 4000}, 10, true},
		"a stream that was cut":               {stream, enforcer.Usage{Status: 200, Delivered: 33}, 43, true},
		"a cut one that has said a beginning": {stream, enforcer.Usage{Status: 200, Known: true, Prompt: 9, Completion: 1, Total: 10, Delivered: 33}, 42, true},
		"a stream that the client left":       {stream, enforcer.Usage{Status: 200}, 10, true},
		"a client that left before it began":  {plain, enforcer.Usage{}, 510, true},
		"a client that did not want to wait":  {stream, enforcer.Usage{}, 10, true},
		"an error":                            {plain, enforcer.Usage{Status: 500, Complete: true, Delivered: 33}, 0, false},
		"one that says":                       {plain, enforcer.Usage{Status: 200, Complete: true, Known: true, Prompt: 1, Completion: 2, Total: 3, Delivered: 99}, 3, false},
		"an error that says":                  {plain, enforcer.Usage{Status: 500, Known: true, Prompt: 1, Total: 1}, 1, false},
	} {
		h := &house{}
		d := ask(t, h.enforcer(t), c.request)
		d.Report(c.usage)
		if len(h.records) != 1 || h.records[0].Total != c.want || h.records[0].Estimated != c.estimated {
			t.Errorf("%s: %+v", name, h.records)
		}
	}
}

// TestManyAtOnceStayWithinTheQuota: requests that say how much they want do not begin together when there is no room for all.
func TestManyAtOnceStayWithinTheQuota(t *testing.T) {
	h := &house{limits: []quota.Limit{{Tokens: 10_000, Window: time.Hour}}}
	e := h.enforcer(t)
	r := chat("granite", "Authorization", "Bearer "+goodKey)
	r.MaxTokens = 3000
	var running []enforcer.Decision
	for range 100 {
		if d := ask(t, e, r); d.Allowed() {
			running = append(running, d)
		} else if d.Status != http.StatusTooManyRequests || d.Headers["retry-after"] != "1" {
			t.Fatalf("%+v", d)
		}
	}
	var spent int64
	for _, d := range running {
		d.Report(enforcer.Usage{Status: 200, Complete: true, Known: true, Prompt: 10, Completion: 3000, Total: 3010})
		spent += 3010
	}
	if len(running) != 4 || spent > 10_000+3010 {
		t.Errorf("%d ran at once, and used %d of 10000", len(running), spent)
	}
}

func TestEveryPartIsNeeded(t *testing.T) {
	if e, err := New(Options{Tenant: "t", Selector: &house{}, Ledger: quota.NewLedger(gone{}, quota.LedgerOptions{})}); err == nil {
		t.Errorf("without keys: %v", e)
	}
	// Without tokens of a cluster only keys come in.
	h := &house{}
	e := h.enforcer(t)
	e.Tokens = nil
	if d := ask(t, e, chat("granite", "Authorization", "Bearer "+goodToken)); d.Status != 401 {
		t.Errorf("%+v", d)
	}
}

// FuzzDecide: whatever a client sends, nothing goes on to a model but with the one good key, and no answer has what could end a
// header.
func FuzzDecide(f *testing.F) {
	f.Add("POST", "/v1/chat/completions", "Authorization", "Bearer "+goodKey, "X-Maas-Username", "root")
	f.Add("GET", "/maas-api//health", "x-api-key", goodKey, "Authorization", "bearer\t"+goodToken)
	f.Add("POST", "/llm/granite/v1/messages", "X-API-KEY", KeyPrefix, "x_maas_group", "[]")
	f.Add("GET", "/v1/models%2f..%2fchat", "Authorization", "", "X-Gateway-Model-Name", "granite")
	h := &house{}
	e := h.enforcer(f)
	e.Meter = nil
	f.Fuzz(func(t *testing.T, method, path, name1, value1, name2, value2 string) {
		r := enforcer.Request{Method: method, Path: path, Headers: http.Header{}, Model: "granite", Format: enforcer.ChatCompletions}
		r.Headers.Add(name1, value1)
		r.Headers.Add(name2, value2)
		d := ask(t, e, r)
		known := strings.Contains(value1+value2, goodKey) || strings.Contains(value1+value2, goodToken) || strings.Contains(value1+value2, slashed)
		healthy := method == "GET" && path == "/maas-api/health"
		if d.Allowed() && !known && !healthy {
			t.Fatalf("let through: %+v", r)
		}
		if d.Allowed() && !healthy {
			for name := range r.Headers {
				if plain := strings.ToLower(strings.ReplaceAll(name, "_", "-")); plain == "x-maas-username" || plain == "x-maas-group" {
					t.Fatalf("forged: %+v", r)
				}
			}
		}
		if d.Report != nil {
			d.Report(enforcer.Usage{})
		}
		for name, value := range d.Headers {
			if strings.ContainsAny(name+value, "\r\n\x00") {
				t.Fatalf("%q: %q", name, value)
			}
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	h := &house{limits: []quota.Limit{{Tokens: 1e9, Window: time.Minute}, {Tokens: 1e9, Window: time.Hour}}}
	e := h.enforcer(b)
	e.Meter, e.Selector = nil, fixed{h.limits}
	r := chat("granite", "Authorization", "Bearer "+goodKey)
	b.ReportAllocs()
	for b.Loop() {
		d, err := e.Decide(b.Context(), r)
		if err != nil || !d.Allowed() {
			b.Fatal(d, err)
		}
		d.Report(enforcer.Usage{Status: 200, Known: true, Prompt: 1, Completion: 1, Total: 2})
	}
}

type fixed struct{ limits []quota.Limit }

func (f fixed) Select(context.Context, Question) (Selection, error) {
	return Selection{Namespace: "n", Name: "gold", Model: "llm/granite", Limits: f.limits, Allowed: true}, nil
}
