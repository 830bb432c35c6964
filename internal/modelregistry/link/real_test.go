// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/modelplane/modelplane/internal/modelregistry/server"
	"github.com/modelplane/modelplane/internal/modelregistry/server/store"
)

// realRegistry is a registry server in this process, with one registered model.
type realRegistry struct {
	*httptest.Server
	t              *testing.T
	model, version string
}

func openRegistry(t *testing.T) *realRegistry {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Type: "sqlite", DSN: filepath.Join(t.TempDir(), "registry.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	api := server.NewAPI(slog.New(slog.NewTextHandler(t.Output(), nil)))
	api.Use(db)
	r := &realRegistry{t: t, Server: httptest.NewServer(api)}
	t.Cleanup(r.Close)
	r.model = r.create("/registered_models", map[string]any{"name": "iris"})
	r.version = r.create("/model_versions", map[string]any{"name": "v1", "registeredModelId": r.model})
	return r
}

func (r *realRegistry) create(path string, body map[string]any) string {
	r.t.Helper()
	made := servingEnvironment{}
	if err := newClient(Settings{}).call(r.t.Context(), Registry{URL: r.URL}, http.MethodPost, path, nil, body, &made); err != nil || made.ID == "" {
		r.t.Fatalf("POST %s: %v", path, err)
	}
	return made.ID
}

// knows is nil when the entry is in this state and at this address.
func (r *realRegistry) knows(path, state, url string) error {
	have := &inferenceService{}
	if err := newClient(Settings{}).call(r.t.Context(), Registry{URL: r.URL}, http.MethodGet, path, nil, nil, have); err != nil {
		return err
	}
	if have.State != state || have.Properties[urlProperty]["string_value"] != url || have.Model != r.model || have.Version != r.version {
		return fmt.Errorf("the registry has %+v", have)
	}
	return nil
}
