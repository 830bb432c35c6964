// SPDX-License-Identifier: Apache-2.0

// Package api is the HTTP server of Models-as-a-Service: API keys, models and subscriptions for people and their programs, and
// on an address of their own the questions that a gateway asks about each request. It decides who may do what. Keys are kept by
// store, checked by keys, and subscriptions chosen by selection; it has no SQL and makes no key itself.
//
// Who a caller is: an API key is checked here. Another bearer token is shown to the Kubernetes API server. The headers
// X-MaaS-Username and X-MaaS-Group are believed only from a gateway that has shown who it is; from everybody else
// they are as if they were not there.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/modelplane/modelplane/internal/maas/keys"
	"github.com/modelplane/modelplane/internal/maas/metering"
	"github.com/modelplane/modelplane/internal/maas/selection"
	"github.com/modelplane/modelplane/internal/maas/store"
)

// maxBody is the most that a client may send.
const maxBody = 1 << 20

// Options of an API.
type Options struct {
	Log *slog.Logger
	// Tenant whose keys these are.
	Tenant string
	// MaxDays is the longest life of a key.
	MaxDays  int
	Store    Keys
	Cache    *keys.Cache
	Digester *keys.Digester
	Index    *selection.Index
	Identity *Identity
	// Usage keeps what requests have used; nil: nobody counts here, and its routes are not there.
	Usage metering.Rows
	// Admin tells whether somebody may see and end the keys of others.
	Admin func(ctx context.Context, who Caller) (bool, error)
	// Tenants answers /v1/tenants; nil where nobody can say.
	Tenants TenantLister
	Metrics *Metrics
	// Synced tells that the index has seen everything there is; nil: it has.
	Synced func() bool
	// Debug lets pages of this machine call from a browser.
	Debug bool
	// Now is time.Now if nil.
	Now func() time.Time
}

// Keys is what the API needs of a store.
type Keys interface {
	Create(ctx context.Context, r *keys.Record) error
	Get(ctx context.Context, tenant, id string) (*keys.Record, error)
	Search(ctx context.Context, q store.Query) ([]*keys.Record, bool, error)
	Revoke(ctx context.Context, tenant, id string, now time.Time) (*keys.Record, error)
	RevokeAll(ctx context.Context, scope store.Scope, now time.Time) (int64, error)
	CountActive(ctx context.Context, scope store.Scope, now time.Time) (int64, error)
	CleanUp(ctx context.Context, tenant string, before time.Time) (int64, error)
	Check(ctx context.Context) error
}

// API answers requests.
type API struct {
	Options
	bodies bodies
}

// New takes all of the options.
func New(o Options) *API {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &API{Options: o}
}

// route is one line of the API.
type route struct {
	method, path string
	handle       func(*API, *http.Request, Caller) (answer, error)
	// usage is instead of handle for routes about usage, which bound what they read and write tables themselves.
	usage func(*API, http.ResponseWriter, *http.Request)
	// who tells whether a caller is needed.
	who access
	doc operation
}

type access int

const (
	open access = iota
	optional
	strict
	internal
)

// Handler is for everybody.
func (a *API) Handler() http.Handler { return a.handler(publicRoutes()) }

// Internal is for gateways and jobs of the platform, behind their own authentication.
func (a *API) Internal(may func(*http.Request) error) http.Handler {
	next := a.handler(internalRoutes())
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := may(located(req)); err != nil {
			a.write(w, req, a.failure(req, err))
			return
		}
		next.ServeHTTP(w, req)
	})
}

func (a *API) handler(routes []route) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		if r.usage != nil {
			if a.Usage != nil {
				mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) { r.usage(a, w, req) })
			}
			continue
		}
		mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) {
			a.write(w, req, a.run(r, w, req))
		})
	}
	return a.middleware(mux)
}

// run finds out who asks, and answers.
func (a *API) run(r route, w http.ResponseWriter, req *http.Request) answer {
	req.Body = http.MaxBytesReader(w, req.Body, maxBody)
	var who Caller
	if r.who == optional || r.who == strict {
		var err error
		if who, err = a.Identity.Of(req, r.who == strict); err != nil {
			return a.failure(req, err)
		}
	}
	give, room := a.bodies.take(req, maxBody)
	if !room {
		return crowded(req)
	}
	defer give()
	out, err := r.handle(a, req, who)
	if err != nil {
		return a.failure(req, err)
	}
	return out
}

