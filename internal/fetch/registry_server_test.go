// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/modelplane/modelplane/internal/fetch/fetchtest"
	"github.com/modelplane/modelplane/internal/modelregistry/server"
	"github.com/modelplane/modelplane/internal/modelregistry/server/store"
)

// TestModelRegistryServer asks our own registry, with more versions than a page has.
func TestModelRegistryServer(t *testing.T) {
	db, err := store.Open(t.Context(), store.Config{Type: "sqlite", DSN: filepath.Join(t.TempDir(), "registry.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	api := server.NewAPI(slog.New(slog.NewTextHandler(t.Output(), nil)))
	api.Use(db)
	registry := httptest.NewServer(api)
	t.Cleanup(registry.Close)
	send := func(method, path string, body map[string]any) string {
		t.Helper()
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), method, registry.URL+server.Base+path, bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var made struct{ ID string }
		if err := json.NewDecoder(response.Body).Decode(&made); err != nil || made.ID == "" {
			t.Fatalf("%s %s answers %s (%v)", method, path, response.Status, err)
		}
		return made.ID
	}
	files := fetchtest.New(t, map[string][]byte{"/old": []byte("old"), "/new": []byte("new")})
	const name = `it's 100% "_mine_" a/b`
	send("POST", "/registered_models", map[string]any{"name": `it's 100x "xminex" a/b`})
	model := send("POST", "/registered_models", map[string]any{"name": name})
	newest := ""
	for _, version := range []string{"v1", "v2", "v3"} {
		newest = send("POST", "/registered_models/"+model+"/versions", map[string]any{"name": version, "registeredModelId": model})
		at := files.URL + "/new"
		if version == "v1" {
			at = files.URL + "/old"
		}
		send("POST", "/model_versions/"+newest+"/artifacts", map[string]any{"artifactType": "model-artifact", "name": "m", "uri": at})
		send("POST", "/model_versions/"+newest+"/artifacts", map[string]any{"artifactType": "doc-artifact", "name": "d", "uri": "https://docs.example/x"})
	}
	send("PATCH", "/model_versions/"+newest, map[string]any{"state": "ARCHIVED"})
	for range 120 {
		newest = send("POST", "/registered_models/"+model+"/versions", map[string]any{"name": "later" + newest, "registeredModelId": model, "state": "ARCHIVED"})
	}
	for source, want := range map[string]string{
		"model-registry://it's%20100%25%20%22_mine_%22%20a%2Fb":    "new",
		"model-registry://it's%20100%25%20%22_mine_%22%20a%2Fb/v1": "old",
	} {
		got, err := newScene(map[string]string{"MODEL_REGISTRY_BASE_URL": registry.URL}).fetch(t, source)
		if err != nil || got[want] != want {
			t.Errorf("%s brings %v (%v), want %s", source, got, err, want)
		}
	}
}
