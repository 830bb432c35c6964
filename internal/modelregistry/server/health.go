// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/modelregistry/server/entity"
	"github.com/modelplane/modelplane/internal/modelregistry/server/store"
)

// healthTime is how long a database may take to say that it is there.
const healthTime = 4 * time.Second

// healthPath is the end of a path that asks for health, behind whatever prefix; else empty.
func healthPath(path string) string {
	for _, end := range []string{"/readyz/isDirty", "/readyz/health"} {
		if strings.HasSuffix(path, end) {
			return end
		}
	}
	return ""
}

// check is one of the things that were looked at, in the form that clients know.
type check struct {
	Name, Status, Message string
	Details               map[string]string
}

// health tells whether the database is there and whole, and for "health" whether entities can be read from it.
func (a *API) health(w http.ResponseWriter, req *http.Request, what string) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		a.tell(w, http.StatusMethodNotAllowed, "health is only read")
		return
	}
	checks := a.checks(req.Context(), what)
	status, code, message := "pass", http.StatusOK, "OK"
	for _, name := range []string{"database", "model-registry"} {
		if c, there := checks[name]; there && c.Status != "pass" && code == http.StatusOK {
			status, code, message = "fail", http.StatusServiceUnavailable, c.Message
		}
	}
	if req.URL.Query().Get("format") == "json" {
		a.write(w, code, map[string]any{"status": status, "checks": checks})
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(message)) // a probe that went away misses it
}

func (a *API) checks(ctx context.Context, what string) map[string]check {
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	out := map[string]check{"database": {Name: "database", Status: "pass", Message: "the database answers"}}
	s := a.store.Load()
	if s == nil {
		out["database"] = check{Name: "database", Status: "fail", Message: "there is no database yet; the log says why"}
		return out
	}
	if err := s.Check(ctx); err != nil {
		a.log.Warn("The database is not well", "err", err.Error())
		out["database"] = check{Name: "database", Status: "fail", Message: "the database does not answer, or is not whole; the log says why"}
		return out
	}
	if what != "health" {
		return out
	}
	readable := check{Name: "model-registry", Status: "pass", Message: "entities can be read"}
	if _, err := s.List(ctx, store.Query{Kinds: []*entity.Kind{model}, Limit: 1}); err != nil {
		a.log.Warn("Entities cannot be read", "err", err.Error())
		readable.Status, readable.Message = "fail", "entities cannot be read; the log says why"
	}
	out["model-registry"] = readable
	return out
}
