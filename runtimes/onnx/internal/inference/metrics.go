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
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	waiting  prometheus.Histogram
	running  prometheus.Histogram
	rows     prometheus.Histogram
	joined   prometheus.Histogram
}

// fine covers models that answer in a tenth of a millisecond and those that take a minute.
var fine = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

func newMetrics(model string, waiting func() float64, ready func() bool) *Metrics {
	label := prometheus.Labels{"model": model}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "modelplane_onnx_" + name, Help: help, ConstLabels: label, Buckets: buckets})
	}
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
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
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "modelplane_onnx_queue_length", Help: "Requests that wait for a worker.", ConstLabels: label,
		}, waiting),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "modelplane_onnx_ready", Help: "1 while the server wants new requests.", ConstLabels: label,
		}, func() float64 {
			if ready() {
				return 1
			}
			return 0
		}),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
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
