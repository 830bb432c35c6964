// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of a registry.
type Metrics struct {
	api       *API
	durations *prometheus.HistogramVec
}

// NewMetrics registers them.
func NewMetrics(a *API, registry prometheus.Registerer) *Metrics {
	m := &Metrics{api: a, durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "modelplane_registry_request_duration_seconds", Help: "How long requests to the model registry took, by method, path and status.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20},
	}, []string{"method", "path", "code"})}
	registry.MustRegister(m.durations, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modelplane_registry_database_up", Help: "Whether the database answers and is whole: 1 or 0.",
	}, m.databaseUp))
	return m
}

// databaseUp asks when somebody wants to know: nobody else may have asked for long.
func (m *Metrics) databaseUp() float64 {
	if m.api.checks(context.Background(), "")["database"].Status != "pass" {
		return 0
	}
	return 1
}

// counted counts requests and how long they take, by what was asked for.
func (m *Metrics) counted(w http.ResponseWriter, req *http.Request) {
	began := time.Now()
	_, path := m.api.mux.Handler(req) // a pattern, of which there are few
	switch {
	case healthPath(req.URL.Path) != "": // which kubelets ask for, whoever else does
		path = "health"
	case path == "":
		path = "other"
	}
	said := &coded{ResponseWriter: w, code: http.StatusOK}
	m.api.ServeHTTP(said, req)
	m.durations.WithLabelValues(known(req.Method), path, strconv.Itoa(said.code)).Observe(time.Since(began).Seconds())
}

// handler is everything at one address: the API, and the metrics for whoever may use it.
func (m *Metrics) handler(show http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/metrics" {
			show.ServeHTTP(w, req)
			return
		}
		m.counted(w, req)
	})
}

// known keeps clients from making series of their own.
func known(method string) string {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodOptions, http.MethodHead:
		return method
	}
	return "other"
}

// coded remembers the status.
type coded struct {
	http.ResponseWriter
	code int
}

func (c *coded) WriteHeader(code int) {
	c.code = code
	c.ResponseWriter.WriteHeader(code)
}
