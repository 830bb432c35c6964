// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestOverASocket: what a recorder of one process has seen is shown by the server of another.
func TestOverASocket(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	kept := &shelf{}
	mux := http.NewServeMux()
	mux.Handle("POST "+PathAdd, Receive(kept, "one", quiet))
	mux.Handle("GET "+PathShow, Show(kept, "one", func(req *http.Request) (Viewer, error) {
		user := req.Header.Get("X-User")
		if user == "" {
			return Viewer{}, errors.New("nobody")
		}
		return Viewer{user, user == "root"}, nil
	}, func() time.Time { return noon }, quiet))
	server := httptest.NewServer(mux)
	defer server.Close()

	recorder := NewRecorder(NewRemote(server.Client(), server.URL), NewMetrics(0), RecorderOptions{})
	recorder.Used(Record{Time: noon, Tenant: "one", Subscription: "n/gold", Model: "llm/a", KeyID: "id", Username: "alice", OrganizationID: "acme", CostCenter: "42", Status: 200, Estimated: true, Prompt: 1, Completion: 2, Total: 3})
	recorder.Used(Record{Time: noon, Tenant: "one", Subscription: "n/gold", Model: "llm/a", Username: "bob", Status: 500})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := recorder.Run(ended); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(len(kept.batches), 1); diff != "" {
		t.Fatal(diff)
	}

	get := func(user, query string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+PathShow+"?"+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-User", user)
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for _, c := range []struct {
		user, query string
		status      int
		want        string
	}{
		{"root", "by=user&format=csv", 200, "user,requests,failed_requests,estimated_requests,prompt_tokens,completion_tokens,total_tokens\nalice,1,0,1,1,2,3\nbob,1,1,0,0,0,0\n"},
		{"alice", "by=user&format=csv", 200, "user,requests,failed_requests,estimated_requests,prompt_tokens,completion_tokens,total_tokens\nalice,1,0,1,1,2,3\n"},
		{"alice", "user=bob", 403, "only administrators"},
		{"", "", 401, "not known"},
		{"alice", "by=nonsense", 400, "no dimension"},
		{"alice", "format=xml", 400, "json or csv"},
		{"alice", "", 200, `"total_tokens":3`},
		{"carol", "", 200, `"data":[]`},
	} {
		if status, body := get(c.user, c.query); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %s", c.user, c.query, status, body)
		}
	}
	kept.closed = true
	if err := NewRemote(server.Client(), server.URL).Add(t.Context(), "b", nil); err == nil {
		t.Error("a batch that was not kept was told to be")
	}
}

func TestBatchesThatCannotBeMeant(t *testing.T) {
	server := Receive(&shelf{}, "one", slog.New(slog.DiscardHandler))
	for body, want := range map[string]int{
		`{"batch":"b","rows":[{"hour":"2026-03-04T12:00:00Z","tenant":"one","requests":1}]}`:                      204,
		`{"batch":"b","rows":[{"hour":"2026-03-04T12:00:00Z","tenant":"two","requests":1}]}`:                      400,
		`{"batch":"b","rows":[{"hour":"2026-03-04T12:10:00Z","tenant":"one"}]}`:                                   400,
		`{"batch":"b","rows":[{"hour":"2026-03-04T12:00:00Z","tenant":"one","requests":-1}]}`:                     400,
		`{"batch":"b","rows":[{"hour":"2026-03-04T12:00:00Z","tenant":"one","totalTokens":9223372036854775807}]}`: 400,
		`{"rows":[]}`: 400, `nonsense`: 400, `{"batch":"` + strings.Repeat("b", 100) + `"}`: 400,
		strings.Repeat(" ", MaxBatch+1): 413,
	} {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest(http.MethodPost, PathAdd, strings.NewReader(body)))
		if w.Code != want {
			t.Errorf("%.100s: %d, want %d", body, w.Code, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"batch":"b","rows":[{"hour":"2026-03-04T12:00:00Z","tenant":"one","requests":1,"username":"a\u0000"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		batch, rows, err := decode(text, "one")
		if err != nil {
			return
		}
		for _, r := range clean(rows) {
			if r.Tenant != "one" || r.Requests < 0 || r.Total < 0 || strings.ContainsRune(r.Username, 0) {
				t.Fatalf("%q %+v", batch, r)
			}
		}
		var again bytes.Buffer
		if err := WriteCSV(&again, Dimensions, rows); err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(NewAnswer(Query{By: Dimensions}, rows)); err != nil {
			t.Fatal(err)
		}
	})
}
