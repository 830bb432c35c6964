// SPDX-License-Identifier: Apache-2.0

// Package catalog is the catalog server: models, MCP servers, agents and serving runtimes that people may choose from, read
// from files and Hugging Face and shown over HTTP.
//
// It has no database. Every replica reads the sources by itself into a snapshot in memory, which is replaced as a whole when
// something changes. Numbers of entries are derived from their names, so that they are the same in every replica and after a
// restart, and a page token names the last entry of a page, so that it is good for any replica at any time.
//
// The keeper reads; the api shows; neither knows the other but for the snapshot. Nothing here talks to Kubernetes.
package catalog

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/modelplane/modelplane/internal/process"
)

// Options of the server.
type Options struct {
	// Listen is the address of the API, of /healthz and of /readyz.
	Listen string
	// Paths are the files that list sources. What a later one says counts.
	Paths []string
	// Performance are directories with measurements of models.
	Performance []string
	// Metrics is another address of /metrics, for everybody; "0": off.
	Metrics string
	// TLS is nil for a server without. Authorize is nil if whoever reaches the address may read.
	TLS       *tls.Config
	Authorize process.Authorizer
	// Getenv finds tokens.
	Getenv func(string) string
	Log    *slog.Logger
	// Delay and Timeout bound the end.
	Delay, Timeout time.Duration
}

// Run serves until the context ends.
func Run(ctx context.Context, o Options) error {
	registry := process.NewRegistry("catalog")
	k := newKeeper(o.Paths, o.Performance, o.Getenv, o.Log, NewMetrics(registry))
	k.remeasure()
	k.reload(ctx)
	return process.Program{
		Log: o.Log,
		Servers: []process.Server{{
			Name: "catalog", Address: o.Listen, TLS: o.TLS, Limits: process.Limits{Body: maxPreview},
			Handler: k.handler(o.Authorize, process.Stopping(ctx)),
		}},
		Aside:   []process.Server{{Name: "metrics", Address: o.Metrics, Handler: process.Metrics(registry, nil, o.Log)}},
		Tasks:   []func(context.Context) error{func(ctx context.Context) error { return k.run(ctx, settle) }},
		Delay:   o.Delay,
		Timeout: o.Timeout,
	}.Run(ctx)
}

// handler is everything at the main address. Health is for everybody: a kubelet has no token. Metrics are for those who may read.
func (k *keeper) handler(may process.Authorizer, stopping process.Check) http.Handler {
	a := &api{now: k.current.Load, log: k.log}
	const previews = 4
	p := &previewer{api: a, getenv: k.getenv, atOnce: make(chan struct{}, previews)}
	a.preview = p.ServeHTTP
	health := process.Health{
		Live:  map[string]process.Check{"ping": func(*http.Request) error { return nil }},
		Ready: map[string]process.Check{"sources": k.ready, "stopping": stopping},
	}.Handler(k.log)
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz", "/healthz/", "/readyz/"} {
		mux.Handle(path, health)
	}
	mux.Handle("/metrics", a.authorized(may, process.Metrics(k.metrics.all, nil, k.log)))
	mux.Handle("/", k.metrics.counted(a.authorized(may, a.handler())))
	return mux
}

func (k *keeper) ready(*http.Request) error {
	if !k.readable.Load() {
		return errors.New("none of the files in --catalogs-path can be read")
	}
	return nil
}

func (a *api) authorized(may process.Authorizer, next http.Handler) http.Handler {
	if may == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := may(r)
		if refused, ok := errors.AsType[*process.Refusal](err); ok {
			if refused.Code == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			a.fail(w, r, &refusal{refused.Code, refused.Message})
			return
		}
		if err != nil {
			a.log.Error("It could not be told who may read the catalog", "err", err.Error())
			a.fail(w, r, &refusal{http.StatusServiceUnavailable, "It cannot be told whether this is permitted; try again."})
			return
		}
		next.ServeHTTP(w, r)
	})
}
