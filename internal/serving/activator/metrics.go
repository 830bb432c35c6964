// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the activator tells of services. Series of a service go with it.
type metrics struct {
	requests *prometheus.CounterVec
	waited   *prometheus.HistogramVec
	wanted   *prometheus.GaugeVec
	writes   *prometheus.CounterVec
	unknown  prometheus.Counter
	leading  prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, b *table) *metrics {
	of := []string{"namespace", "service"}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "modelplane_activator_requests_total",
			Help: "Requests that were answered, by the class of the status."}, append(of, "code")),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "modelplane_activator_wait_seconds",
			Help: "How long requests waited for a pod.", Buckets: []float64{.001, .01, .1, 1, 5, 10, 30, 60, 120, 300}}, of),
		wanted: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "modelplane_activator_wanted_pods",
			Help: "How many pods the leader last decided for."}, of),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "modelplane_activator_scale_writes_total",
			Help: "How often the number of pods was written."}, of),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{Name: "modelplane_activator_unknown_requests_total",
			Help: "Requests for nobody."}),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{Name: "modelplane_activator_leading",
			Help: "1 on the replica that decides."}),
	}
	registry.MustRegister(m.requests, m.waited, m.wanted, m.writes, m.unknown, m.leading, inside{b})
	return m
}

// answered counts a request. Those that were handed over are counted by who took them.
func (m *metrics) answered(t *target, code int, p *passage) {
	if p.peer != "" {
		return
	}
	m.requests.WithLabelValues(t.namespace, t.name, strconv.Itoa(code/100)+"xx").Inc()
	m.waited.WithLabelValues(t.namespace, t.name).Observe(p.waited.Seconds())
}

// forget removes the series of a service.
func (m *metrics) forget(namespace, name string) {
	labels := prometheus.Labels{"namespace": namespace, "service": name}
	m.requests.DeletePartialMatch(labels)
	m.waited.DeletePartialMatch(labels)
	m.wanted.DeletePartialMatch(labels)
	m.writes.DeletePartialMatch(labels)
}

// inside tells what is under way, when it is asked.
type inside struct{ *table }

var (
	descInside  = prometheus.NewDesc("modelplane_activator_requests", "Requests that are under way, waiting or at a pod.", []string{"namespace", "service"}, nil)
	descWaiting = prometheus.NewDesc("modelplane_activator_waiting_requests", "Requests that wait for a pod.", []string{"namespace", "service"}, nil)
	descReady   = prometheus.NewDesc("modelplane_activator_ready_pods", "Pods that take requests.", []string{"namespace", "service"}, nil)
)

// Describe implements prometheus.Collector.
func (inside) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descInside, descWaiting, descReady} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (i inside) Collect(to chan<- prometheus.Metric) {
	for _, t := range i.all() {
		f := t.figures()
		to <- prometheus.MustNewConstMetric(descInside, prometheus.GaugeValue, float64(f.Inside), t.namespace, t.name)
		to <- prometheus.MustNewConstMetric(descWaiting, prometheus.GaugeValue, float64(f.Waiting), t.namespace, t.name)
		to <- prometheus.MustNewConstMetric(descReady, prometheus.GaugeValue, float64(f.Ready), t.namespace, t.name)
	}
}
