// SPDX-License-Identifier: Apache-2.0

// Package server is the model registry: the REST API that clients of registries know, made from the table of entities, on
// a database. It does not know Kubernetes, except to ask who may call it.
package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/modelplane/modelplane/internal/modelregistry/server/entity"
	"github.com/modelplane/modelplane/internal/modelregistry/server/filter"
	"github.com/modelplane/modelplane/internal/modelregistry/server/store"
)

// Base is the path of the API. The same is served under the name that newer clients have for it.
const (
	Base      = "/api/model_registry/v1alpha3"
	newerBase = "/api/model_registry/v1"
)

// answerTime is how long the database may take for one request.
const answerTime = 20 * time.Second

// API answers requests from a database, once there is one.
type API struct {
	log   *slog.Logger
	store atomic.Pointer[store.Store]
	mux   *http.ServeMux
}

// collection is a path below which entities of some kinds are.
type collection struct {
	plural, singular string
	kinds            []*entity.Kind
}

// nested is a path below one entity with those that belong to it.
type nested struct {
	of    collection
	below string
	kinds []*entity.Kind
}

var (
	modelArtifact = entity.ByName("ModelArtifact")
	metric        = entity.ByName("Metric")
	parameter     = entity.ByName("Parameter")
	metricHistory = entity.ByName("MetricHistory")
	modelVersion  = entity.ByName("ModelVersion")
	model         = entity.ByName("RegisteredModel")
	run           = entity.ByName("ExperimentRun")
	service       = entity.ByName("InferenceService")
	serveModel    = entity.ByName("ServeModel")
)

// artifactKinds are those that clients see as artifacts.
func artifactKinds() []*entity.Kind {
	var out []*entity.Kind
	for _, k := range entity.Kinds {
		if k.Table == entity.Artifacts && k != metricHistory {
			out = append(out, k)
		}
	}
	return out
}

// collections are all of them.
func collections() []collection {
	var out []collection
	for _, k := range entity.Kinds {
		if k.Plural != "" {
			out = append(out, collection{k.Plural, k.Singular, []*entity.Kind{k}})
		}
	}
	return append(out, collection{"artifacts", "artifact", artifactKinds()}, collection{"model_artifacts", "model_artifact", []*entity.Kind{modelArtifact}})
}

// belows are all paths below entities.
func belows() []nested {
	var out []nested
	for _, c := range collections() {
		for _, k := range entity.Kinds {
			if k.Parent != nil && k.Parent.Kind == c.kinds[0].Name {
				out = append(out, nested{c, k.Parent.Below, []*entity.Kind{k}})
			}
		}
		if c.kinds[0] == modelVersion || c.kinds[0] == run {
			out = append(out, nested{c, "artifacts", artifactKinds()})
		}
	}
	return out
}

// NewAPI is an API whose database is still missing: it says so until there is one.
func NewAPI(log *slog.Logger) *API {
	a := &API{log: log, mux: http.NewServeMux()}
	for _, c := range collections() {
		a.handle("GET", c.singular, a.find(c))
		a.handle("GET", c.plural, a.list(nested{kinds: c.kinds}))
		a.handle("POST", c.plural, a.create(nested{kinds: c.kinds}))
		a.handle("GET", c.plural+"/{id}", a.get(c))
		a.handle("PATCH", c.plural+"/{id}", a.update(c))
	}
	for _, n := range belows() {
		a.handle("GET", n.of.plural+"/{id}/"+n.below, a.list(n))
		a.handle("POST", n.of.plural+"/{id}/"+n.below, a.create(n))
	}
	a.handle("GET", "inference_services/{id}/model", a.modelOf)
	a.handle("GET", "inference_services/{id}/version", a.versionOf)
	runs := collection{run.Plural, run.Singular, []*entity.Kind{run}}
	a.handle("GET", "experiment_runs/metric_history", a.list(nested{kinds: []*entity.Kind{metricHistory}}))
	a.handle("GET", "experiment_runs/{id}/metric_history", a.list(nested{runs, "metric_history", []*entity.Kind{metricHistory}}))
	a.serve("GET", "openapi.json", func(w http.ResponseWriter, _ *http.Request) { a.write(w, http.StatusOK, document()) })
	return a
}

// Use gives the API its database.
func (a *API) Use(s *store.Store) { a.store.Store(s) }

// answer is what a handler has to say.
type answer struct {
	code int
	body any
}

// handle registers a handler. All of them need the database, and none may take it for long.
func (a *API) handle(method, path string, do func(context.Context, *store.Store, *http.Request) (answer, error)) {
	if path == "" {
		return
	}
	a.serve(method, path, func(w http.ResponseWriter, req *http.Request) {
		s := a.store.Load()
		if s == nil {
			http.Error(w, "the registry has no database yet; see its log", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), answerTime)
		defer cancel()
		told, err := do(ctx, s, req)
		if err != nil {
			a.refuse(w, req, err)
			return
		}
		if r, one := told.body.(*entity.Record); one {
			w.Header().Set("ETag", tag(r))
		}
		a.write(w, told.code, told.body)
	})
}

