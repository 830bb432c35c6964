// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of usage. How many series there can be is bounded: of subscriptions, models and keys that come after the first so
// many, all are called other. Users are not among the labels; rows know them.
type Metrics struct {
	requests, tokens, keyTokens, refusals *prometheus.CounterVec
	written, failures, dropped            prometheus.Counter

	mu    sync.Mutex
	max   int
	known [2]map[[4]string]bool
}

// other stands for all that came too late.
const other = "other"

// DefaultSeries is how many combinations of labels are told apart.
const DefaultSeries = 2000

// NewMetrics tells so many combinations apart (DefaultSeries if zero).
func NewMetrics(series int) *Metrics {
	if series <= 0 {
		series = DefaultSeries
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "modelplane_maas_" + name, Help: help}, labels)
	}
	single := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "modelplane_maas_" + name, Help: help})
	}
	return &Metrics{
		requests:  vector("requests_total", "Requests to models that were let through, by the status of their answers.", "tenant", "subscription", "model", "code"),
		tokens:    vector("tokens_total", "Tokens that were used, by kind: prompt, completion or total.", "tenant", "subscription", "model", "kind"),
		keyTokens: vector("key_tokens_total", "Tokens that were used with API keys, by the id of the key.", "tenant", "subscription", "key"),
		refusals:  vector("refused_requests_total", "Requests that were refused, by reason.", "tenant", "reason"),
		written:   single("usage_rows_written_total", "Rows of usage that were written to the database."),
		failures:  single("usage_write_failures_total", "Batches of usage that could not be written and are tried again."),
		dropped:   single("usage_records_dropped_total", "Requests whose usage is in no row, because too many rows were waiting."),
		max:       series, known: [2]map[[4]string]bool{{}, {}},
	}
}

// Register shows them.
func (m *Metrics) Register(to prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.requests, m.tokens, m.keyTokens, m.refusals, m.written, m.failures, m.dropped} {
		if err := to.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// among tells whether a combination is one of those that are told apart.
func (m *Metrics) among(which int, labels [4]string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.known[which]
	if known[labels] {
		return true
	}
	if len(known) >= m.max {
		return false
	}
	known[labels] = true
	return true
}

func (m *Metrics) used(r Record) {
	subscription, model := r.Subscription, r.Model
	if !m.among(0, [4]string{r.Tenant, subscription, model}) {
		subscription, model = other, other
	}
	m.requests.WithLabelValues(r.Tenant, subscription, model, class(r.Status)).Inc()
	for kind, n := range map[string]int64{"prompt": r.Prompt, "completion": r.Completion, "total": r.Total} {
		m.tokens.WithLabelValues(r.Tenant, subscription, model, kind).Add(float64(bounded(n)))
	}
	if r.KeyID == "" {
		return
	}
	subscription, key := r.Subscription, r.KeyID
	if !m.among(1, [4]string{r.Tenant, subscription, key}) {
		subscription, key = other, other
	}
	m.keyTokens.WithLabelValues(r.Tenant, subscription, key).Add(float64(bounded(r.Total)))
}

// class is 2xx and so on; none if nothing came.
func class(status int) string {
	if status < 100 || status > 599 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}

// reasons that are known; a word from elsewhere is other.
var reasons = map[string]bool{
	"unauthorized": true, "rate_limited": true, "internal_error": true, "bad_request": true, "not_found": true, "access_denied": true,
	"multiple_subscriptions": true, "model_not_in_subscription": true, "model_unhealthy": true, "Authentication required": true,
}

func (m *Metrics) denied(tenant, reason string) {
	if !reasons[reason] {
		reason = other
	}
	if reason == "Authentication required" {
		reason = "unauthenticated"
	}
	m.refusals.WithLabelValues(tenant, reason).Inc()
}