// answer is what is written.
type answer struct {
	code   int
	body   any
	header map[string]string
}

func ok(body any) answer { return answer{code: http.StatusOK, body: body} }

// problem is an answer that is an error.
type problem struct {
	answer
	cause error // for the log
}

func (p *problem) Error() string { return fmt.Sprintf("%d", p.code) }

func (p *problem) Unwrap() error { return p.cause }

// told is the error shape of the routes about keys: a text, and sometimes a code.
func told(code int, message string) *problem {
	return &problem{answer: answer{code: code, body: map[string]string{"error": message}}}
}

func coded(code int, message, word string) *problem {
	return &problem{answer: answer{code: code, body: map[string]string{"error": message, "code": word}}}
}

// nested is the error shape of the routes about models and subscriptions.
func nested(code int, message, kind string) *problem {
	return &problem{answer: answer{code: code, body: map[string]any{"error": map[string]string{"message": message, "type": kind}}}}
}

// failure turns any error into an answer. What a client cannot help goes into the log, and not to the client.
func (a *API) failure(req *http.Request, err error) answer {
	p, isProblem := errors.AsType[*problem](err)
	tooLarge, large := errors.AsType[*http.MaxBytesError](err)
	_, away := errors.AsType[*store.Unavailable](err)
	shape := func(code int, message, kind string) answer {
		if isNested(req.URL.Path) {
			return nested(code, message, kind).answer
		}
		return told(code, message).answer
	}
	switch {
	case isProblem:
		return p.answer
	case large:
		return shape(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit), "invalid_request_error")
	case errors.Is(err, context.Canceled) && req.Context().Err() != nil:
		return shape(499, "the client went away", "server_error")
	case away:
		a.Log.Warn("The database is not there", "path", req.URL.Path, "request", requestID(req), "err", err.Error())
		out := shape(http.StatusServiceUnavailable, "keys cannot be reached now; try again in a moment", "server_error")
		out.header = map[string]string{"Retry-After": "1"}
		return out
	}
	a.Log.Error("A request failed", "path", req.URL.Path, "request", requestID(req), "err", err.Error())
	return shape(http.StatusInternalServerError, "the request failed; the log of the server says why, under request "+requestID(req), "server_error")
}

// isNested tells which error shape a path has.
func isNested(path string) bool {
	return path == "/v1/models" || path == "/v1/subscriptions" || path == metering.PathShow || strings.HasPrefix(path, "/v1/model/")
}

func (a *API) write(w http.ResponseWriter, req *http.Request, out answer) {
	for key, value := range out.header {
		w.Header().Set(key, value)
	}
	text, err := json.Marshal(out.body)
	if err != nil {
		a.Log.Error("An answer cannot be written", "path", req.URL.Path, "err", err.Error())
		out.code, text = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(out.code)
	_, _ = w.Write(text) // a client that went away misses it
}

// decode reads one JSON object. An empty body is one without fields where that is permitted.
func decode(req *http.Request, into any, mayBeEmpty bool) error {
	text, err := io.ReadAll(req.Body)
	if err != nil {
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return large
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return told(http.StatusRequestTimeout, "the body did not arrive in time")
		}
		return told(http.StatusBadRequest, "the body cannot be read")
	}
	return decodeText(text, into, mayBeEmpty)
}

func decodeText(text []byte, into any, mayBeEmpty bool) error {
	if len(strings.TrimSpace(string(text))) == 0 {
		if mayBeEmpty {
			return nil
		}
		return told(http.StatusBadRequest, "the body is empty; send a JSON object")
	}
	if err := json.Unmarshal(text, into); err != nil {
		return told(http.StatusBadRequest, "the body is no JSON object of the known form: "+where(err))
	}
	return nil
}

// where says what is wrong without repeating what was sent, in which a key may be.
func where(err error) string {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("it ends or goes wrong at byte %d", syntax.Offset)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("field %q cannot be a %s", wrong.Field, strings.Fields(wrong.Value + " value")[0])
	}
	return "a value has another form"
}

// storable refuses what no database keeps as text.
func storable(values ...string) bool {
	for _, v := range values {
		if strings.ContainsFunc(v, func(r rune) bool { return r == 0 || r == unicode.ReplacementChar }) || len(v) > 4096 {
			return false
		}
	}
	return true
}
