// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modelplane/modelplane/internal/process"
)

// metrics tell how requests went. Labels are few, whatever clients ask for: a model's name is none.
type metrics struct {
	registry *prometheus.Registry

	took           *prometheus.HistogramVec
	received, sent *prometheus.CounterVec
	underWay       prometheus.Gauge
}

func newMetrics() *metrics {
	labels := []string{"operation"}
	m := &metrics{
		registry: process.NewRegistry("mesh-rest"),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "modelplane_mesh_rest_request_duration_seconds", Help: "How long requests took until the last byte of the answer.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300},
		}, append(labels, "code")),
		received: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modelplane_mesh_rest_received_bytes_total", Help: "Bytes of bodies of requests, as far as clients said how long they are.",
		}, labels),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modelplane_mesh_rest_sent_bytes_total", Help: "Bytes of bodies of answers.",
		}, labels),
		underWay: prometheus.NewGauge(prometheus.GaugeOpts{Name: "modelplane_mesh_rest_requests_under_way", Help: "Requests that are being handled."}),
	}
	m.registry.MustRegister(m.took, m.received, m.sent, m.underWay)
	return m
}

// counted tells of what a handler does.
func (m *metrics) counted(operation string, next http.HandlerFunc) http.HandlerFunc {
	received, sent := m.received.WithLabelValues(operation), m.sent.WithLabelValues(operation)
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		m.underWay.Inc()
		seen := &seen{ResponseWriter: w, code: http.StatusOK}
		defer func() {
			m.underWay.Dec()
			received.Add(float64(max(r.ContentLength, 0)))
			sent.Add(float64(seen.bytes))
			m.took.WithLabelValues(operation, strconv.Itoa(seen.code)).Observe(time.Since(began).Seconds())
		}()
		next(seen, r)
	}
}

// seen is an answer that is looked at as it is written.
type seen struct {
	http.ResponseWriter
	code  int
	bytes int
	begun bool
}

// Unwrap leads to what can flush, and has deadlines.
func (s *seen) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// WriteHeader remembers the status.
func (s *seen) WriteHeader(code int) {
	if !s.begun {
		s.begun, s.code = true, code
	}
	s.ResponseWriter.WriteHeader(code)
}

// Write counts.
func (s *seen) Write(p []byte) (int, error) {
	s.begun = true
	n, err := s.ResponseWriter.Write(p)
	s.bytes += n
	return n, err //nolint:wrapcheck // whoever writes compares it
}
