// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
)

// Metrics of a catalog.
type Metrics struct {
	all        prometheus.Gatherer
	requests   *prometheus.HistogramVec
	entries    *prometheus.GaugeVec
	sources    *prometheus.GaugeVec
	unreadable prometheus.Gauge
	reloads    prometheus.Counter
	hubs       *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(registry *prometheus.Registry) *Metrics {
	m := &Metrics{
		all: registry,
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "modelplane_catalog_request_duration_seconds", Help: "How long requests took, by path and status.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10},
		}, []string{"path", "code"}),
		entries: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "modelplane_catalog_entries", Help: "Entries that are shown, by kind.",
		}, []string{"asset"}),
		sources: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "modelplane_catalog_sources", Help: "Sources by status.",
		}, []string{"status"}),
		unreadable: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "modelplane_catalog_unreadable_files", Help: "Files with sources that cannot be read; what they said before is shown.",
		}),
		reloads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "modelplane_catalog_reloads_total", Help: "How often files were read again.",
		}),
		hubs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modelplane_catalog_hub_reads_total", Help: "How often Hugging Face was read, by result.",
		}, []string{"result"}),
	}
	registry.MustRegister(m.requests, m.entries, m.sources, m.unreadable, m.reloads, m.hubs)
	return m
}

// shows what a snapshot has.
func (m *Metrics) shows(s *snapshot) {
	for _, kind := range entry.Kinds {
		m.entries.WithLabelValues(kind.Asset).Set(float64(len(s.assets[kind].entries)))
	}
	count := map[string]int{available: 0, partially: 0, failing: 0, disabled: 0}
	for _, source := range s.sources {
		count[source.Status]++
	}
	for status, n := range count {
		m.sources.WithLabelValues(status).Set(float64(n))
	}
}

// status remembers what was answered.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

func (m *Metrics) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, answered := time.Now(), &status{w, http.StatusOK}
		next.ServeHTTP(answered, r)
		m.requests.WithLabelValues(r.Pattern, strconv.Itoa(answered.code)).Observe(time.Since(began).Seconds())
	})
}
