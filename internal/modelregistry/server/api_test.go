// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/modelregistry/server/store"
	"github.com/modelplane/modelplane/internal/modelregistry/server/storetest"
	"github.com/modelplane/modelplane/internal/process"
)

// registry is a server with a client.
type registry struct {
	*testing.T
	url   string
	store *store.Store
	api   *API

	config store.Config
}

func open(t *testing.T, config store.Config) *registry {
	t.Helper()
	s, err := store.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	api := NewAPI(slog.New(slog.NewTextHandler(t.Output(), nil)))
	api.Use(s)
	metrics := process.NewRegistry("registry")
	server := httptest.NewServer(http.MaxBytesHandler(NewMetrics(api, metrics).handler(process.Metrics(metrics, nil, api.log)), maxBody))
	t.Cleanup(server.Close)
	return &registry{T: t, url: server.URL + Base, store: s, api: api, config: config}
}

// shows a line among the metrics.
func (r *registry) shows(lines ...string) {
	r.Helper()
	code, text := get(r.T, strings.TrimSuffix(r.url, Base)+"/metrics")
	for _, line := range lines {
		if code != http.StatusOK || !strings.Contains(text, "\n"+line+"\n") {
			r.Errorf("%d, and %q is not among the metrics:\n%s", code, line, text)
		}
	}
}

// in is the registry for a part of the test.
func (r *registry) in(t *testing.T) *registry {
	c := *r
	c.T = t
	return &c
}

type entityJSON map[string]any

// call sends a body, if there is one, and expects a status.
func (r *registry) call(method, path, body string, want int) entityJSON {
	r.Helper()
	out, _ := r.send(method, path, body, want, nil)
	return out
}

func (r *registry) send(method, path, body string, want int, header http.Header) (entityJSON, http.Header) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	for key, values := range header {
		req.Header[key] = values
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		r.Fatal(err)
	}
	if answer.StatusCode != want {
		r.Fatalf("%s %s answers %s, not %d: %s", method, path, answer.Status, want, bytes.TrimSpace(text))
	}
	out := entityJSON{}
	if err := json.Unmarshal(text, &out); err != nil {
		r.Fatalf("%s %s answers what is no JSON: %s", method, path, text)
	}
	if want >= 400 && out["code"] != http.StatusText(want) {
		r.Errorf("%s %s: code is %v, not %q", method, path, out["code"], http.StatusText(want))
	}
	return out, answer.Header
}

func (e entityJSON) id() string { s, _ := e["id"].(string); return s }

// has compares some of the fields.
func (r *registry) has(e entityJSON, fields map[string]any) {
	r.Helper()
	for name, want := range fields {
		got, _ := json.Marshal(e[name])
		wanted, _ := json.Marshal(want)
		if string(got) != string(wanted) {
			r.Errorf("%s is %s, not %s", name, got, wanted)
		}
	}
}

// names of the items of a list.
func (r *registry) names(path string) string {
	r.Helper()
	var out []string
	list := r.call("GET", path, "", http.StatusOK)
	items, _ := list["items"].([]any)
	for _, item := range items {
		name, _ := item.(map[string]any)["name"].(string)
		out = append(out, name)
	}
	if size, _ := list["size"].(float64); int(size) != len(out) {
		r.Errorf("%s: size is %v for %d items", path, list["size"], len(out))
	}
	return strings.Join(out, " ")
}

func TestAPI(t *testing.T) {
	for name, config := range storetest.Databases(t) {
		t.Run(name, func(t *testing.T) {
			r := open(t, config(t))
			for _, part := range []struct {
				name string
				do   func(*registry)
			}{
				{"models", models}, {"versions and artifacts", versionsAndArtifacts}, {"experiments", experiments}, {"serving", serving},
				{"refusals", refusals}, {"paging", paging}, {"lists", lists}, {"long text", longText}, {"strange text", strangeText}, {"no lost update", noLostUpdate},
				{"at once", atOnce}, {"health", healthy},
			} {
				t.Run(part.name, func(t *testing.T) { part.do(r.in(t)) })
			}
			indexReturns(r)
		})
	}
}

// indexReturns: a database in which our index is missing gets it when it is opened.
func indexReturns(r *registry) {
	drop := "DROP INDEX modelplane_context_property_text"
	if r.config.Type == "mysql" {
		drop = "DROP INDEX idx_context_property_string ON ContextProperty"
	}
	for range 2 {
		if _, err := r.store.DB().ExecContext(r.Context(), drop); err != nil {
			r.Fatalf("%s: %v", drop, err)
		}
		again, err := store.Open(r.Context(), r.config)
		if err != nil {
			r.Fatalf("open it again: %v", err)
		}
		_ = again.Close()
	}
}
