// SPDX-License-Identifier: Apache-2.0

package qpext

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// Bounds of a scrape.
const (
	mostBytes   = 16 << 20
	usualTime   = 10 * time.Second
	longestTime = 5 * time.Minute
	atOnce      = 4
	timeHeader  = "X-Prometheus-Scrape-Timeout-Seconds"
	textFormat  = "text/plain; version=0.0.4; charset=utf-8"
)

// upName is the metric that tells whether a target could be read.
const upName = "modelplane_qpext_target_up"

// Aggregator shows what its targets say.
type Aggregator struct {
	settings Settings
	client   *http.Client
	places   chan struct{}
	log      *slog.Logger

	mu   sync.Mutex
	said map[string]string // the last complaint about each target
}

// NewAggregator asks nobody before it is asked.
func NewAggregator(settings Settings, log *slog.Logger) *Aggregator {
	return &Aggregator{
		settings: settings, places: make(chan struct{}, atOnce), log: log, said: map[string]string{},
		client: &http.Client{
			Transport: &http.Transport{MaxIdleConnsPerHost: atOnce, IdleConnTimeout: 90 * time.Second},
			// The targets are in this pod. Nobody leads elsewhere from here.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Handler answers /metrics, and /healthz for kubelets.
func (a *Aggregator) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", a.show)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	return mux
}

// show answers with what could be read, and with 503 when that is nothing.
func (a *Aggregator) show(w http.ResponseWriter, req *http.Request) {
	select {
	case a.places <- struct{}{}:
		defer func() { <-a.places }()
	default:
		http.Error(w, "metrics are being read already; try again later", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), limit(req.Header.Get(timeHeader)))
	defer cancel()
	all, some := a.gather(ctx, req.Header.Get("User-Agent"))
	var text bytes.Buffer
	if err := all.write(&text); err != nil {
		a.log.Error("Metrics cannot be written", "err", err.Error())
		http.Error(w, "metrics cannot be written; see the log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", textFormat)
	w.Header().Set("Content-Length", strconv.Itoa(text.Len()))
	if !some {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(text.Bytes()) // who went away reads nothing
}

// limit is a little less than what Prometheus says that it waits.
func limit(header string) time.Duration {
	said, err := strconv.ParseFloat(header, 64)
	if err != nil || math.IsNaN(said) || said <= 0 {
		return usualTime
	}
	said = min(said, longestTime.Seconds())
	return time.Duration((said - min(0.5, said/10)) * float64(time.Second))
}

// gather asks all targets at the same time, and tells whether any of them has answered.
func (a *Aggregator) gather(ctx context.Context, agent string) (all families, some bool) {
	found := make([]families, len(a.settings.Targets))
	var asked sync.WaitGroup
	for i, target := range a.settings.Targets {
		asked.Go(func() {
			var err error
			found[i], err = a.ask(ctx, target, agent)
			a.complain(target.Name, "Metrics cannot be read", err)
		})
	}
	asked.Wait()
	all = families{}
	up := &dto.MetricFamily{Name: proto.String(upName), Type: dto.MetricType_GAUGE.Enum(),
		Help: proto.String("Whether the metrics of a part of this pod could be read.")}
	for i, target := range a.settings.Targets {
		value := 0.0
		if found[i] != nil {
			some, value = true, 1
			if target.Labelled {
				found[i].label(a.settings.Labels)
			}
			a.complain(target.Name+" beside others", "Some metrics are left out", all.add(found[i]))
		}
		up.Metric = append(up.Metric, &dto.Metric{
			Label: []*dto.LabelPair{{Name: proto.String("target"), Value: proto.String(target.Name)}}, Gauge: &dto.Gauge{Value: &value},
		})
	}
	all[upName] = up
	return all, some
}

// ask reads one target. It asks for text whatever Prometheus would take, because that is what it understands.
func (a *Aggregator) ask(ctx context.Context, target Target, agent string) (families, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4;q=1,*/*;q=0.1")
	if agent != "" {
		req.Header.Set("User-Agent", agent)
	}
	if deadline, ok := ctx.Deadline(); ok {
		req.Header.Set(timeHeader, strconv.FormatFloat(time.Until(deadline).Seconds(), 'f', -1, 64))
	}
	response, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers with %s", target.URL, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, mostBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > mostBytes {
		return nil, errors.New(target.URL + " has more than " + strconv.Itoa(mostBytes) + " bytes of metrics")
	}
	return parse(bytes.NewReader(text))
}

// complain writes to the log what is news.
func (a *Aggregator) complain(target, what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	a.mu.Lock()
	news := a.said[target] != text
	a.said[target] = text
	a.mu.Unlock()
	switch {
	case news && err != nil:
		a.log.Warn(what, "of", target, "err", text)
	case news:
		a.log.Info("Metrics can be read again", "of", target)
	}
}
