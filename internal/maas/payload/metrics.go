// SPDX-License-Identifier: Apache-2.0

package payload

import "github.com/prometheus/client_golang/prometheus"

// Metrics are what the processor tells of itself.
type Metrics struct {
	open    prometheus.Gauge
	panics  prometheus.Counter
	refused *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "modelplane_payload_exchanges", Help: "Requests and answers that are under way.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "modelplane_payload_panics_total", Help: "Requests that were given up because of a mistake in the program.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modelplane_payload_refused_total", Help: "Requests that the processor answered in place of a model, by status.",
		}, []string{"code"}),
	}
	r.MustRegister(m.open, m.panics, m.refused)
	return m
}
