// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/modelregistry/server"
	"github.com/modelplane/modelplane/internal/modelregistry/server/store"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestCounts fills a registry twice and checks what does not depend on the machine: a request takes the same statements
// however much there is.
func TestCounts(t *testing.T) {
	b := newBed(t, "postgres")
	s, err := store.Open(t.Context(), store.Config{Type: b.kind, DSN: b.counted})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	api := server.NewAPI(slog.New(slog.DiscardHandler))
	api.Use(s)
	ours := httptest.NewServer(api)
	t.Cleanup(ours.Close)

	in := &content{prefix: "bench-"}
	if err := seedByAPI(t.Context(), newClient(ours.URL, 1), in, 10); err != nil {
		t.Fatal(err)
	}
	few := counts(t, ours.URL, in, b.wire)
	if err := seedByStatements(t.Context(), b.db, b.kind, in, 990); err != nil {
		t.Fatal(err)
	}
	many := counts(t, ours.URL, in, b.wire)
	for _, o := range operations {
		if few.Figures[o.name].Statements != many.Figures[o.name].Statements {
			t.Errorf("%s takes %.1f statements per request with 10 models, %.1f with 1,000", o.name, few.Figures[o.name].Statements, many.Figures[o.name].Statements)
		}
	}
	for _, broken := range many.broken() {
		t.Error(broken)
	}
	sameByBothWays(t, ours.URL, in)
	testkit.Eventually(t, 30*time.Second, "the database to tell that it used our index", func() error {
		var scans int
		err := b.db.QueryRowContext(t.Context(), "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'modelplane_context_property_text'").Scan(&scans)
		if err == nil && scans == 0 {
			err = errors.New("it has not")
		}
		return err
	})
}

func counts(t *testing.T, address string, in *content, w *wire) *report {
	t.Helper()
	r := &report{Server: "ours", Models: len(in.ids), Figures: map[string]figures{}}
	for _, o := range operations {
		n, err := o.count(t.Context(), address, in, w)
		if err != nil {
			t.Fatal(err)
		}
		if n < 1 {
			t.Errorf("%s takes %.1f statements per request; they are not counted", o.name, n)
		}
		r.Figures[o.name] = figures{Statements: n}
	}
	return r
}

// sameByBothWays compares a model that the API made with one that statements made: what is measured is what clients write.
func sameByBothWays(t *testing.T, address string, in *content) {
	t.Helper()
	var texts [2]string
	for i, n := range []int{5, 505} { // their owners are the same
		for _, path := range []string{"/registered_models/" + in.ids[n], "/registered_models/" + in.ids[n] + "/versions"} {
			text, err := get(t.Context(), address+base+path)
			if err != nil {
				t.Fatal(err)
			}
			texts[i] += text
		}
	}
	different := regexp.MustCompile(`"(id|registeredModelId|createTimeSinceEpoch|lastUpdateTimeSinceEpoch|name|description|string_value|author)":"[^"]*"|"double_value":[0-9.]*`)
	if a, b := different.ReplaceAllString(texts[0], "$1"), different.ReplaceAllString(texts[1], "$1"); a != b {
		t.Errorf("by the API: %s\nby statements: %s", a, b)
	}
}

func get(ctx context.Context, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", address, answer.Status)
	}
	var out bytes.Buffer
	if err == nil {
		err = json.Compact(&out, text)
	}
	return out.String(), err
}
