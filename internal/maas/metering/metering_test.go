// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib" // a driver of database/sql
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	_ "modernc.org/sqlite" // a driver of database/sql

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/postgres"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// each runs a test over every database.
func each(t *testing.T, test func(t *testing.T, s *SQL)) {
	open := func(t *testing.T, driver, address string) *SQL {
		t.Helper()
		db, err := sql.Open(driver, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		s := NewSQL(db, driver == "pgx")
		for range 2 {
			if err := s.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	t.Run("sqlite", func(t *testing.T) {
		test(t, open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "usage.db")+"?_pragma=busy_timeout(10000)&_txlock=immediate"))
	})
	t.Run("postgres", func(t *testing.T) {
		server := postgres.Start(t)
		server.Database(t, "usage")
		test(t, open(t, "pgx", server.URI("usage")+"?sslmode=disable"))
	})
}

// some rows of a few days, tenants, users and names that need care.
func some(n int) []Row {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test that can be repeated
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	out := make([]Row, n)
	for i := range out {
		r := Record{
			Time: noon.Add(time.Duration(random.IntN(72*60)) * time.Minute), Tenant: pick("one", "two"), Subscription: pick("n/gold", "n/silver", "n/Üben"),
			Model: pick("llm/a", "llm/B", "llm/c"), KeyID: pick("", "id-1", "id-2"), Username: pick("alice", "Bob", "O'Hara; DROP TABLE maas_usage --", "ünal"),
			OrganizationID: pick("", "acme"), CostCenter: pick("", "42"), Status: []int{200, 500, 0}[random.IntN(3)], Estimated: random.IntN(5) == 0,
			Prompt: random.Int64N(1000), Completion: random.Int64N(1000),
		}
		r.Total = r.Prompt + r.Completion
		out[i] = r.row()
	}
	return out
}

// TestLikeThePureFunction asks databases and plain rows the same.
func TestLikeThePureFunction(t *testing.T) {
	rows := some(700)
	queries := []Query{
		{Tenant: "one"}, {Tenant: "two", By: hourly}, {Tenant: "one", By: []Dimension{ByDay}}, {Tenant: "one", By: []Dimension{ByDay, BySubscription, ByModel}, Subscription: "n/Üben"},
		{Tenant: "one", By: []Dimension{ByUser, ByKey}, Username: "O'Hara; DROP TABLE maas_usage --"}, {Tenant: "one", By: []Dimension{ByUser}}, {Tenant: "none"}, {Tenant: "none", By: []Dimension{ByHour}},
		{Tenant: "one", By: []Dimension{ByOrganization, ByCostCenter}, OrganizationID: "acme", CostCenter: "42", Model: "llm/B", KeyID: "id-2"},
		{Tenant: "two", By: []Dimension{ByHour, ByTenant}, Limit: 10}, {Tenant: "two", By: []Dimension{ByTenant}, Limit: 1},
	}
	each(t, func(t *testing.T, s *SQL) {
		for i := 0; i < len(rows); i += 100 {
			if err := s.Add(t.Context(), fmt.Sprint("batch", i), rows[i:i+100]); err != nil {
				t.Fatal(err)
			}
		}
		for _, q := range queries {
			q.From, q.To = noon, noon.Add(48*time.Hour)
			want, wantErr := q.Select(rows)
			got, err := s.Sum(t.Context(), q)
			if !errors.Is(err, wantErr) {
				t.Fatalf("%+v: %v, want %v", q, err, wantErr)
			}
			if len(got)+len(want) > 0 && !cmp.Equal(want, got) {
				t.Errorf("%+v:\n%s", q, cmp.Diff(want, got))
			}
		}
		if _, err := s.Sum(t.Context(), Query{By: []Dimension{"1; DROP TABLE maas_usage"}}); err == nil {
			t.Error("a dimension that there is not")
		}
		if n, err := s.Forget(t.Context(), "one", noon.Add(1000*time.Hour)); err != nil || n == 0 {
			t.Errorf("forgot %d, %v", n, err)
		}
	})
}

func TestABatchCountsOnce(t *testing.T) {
	each(t, func(t *testing.T, s *SQL) {
		row := Record{Time: noon, Tenant: "one", Username: "with\x00nothing and \xff", Status: 200, Total: 5}.row()
		var all sync.WaitGroup
		for i := range 12 { // three batches, four times each, at once
			all.Go(func() {
				if err := s.Add(context.Background(), fmt.Sprint("batch", i%3), []Row{row, row}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		got, err := s.Sum(t.Context(), Query{Tenant: "one", From: noon, To: noon.Add(time.Hour)})
		if err != nil || len(got) != 1 || got[0].Requests != 6 || got[0].Total != 30 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// shelf keeps rows in memory, and can be closed. A batch that it took without saying so is what a lost answer looks like.
type shelf struct {
	mu       sync.Mutex
	closed   bool
	deaf     bool
	batches  map[string][]Row
	attempts int
}

func (s *shelf) Add(_ context.Context, batch string, rows []Row) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	if s.closed {
		return errors.New("closed")
	}
	if s.batches == nil {
		s.batches = map[string][]Row{}
	}
	s.batches[batch] = append([]Row(nil), rows...)
	if s.deaf {
		s.deaf = false
		return errors.New("the answer was lost")
	}
	return nil
}

func (s *shelf) Sum(_ context.Context, q Query) ([]Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Row
	for _, b := range s.batches {
		all = append(all, b...)
	}
	return q.Select(all)
}

func TestNothingIsLostAtACleanStop(t *testing.T) {
	rows := &shelf{closed: true}
	metrics := NewMetrics(0)
	r := NewRecorder(rows, metrics, RecorderOptions{Every: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 500 {
				if i == 0 && j == 250 {
					rows.mu.Lock()
					rows.closed, rows.deaf = false, true
					rows.mu.Unlock()
				}
				r.Used(Record{Time: noon, Tenant: "one", Username: fmt.Sprint(j % 50), Status: 200, Total: 2})
			}
		})
	}
	all.Wait()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	got, err := rows.Sum(t.Context(), Query{Tenant: "one", From: noon, To: noon.Add(time.Hour)})
	if err != nil || len(got) != 1 || got[0].Requests != 4000 || got[0].Total != 8000 {
		t.Errorf("%+v, %v", got, err)
	}
	if n := testutil.ToFloat64(metrics.dropped); n != 0 {
		t.Errorf("%v were dropped", n)
	}
}

func TestWhatDoesNotFitIsCounted(t *testing.T) {
	rows, metrics := &shelf{closed: true}, NewMetrics(0)
	r := NewRecorder(rows, metrics, RecorderOptions{Every: time.Hour, Size: 10})
	for i := range 25 {
		r.Used(Record{Time: noon, Tenant: "one", Username: fmt.Sprint(i)})
	}
	if r.waiting() != 10 || testutil.ToFloat64(metrics.dropped) != 15 {
		t.Errorf("%d wait, %v were dropped", r.waiting(), testutil.ToFloat64(metrics.dropped))
	}
	// What is on its way stays as it is; there is room for as many again.
	if err := r.flush(t.Context()); err == nil {
		t.Fatal("it was to fail")
	}
	r.Used(Record{Time: noon, Tenant: "one", Username: "late"})
	if r.waiting() != 11 {
		t.Errorf("%d wait", r.waiting())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err == nil {
		t.Error("the last batch was lost without a word")
	}
}

func TestManyRowsAreWrittenAtOnce(t *testing.T) {
	rows := &shelf{}
	r := NewRecorder(rows, NewMetrics(0), RecorderOptions{Every: time.Hour, Size: 10})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	for i := range 5 {
		r.Used(Record{Time: noon, Tenant: "one", Username: fmt.Sprint(i)})
	}
	testkit.Eventually(t, 30*time.Second, "a batch before its time", func() error {
		if got, _ := rows.Sum(t.Context(), Query{Tenant: "one", From: noon, To: noon.Add(time.Hour)}); len(got) == 1 && got[0].Requests == 5 {
			return nil
		}
		return errors.New("nothing was written")
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestMetricsAreBounded(t *testing.T) {
	m := NewMetrics(3)
	registry := prometheus.NewRegistry()
	if err := m.Register(registry); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		m.used(Record{Tenant: "one", Subscription: fmt.Sprint("n/", i), Model: "llm/a", KeyID: fmt.Sprint(i), Status: 200, Prompt: 1, Completion: 2, Total: 3})
		m.denied("one", fmt.Sprint("a reason of ", i))
	}
	m.denied("one", "rate_limited")
	want := `
		# HELP modelplane_maas_key_tokens_total Tokens that were used with API keys, by the id of the key.
		# TYPE modelplane_maas_key_tokens_total counter
		modelplane_maas_key_tokens_total{key="0",subscription="n/0",tenant="one"} 3
		modelplane_maas_key_tokens_total{key="1",subscription="n/1",tenant="one"} 3
		modelplane_maas_key_tokens_total{key="2",subscription="n/2",tenant="one"} 3
		modelplane_maas_key_tokens_total{key="other",subscription="other",tenant="one"} 51
		# HELP modelplane_maas_refused_requests_total Requests that were refused, by reason.
		# TYPE modelplane_maas_refused_requests_total counter
		modelplane_maas_refused_requests_total{reason="other",tenant="one"} 20
		modelplane_maas_refused_requests_total{reason="rate_limited",tenant="one"} 1
		# HELP modelplane_maas_requests_total Requests to models that were let through, by the status of their answers.
		# TYPE modelplane_maas_requests_total counter
		modelplane_maas_requests_total{code="2xx",model="llm/a",subscription="n/0",tenant="one"} 1
		modelplane_maas_requests_total{code="2xx",model="llm/a",subscription="n/1",tenant="one"} 1
		modelplane_maas_requests_total{code="2xx",model="llm/a",subscription="n/2",tenant="one"} 1
		modelplane_maas_requests_total{code="2xx",model="other",subscription="other",tenant="one"} 17
	`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "modelplane_maas_key_tokens_total", "modelplane_maas_refused_requests_total", "modelplane_maas_requests_total"); err != nil {
		t.Error(err)
	}
}

func TestParseQuery(t *testing.T) {
	now := noon.Add(10 * time.Minute)
	for text, want := range map[string]Query{
		"": {From: noon.Add(time.Hour).Add(-30 * 24 * time.Hour).Truncate(24 * time.Hour), To: noon.Add(time.Hour), By: []Dimension{ByDay, BySubscription, ByModel}},
		"from=2026-01-01&to=2026-02-01&by=model,hour&user=alice&format=csv": {
			From: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), By: []Dimension{ByHour, ByModel}, Username: "alice",
		},
		"from=2026-03-04T10:00:00%2B01:00&by=tenant&key=id&organization=o&cost_center=c&model=m&subscription=s": {
			From: noon.Add(-3 * time.Hour), To: noon.Add(time.Hour), By: []Dimension{ByTenant}, KeyID: "id", OrganizationID: "o", CostCenter: "c", Model: "m", Subscription: "s",
		},
	} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		want.Tenant, want.Limit = "one", MaxRows
		if got, err := ParseQuery("one", values, now); err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s: %v\n%s", text, err, cmp.Diff(want, got))
		}
	}
	for _, text := range []string{"tenant=two", "from=yesterday", "from=2026-01-01T00:30:00Z", "from=2026-02-01&to=2026-01-01", "from=2020-01-01", "by=", "by=day,hour", "by=model,model", "by=colour", "user=a&user=b", "model=" + strings.Repeat("m", 600), "from=0001-01-01&to=0001-01-02"} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseQuery("one", values, now); err == nil {
			t.Errorf("%.40s: %+v", text, got)
		}
	}
}

func TestTables(t *testing.T) {
	rows := []Row{
		{Key{Hour: noon, Username: `=cmd("x")`, Model: "llm/a"}, Sums{Requests: 2, Prompt: 1, Completion: 2, Total: 3}},
		{Key{Hour: noon.Add(24 * time.Hour), Username: "a,\"b\"", Model: "llm/a"}, Sums{Requests: 1, Failed: 1, Estimated: 1}},
	}
	by := []Dimension{ByDay, ByModel, ByUser}
	var out bytes.Buffer
	if err := WriteCSV(&out, by, rows); err != nil {
		t.Fatal(err)
	}
	want := `day,model,user,requests,failed_requests,estimated_requests,prompt_tokens,completion_tokens,total_tokens
2026-03-04,llm/a,"'=cmd(""x"")",2,0,0,1,2,3
2026-03-05,llm/a,"a,""b""",1,1,1,0,0,0
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	text, err := json.Marshal(NewAnswer(Query{From: noon, To: noon.Add(time.Hour), By: []Dimension{ByHour}}, rows[:1]))
	if err != nil {
		t.Fatal(err)
	}
	wantJSON := `{"object":"list","from":"2026-03-04T12:00:00Z","to":"2026-03-04T13:00:00Z",` +
		`"data":[{"completion_tokens":2,"estimated_requests":0,"failed_requests":0,"hour":"2026-03-04T12:00:00Z","prompt_tokens":1,"requests":2,"total_tokens":3}],` +
		`"totals":{"completion_tokens":2,"estimated_requests":0,"failed_requests":0,"prompt_tokens":1,"requests":2,"total_tokens":3}}`
	if diff := cmp.Diff(wantJSON, string(text)); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseQuery(f *testing.F) {
	f.Add("from=2026-01-01&to=2026-02-01&by=model,hour&user=alice")
	f.Add("by=day&format=csv&to=2026-01-01T00:00:00Z")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, err := ParseQuery("one", values, noon)
		if err != nil {
			return
		}
		if q.Tenant != "one" || !q.From.Before(q.To) || q.To.Sub(q.From) > maxTime || q.Limit != MaxRows || len(q.By) > len(Dimensions) {
			t.Fatalf("%+v", q)
		}
		if _, err := (&SQL{}).question(q); err != nil {
			t.Fatal(err)
		}
	})
}
