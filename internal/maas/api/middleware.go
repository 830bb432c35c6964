// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/modelplane/modelplane/internal/maas/enforce/recall"
	"github.com/modelplane/modelplane/internal/maas/keys"
)

type requestKey struct{}

var goodRequestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// requestID by which a request is found in the log.
func requestID(req *http.Request) string {
	id, _ := req.Context().Value(requestKey{}).(string)
	return id
}

// middleware is what every request passes: an id, a line in the log, a count, and a net for what goes wrong.
func (a *API) middleware(next *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		id := req.Header.Get("X-Request-ID")
		if !goodRequestID.MatchString(id) {
			id = uuid.NewString()
		}
		req = located(req.WithContext(context.WithValue(req.Context(), requestKey{}, id)))
		w.Header().Set("X-Request-ID", id)
		if a.Debug {
			crossOrigin(w, req)
		}
		_, pattern := next.Handler(req)
		began, method := time.Now(), knownMethod(req.Method)
		watched := &watchedWriter{ResponseWriter: w, code: http.StatusOK}
		a.Metrics.inFlight.WithLabelValues(method).Inc()
		defer func() {
			if failed := recover(); failed != nil {
				a.Log.Error("A request ended the wrong way", "path", req.URL.Path, "request", id, "cause", failed, "stack", string(debug.Stack()))
				if !watched.began {
					a.write(watched, req, told(http.StatusInternalServerError, "the request failed; the log of the server says why, under request "+id).answer)
				}
			}
			a.Metrics.inFlight.WithLabelValues(method).Dec()
			took := time.Since(began)
			a.Metrics.told(method, pattern, watched.code, a.Tenant, took)
			a.Log.Debug("Answered", "method", method, "route", pattern, "status", watched.code, "took", took.String(), "request", id)
		}()
		if req.Method == http.MethodOptions { // of any path
			watched.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(watched, req)
	})
}

// located has a request say where it comes from, so that unknown credentials from one place do not delay those from others.
func located(req *http.Request) *http.Request {
	return req.WithContext(recall.From(req.Context(), recall.Source(req.Header, req.RemoteAddr)))
}

// knownMethod keeps clients from making up label values.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodOptions, http.MethodHead, http.MethodPut, http.MethodPatch:
		return method
	}
	return "OTHER"
}

type watchedWriter struct {
	http.ResponseWriter
	code  int
	began bool
}

func (w *watchedWriter) WriteHeader(code int) {
	if !w.began {
		w.code, w.began = code, true
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	w.began = true
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController and http.MaxBytesReader.
func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// crossOrigin lets pages that this machine serves without TLS call from a browser.
func crossOrigin(w http.ResponseWriter, req *http.Request) {
	origin := req.Header.Get("Origin")
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" || u.Hostname() != "localhost" && u.Hostname() != "127.0.0.1" {
		return
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-ID, "+headerSubscription)
}

// Metrics of the API, under the names that dashboards know.
type Metrics struct {
	requests          *prometheus.CounterVec
	durations         *prometheus.HistogramVec
	inFlight          *prometheus.GaugeVec
	validated, minted *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	labels := []string{"method", "route", "status", "tenant_name"}
	m := &Metrics{
		requests:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "maas_api_http_requests_total", Help: "Requests by method, route, status and tenant."}, labels),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "maas_api_http_request_duration_seconds", Help: "How long requests took."}, labels),
		inFlight:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "maas_api_http_requests_in_flight", Help: "Requests that are being answered."}, []string{"method"}),
		validated: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "maas_api_key_validation_total", Help: "Checks of API keys: valid, invalid, or error if nobody could say."}, []string{"tenant_name", "result"}),
		minted:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "maas_api_token_mint_total", Help: "Keys that were asked for: success, rejected or failure."}, []string{"tenant_name", "result"}),
	}
	registry.MustRegister(m.requests, m.durations, m.inFlight, m.validated, m.minted)
	return m
}

// CacheMetrics tells of a cache of keys.
func CacheMetrics(registry prometheus.Registerer, c *keys.Cache) {
	count := func(pick func(hits, misses uint64, known int) float64) func() float64 {
		return func() float64 { return pick(c.Counts()) }
	}
	registry.MustRegister(
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "modelplane_maas_key_cache_hits_total", Help: "Checks of keys that were answered from memory."},
			count(func(hits, _ uint64, _ int) float64 { return float64(hits) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "modelplane_maas_key_cache_misses_total", Help: "Checks of keys that asked the database."},
			count(func(_, misses uint64, _ int) float64 { return float64(misses) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "modelplane_maas_key_cache_keys", Help: "Keys in memory."},
			count(func(_, _ uint64, known int) float64 { return float64(known) })),
	)
}

func (m *Metrics) told(method, pattern string, code int, tenant string, took time.Duration) {
	_, path, found := strings.Cut(pattern, " ")
	if !found || path == "/" {
		path = "unknown"
	}
	status := strconv.Itoa(code)
	m.requests.WithLabelValues(method, path, status, tenant).Inc()
	m.durations.WithLabelValues(method, path, status, tenant).Observe(took.Seconds())
}
