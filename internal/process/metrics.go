// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/modelplane/modelplane/internal/version"
)

// Authorizer tells whether a request may be answered: nil, a *Refusal, or another error when nobody could say.
type Authorizer func(*http.Request) error

// Refusal is what a client that may not is told.
type Refusal struct {
	Code    int // an HTTP status
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// Metrics shows metrics at /metrics to those who may; with a nil Authorizer, to everybody who reaches the address. A
// refusal is no news: anyone could fill the log.
func Metrics(from prometheus.Gatherer, may Authorizer, log *slog.Logger) http.Handler {
	const atOnce = 4
	show := promhttp.HandlerFor(from, promhttp.HandlerOpts{
		ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: atOnce,
		DisableCompression: true, // it would take more memory, for as long as somebody scrapes, than the smallest programs have besides
	})
	mux := http.NewServeMux()
	mux.Handle("/metrics", guarded(show, may, log))
	return mux
}

func guarded(next http.Handler, may Authorizer, log *slog.Logger) http.Handler {
	if may == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		err := may(req)
		refusal, refused := errors.AsType[*Refusal](err)
		switch {
		case err == nil:
			next.ServeHTTP(w, req)
		case refused:
			log.Debug("Refused a request", "path", req.URL.Path, "reason", refusal.Message)
			http.Error(w, refusal.Message, refusal.Code)
		default:
			log.Error("It could not be told who may read metrics", "err", err.Error())
			http.Error(w, "it cannot be told whether this is permitted; try again", http.StatusServiceUnavailable)
		}
	})
}

// NewRegistry has what every program tells of itself: its build, its memory, its garbage collection.
func NewRegistry(program string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(BuildInfo(program), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// BuildInfo is the metric modelplane_build_info, always 1, whose labels say which build of which program is running.
func BuildInfo(program string) prometheus.Collector {
	info := version.Get()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "modelplane_build_info",
		Help: "Which build is running; the value is always 1.",
		ConstLabels: prometheus.Labels{
			"program": program, "version": info.Version, "commit": info.Commit, "date": info.Date, "goversion": info.GoVersion,
		},
	})
	gauge.Set(1)
	return gauge
}
