// SPDX-License-Identifier: Apache-2.0

package inference

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics is what the server counts and measures.
type Metrics struct {
	Registry *prometheus.Registry
	label    prometheus.Labels
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	waiting  prometheus.Histogram
	running  prometheus.Histogram
	rows     prometheus.Histogram
	joined   prometheus.Histogram
}

// fine covers models that answer in a tenth of a millisecond and those that take a minute.
var fine = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// NewMetrics begins with nothing. The model is the one that the server has; it is empty when there are many, since a label
// for each of a thousand would be more than anybody stores.
func NewMetrics(model string) *Metrics {
	label := prometheus.Labels{}
	if model != "" {
		label["model"] = model
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "modelplane_onnx_" + name, Help: help, ConstLabels: label, Buckets: buckets})
	}
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		label:    label,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modelplane_onnx_requests_total", Help: "Requests for answers of the model, by protocol and status.", ConstLabels: label,
		}, []string{"protocol", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "modelplane_onnx_request_duration_seconds", Help: "Time from the first byte read to the answer.", ConstLabels: label, Buckets: fine,
		}, []string{"protocol"}),
		waiting: histogram("queue_duration_seconds", "Time that requests wait for a worker and for others to join.", fine),
		running: histogram("run_duration_seconds", "Time that runs of the model take.", fine),
		rows:    histogram("run_rows", "Rows in a run of the model.", prometheus.ExponentialBuckets(1, 2, 12)),
		joined:  histogram("run_requests", "Requests that were put together into a run of the model.", prometheus.ExponentialBuckets(1, 2, 10)),
	}
	m.Registry.MustRegister(m.requests, m.latency, m.waiting, m.running, m.rows, m.joined,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// follow registers a number that is asked for when somebody looks.
func (m *Metrics) follow(name, help string, value func() float64) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modelplane_onnx_" + name, Help: help, ConstLabels: m.label,
	}, value))
}

func (m *Metrics) service(waiting func() int, ready func() bool) {
	m.follow("queue_length", "Requests that wait for a worker.", func() float64 { return float64(waiting()) })
	m.follow("ready", "1 while the server wants new requests.", func() float64 {
		if ready() {
			return 1
		}
		return 0
	})
}

// Models follows what a server with many models has of them.
func (m *Metrics) Models(count func() int, used func() int64, capacity func() int64) {
	m.follow("models", "Models that are loaded or being loaded.", func() float64 { return float64(count()) })
	m.follow("models_bytes", "Memory that models take.", func() float64 { return float64(used()) })
	m.follow("models_capacity_bytes", "Memory that there is for models.", func() float64 { return float64(capacity()) })
}

// Answered counts a request.
func (m *Metrics) Answered(protocol, code string, took time.Duration) {
	m.requests.WithLabelValues(protocol, code).Inc()
	m.latency.WithLabelValues(protocol).Observe(took.Seconds())
}

func (m *Metrics) waited(d time.Duration) { m.waiting.Observe(d.Seconds()) }

func (m *Metrics) ran(requests int, rows int64, took time.Duration) {
	m.joined.Observe(float64(requests))
	m.rows.Observe(float64(rows))
	m.running.Observe(took.Seconds())
}
