// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/process"
)

// metrics tell how models came. None has a model's name.
type metrics struct {
	registry *prometheus.Registry

	pulled, loaded    *prometheus.HistogramVec
	bytes             *prometheus.CounterVec
	waiting, underWay prometheus.Gauge
}

// newMetrics counts the models below the folder whenever somebody asks.
func newMetrics(models folder) *metrics {
	buckets := []float64{.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60, 120, 300, 600}
	m := &metrics{
		registry: process.NewRegistry("mesh-puller"),
		pulled: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "modelplane_mesh_puller_pull_duration_seconds", Help: "How long it took to bring the files of models.", Buckets: buckets,
		}, []string{"storage", "code"}),
		loaded: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "modelplane_mesh_puller_load_duration_seconds", Help: "How long the runtime took to load models whose files were there.", Buckets: buckets,
		}, []string{"code"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modelplane_mesh_puller_pulled_bytes_total", Help: "Bytes of the files that were brought.",
		}, []string{"storage"}),
		waiting:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "modelplane_mesh_puller_pulls_waiting", Help: "Models that wait for their turn to be fetched."}),
		underWay: prometheus.NewGauge(prometheus.GaugeOpts{Name: "modelplane_mesh_puller_pulls_under_way", Help: "Models that are being fetched."}),
	}
	m.registry.MustRegister(m.pulled, m.loaded, m.bytes, m.waiting, m.underWay, prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "modelplane_mesh_puller_models", Help: "Models whose files are in this pod."},
		func() float64 {
			names, err := models.list()
			if err != nil {
				return 0
			}
			return float64(len(names))
		}))
	return m
}

// unknown is the storage of a model that does not say where it is.
const unknown = "unknown"

// pull counts one attempt to bring files; size is 0 for one that failed.
func (m *metrics) pull(storage string, began time.Time, size int64, err error) {
	m.pulled.WithLabelValues(storage, status.Code(err).String()).Observe(time.Since(began).Seconds())
	m.bytes.WithLabelValues(storage).Add(float64(size))
}

func (m *metrics) load(began time.Time, err error) {
	m.loaded.WithLabelValues(status.Code(err).String()).Observe(time.Since(began).Seconds())
}
