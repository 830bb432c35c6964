// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modelplane/modelplane/internal/openinference"
)

// Limits are what a router may take.
type Limits struct {
	// Body is the most bytes of a request or of a reply, Pending of all of them together, and Requests how many are
	// handled at the same time.
	Body, Pending int64
	Requests      int
}

// Router answers requests with what its graph makes of them.
type Router struct {
	graph   *Graph
	headers handedOn
	caller  *caller
	places  chan struct{}
	metrics *metrics
	log     *slog.Logger
	// time is how long a request may take, none if negative.
	time time.Duration
	// complained is the second in which a failure was last written to the log.
	complained atomic.Int64
}

// New makes a router. What in the graph or the patterns of headers cannot work goes to the log.
func New(graph *Graph, headers string, limits Limits, registry prometheus.Registerer, log *slog.Logger) *Router {
	for _, doubt := range graph.Doubts() {
		log.Warn("The graph will not do what it says: " + doubt)
	}
	patterns, wrong := readHeaders(headers)
	for _, err := range wrong {
		log.Warn("Headers are not handed on", "err", err.Error())
	}
	r := &Router{
		graph: graph, headers: patterns, metrics: newMetrics(registry), log: log, places: make(chan struct{}, limits.Requests),
		caller: newCaller(seconds(graph.Timeouts.ServiceClient, -1), openinference.NewBudget(limits.Pending, limits.Body)),
		time:   seconds(graph.Timeouts.ServerWrite, time.Minute),
	}
	r.caller.again = r.metrics.again.Inc
	return r
}

// ServeHTTP takes every path and every method, as clients are used to.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	select {
	case r.places <- struct{}{}:
	default:
		r.metrics.refused.Inc()
		fail(w, failf(http.StatusServiceUnavailable, "there are %d requests already; try again later", cap(r.places)))
		return
	}
	began := time.Now()
	r.metrics.running.Inc()
	status := http.StatusInternalServerError
	defer func() {
		r.metrics.requests.WithLabelValues(class(status)).Observe(time.Since(began).Seconds())
		r.metrics.running.Dec()
		<-r.places
	}()
	status = r.handle(w, req)
}

// handle answers one request and tells with what.
func (r *Router) handle(w http.ResponseWriter, req *http.Request) (status int) {
	ctx := req.Context()
	if r.time > 0 {
		limited, cancel := context.WithTimeout(ctx, r.time)
		defer cancel()
		ctx = limited
	}
	share := r.caller.budget.Share()
	defer share.Release()
	input, err := r.read(share, req)
	if err != nil {
		return fail(w, err)
	}
	p := &passage{Router: r, headers: r.headers.of(req.Header)}
	got, err := p.node(ctx, root, input, place{last: true})
	defer got.release()
	if req.Context().Err() != nil {
		return clientGone
	}
	if ctx.Err() != nil {
		err = failf(http.StatusGatewayTimeout, "the request took more than %s, which is what routerTimeouts.serverWrite of the graph allows", r.time)
	}
	if err == nil && got.status < http.StatusOK {
		err = failf(http.StatusInternalServerError, "a service answers with the status %d, which is none", got.status)
	}
	if err != nil {
		r.complain(err)
		return fail(w, err)
	}
	return r.reply(w, got)
}

// read takes the whole body.
func (r *Router) read(share *openinference.Share, req *http.Request) ([]byte, error) {
	body := &noting{Reader: req.Body}
	input, err := share.Read(body, req.ContentLength)
	if late, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](body.err); ok && late.Timeout() {
		return nil, failf(http.StatusRequestTimeout, "the request was not there in time, see routerTimeouts.serverRead of the graph")
	}
	return input, err
}

// complain writes to the log what a request failed of, at most once a second: metrics count them all.
func (r *Router) complain(err error) {
	if statusOf(err) < http.StatusInternalServerError {
		return
	}
	now := time.Now().Unix()
	if before := r.complained.Load(); before != now && r.complained.CompareAndSwap(before, now) {
		r.log.Warn("A request failed; of more in this second nothing is said", "err", err.Error())
	}
}

// reply writes an answer. Its kind is told by its looks.
func (r *Router) reply(w http.ResponseWriter, got answer) (status int) {
	if got.stream != nil {
		return r.stream(w, got)
	}
	if allowsBody(got.status) {
		if len(got.body) > 0 && json.Valid(got.body) {
			w.Header().Set("Content-Type", "application/json")
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(got.body)))
	}
	w.WriteHeader(got.status)
	_, _ = w.Write(got.body) // a client that went away hears nothing
	return got.status
}

func allowsBody(status int) bool {
	return status >= http.StatusOK && status != http.StatusNoContent && status != http.StatusNotModified
}

// stream hands on piece by piece what a service says. When the service breaks off, so does the answer: its end must not
// look like one.
func (r *Router) stream(w http.ResponseWriter, got answer) (status int) {
	w.Header().Set("Content-Type", got.stream.Header.Get("Content-Type"))
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(got.status)
	controller := http.NewResponseController(w)
	body := &noting{Reader: got.stream.Body}
	piece := make([]byte, 32<<10)
	for {
		n, err := body.Read(piece)
		if n > 0 {
			if _, err := w.Write(piece[:n]); err != nil {
				return clientGone
			}
			if err := controller.Flush(); err != nil {
				return clientGone
			}
		}
		if err != nil {
			break
		}
	}
	if body.err != nil {
		r.complain(failf(http.StatusInternalServerError, "a stream breaks off: %s", body.err))
		panic(http.ErrAbortHandler)
	}
	return got.status
}