func (a *API) serve(method, path string, handler http.HandlerFunc) {
	for _, base := range []string{Base, newerBase} {
		a.mux.HandleFunc(method+" "+base+"/"+path, handler)
	}
}

// ServeHTTP answers a request, also one for what there is not.
func (a *API) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	allowOrigins(w.Header())
	if req.Method == http.MethodOptions {
		w.WriteHeader(http.StatusOK)
		return
	}
	if name, is := strings.CutPrefix(healthPath(req.URL.Path), "/readyz/"); is {
		a.health(w, req, name)
		return
	}
	if err := checkAddress(req.URL); err != nil {
		a.refuse(w, req, err)
		return
	}
	if _, pattern := a.mux.Handler(req); pattern != "" {
		a.mux.ServeHTTP(w, req)
		return
	}
	refusal := &captured{header: http.Header{}, code: http.StatusOK}
	a.mux.ServeHTTP(refusal, req)
	if allow := refusal.header.Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
	}
	a.tell(w, refusal.code, "there is nothing at "+req.Method+" "+req.URL.Path)
}

// checkAddress refuses text that no database takes.
func checkAddress(u *url.URL) error {
	texts := []string{u.Path}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("the query of the address cannot be read")
	}
	for name, each := range values {
		texts = append(append(texts, name), each...)
	}
	for _, text := range texts {
		switch {
		case strings.ContainsRune(text, 0):
			return bad("the address has a null byte")
		case !utf8.ValidString(text):
			return bad("the address has bytes that are no text in UTF-8")
		}
	}
	return nil
}

// captured keeps what the multiplexer says of a request that nobody handles, so that it can be said in JSON.
type captured struct {
	header http.Header
	code   int
}

func (c *captured) Header() http.Header         { return c.header }
func (c *captured) Write(p []byte) (int, error) { return len(p), nil }
func (c *captured) WriteHeader(code int)        { c.code = code }

// allowOrigins lets pages of any origin call the API, as they always could. There are no cookies that they could misuse.
func allowOrigins(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "GET, POST, PATCH, OPTIONS")
	h.Set("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, If-Match, X-CSRF-Token")
	h.Set("Access-Control-Expose-Headers", "ETag, Link")
}

func (a *API) write(w http.ResponseWriter, code int, body any) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		a.log.Error("An answer could not be written", "err", err.Error())
		code = http.StatusInternalServerError
		text.Reset()
		text.WriteString(`{"code":"Internal Server Error","message":"the answer could not be written; see the log of the registry"}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(code)
	_, _ = w.Write(text.Bytes()) // a client that went away misses it
}

// tell writes an error in the form that clients know.
func (a *API) tell(w http.ResponseWriter, code int, message string) {
	a.write(w, code, map[string]string{"code": http.StatusText(code), "message": message})
}

// refuse says what went wrong. What is nobody's fault but ours is for the log.
func (a *API) refuse(w http.ResponseWriter, req *http.Request, err error) {
	var (
		invalid     *entity.Invalid
		query       *filter.Error
		conflict    *store.Conflict
		unavailable *store.Unavailable
		large       *http.MaxBytesError
		missing     *notFound
	)
	switch {
	case errors.As(err, &invalid) && invalid.Missing:
		a.tell(w, http.StatusUnprocessableEntity, invalid.Message)
	case errors.As(err, &invalid):
		a.tell(w, http.StatusBadRequest, invalid.Message)
	case errors.As(err, &query):
		a.tell(w, http.StatusBadRequest, query.Error())
	case errors.As(err, &conflict):
		a.tell(w, http.StatusConflict, conflict.Message)
	case errors.As(err, &missing):
		a.tell(w, http.StatusNotFound, missing.Error())
	case errors.Is(err, store.ErrNotFound):
		a.tell(w, http.StatusNotFound, "no such entity was found")
	case errors.Is(err, store.ErrChanged):
		a.tell(w, http.StatusPreconditionFailed, err.Error())
	case errors.As(err, &large):
		a.tell(w, http.StatusRequestEntityTooLarge, "the body is too large")
	case errors.As(err, &unavailable) && unavailable.Full:
		a.log.Error("The database has no room left; nothing can be written until there is some", "path", req.URL.Path, "err", err.Error())
		a.tell(w, http.StatusInsufficientStorage, "the database has no room left; make room on its disk, and try again")
	case errors.As(err, &unavailable):
		a.log.Warn("The database does not answer", "path", req.URL.Path, "err", err.Error())
		w.Header().Set("Retry-After", "5")
		a.tell(w, http.StatusServiceUnavailable, "the database does not answer; try again")
	default:
		a.log.Error("A request failed", "method", req.Method, "path", req.URL.Path, "err", err.Error())
		a.tell(w, http.StatusInternalServerError, "the registry failed to do this; its log says why")
	}
}

// notFound is an entity that is not there.
type notFound struct{ kind, id string }

func (n *notFound) Error() string { return "no " + n.kind + " with id " + n.id + " was found" }
