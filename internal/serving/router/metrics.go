// SPDX-License-Identifier: Apache-2.0

package router

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the router tells of itself.
type metrics struct {
	requests, steps *prometheus.HistogramVec
	running         prometheus.Gauge
	refused, again  prometheus.Counter
	denied          prometheus.Counter
}

var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "modelplane_router_request_duration_seconds", Help: "How long requests to the graph took.", Buckets: buckets}, []string{"code"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "modelplane_router_step_duration_seconds", Help: "How long services of the graph took.", Buckets: buckets}, []string{"node", "step", "code"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "modelplane_router_requests_running", Help: "Requests that are being handled."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "modelplane_router_requests_refused_total", Help: "Requests that there was no room for."}),
		again: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "modelplane_router_calls_repeated_total", Help: "Calls that were made anew because the service had closed the connection."}),
		denied: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "modelplane_router_requests_denied_total", Help: "Requests without a token that may call the graph."}),
	}
	registry.MustRegister(m.requests, m.steps, m.running, m.refused, m.again, m.denied)
	return m
}

func (m *metrics) step(step *Step, status int, err error, took time.Duration) {
	code := "failed"
	if err == nil {
		code = class(status)
	}
	m.steps.WithLabelValues(step.node, step.label, code).Observe(took.Seconds())
}

// class is the family of a status: services could have hundreds of them.
func class(status int) string {
	if status == clientGone {
		return "gone"
	}
	return strconv.Itoa(min(max(status/100, 0), 9)) + "xx"
}
