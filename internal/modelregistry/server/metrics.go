// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counted counts requests and how long they take, by what was asked for.
func counted(a *API, metrics *prometheus.Registry) http.Handler {
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "modelplane_registry_request_duration_seconds", Help: "How long requests to the model registry took, by method, path and status.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20},
	}, []string{"method", "path", "code"})
	metrics.MustRegister(durations)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		began := time.Now()
		_, path := a.mux.Handler(req) // a pattern, of which there are few
		if path == "" {
			path = "other"
		}
		said := &coded{ResponseWriter: w, code: http.StatusOK}
		a.ServeHTTP(said, req)
		durations.WithLabelValues(known(req.Method), path, strconv.Itoa(said.code)).Observe(time.Since(began).Seconds())
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
