// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Ledger asks Counters that can be away. What happens to requests meanwhile is a setting: they are refused, unless Allow is
// set. What was used meanwhile is owed, and counted when the counters are back, which needs no help.
type Ledger struct {
	counters Counters
	allow    bool
	timeout  time.Duration
	log      *slog.Logger

	away, lost atomic.Uint64

	mu   sync.Mutex
	owed map[Subject]debt
}

// debt is what was used and could not be counted.
type debt struct {
	limits []Limit
	tokens Tokens
}

// maxDebts bounds what is remembered.
const maxDebts = 20_000

// LedgerOptions of a Ledger; zero fields are the safe choice.
type LedgerOptions struct {
	// Allow lets requests through while nobody can tell whether they are within their limits.
	Allow bool
	// Timeout of one question; a second if zero.
	Timeout time.Duration
	Log     *slog.Logger
}

// NewLedger asks counters.
func NewLedger(c Counters, o LedgerOptions) *Ledger {
	l := &Ledger{counters: c, allow: o.Allow, timeout: o.Timeout, log: o.Log, owed: map[Subject]debt{}}
	if l.timeout <= 0 {
		l.timeout = time.Second
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	return l
}

// Reserve is of Counters. Limits that cannot be checked refuse whatever the setting is.
func (l *Ledger) Reserve(ctx context.Context, s Subject, limits []Limit, want Tokens) (Verdict, error) {
	limited, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	v, err := l.counters.Reserve(limited, s, limits, want)
	if err == nil {
		return v, nil
	}
	l.away.Add(1)
	if !l.allow || errors.Is(err, ErrLimits) || ctx.Err() != nil {
		return Verdict{}, err
	}
	return Verdict{Allowed: true, Hold: Hold{Subject: s, Limits: limits, lease: -1}}, nil
}

// Settle counts what was used, now or later. It does not last longer than one question. Which lease it was held in is
// forgotten with a question that failed: what is held by then is free when its lease is over.
func (l *Ledger) Settle(h Hold, used Tokens) {
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	err := l.counters.Settle(ctx, h, used)
	if err == nil {
		return
	}
	l.owe(h.Subject, debt{h.Limits, used.whole()})
}

func (l *Ledger) owe(s Subject, d debt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	had, ok := l.owed[s]
	if !ok && len(l.owed) >= maxDebts {
		l.lost.Add(uint64(d.tokens.Total)) //nolint:gosec // it is not negative
		return
	}
	d.tokens.Prompt += had.tokens.Prompt
	d.tokens.Completion += had.tokens.Completion
	d.tokens.Total += had.tokens.Total
	l.owed[s] = d
}

// Run pays debts until the context ends, and once more then. A question whose answer was lost may have been counted: it is
// counted again, which is the error that nobody gains from.
func (l *Ledger) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			l.pay(context.WithoutCancel(ctx))
			return nil
		case <-tick.C:
			l.pay(ctx)
		}
	}
}

// pay stops at the first that cannot be counted: the others could not either.
func (l *Ledger) pay(ctx context.Context) {
	l.mu.Lock()
	owed := l.owed
	if len(owed) == 0 {
		l.mu.Unlock()
		return
	}
	l.owed = map[Subject]debt{}
	l.mu.Unlock()
	failed := false
	for s, d := range owed {
		if !failed {
			limited, cancel := context.WithTimeout(ctx, l.timeout)
			err := l.counters.Settle(limited, Hold{Subject: s, Limits: d.limits, lease: -1}, d.tokens)
			cancel()
			if err == nil {
				continue
			}
			l.log.Warn("Used tokens cannot be counted yet; it is tried again", "counters", len(owed), "err", err.Error())
			failed = true
		}
		l.owe(s, d)
	}
}

// Owed is how many counters are behind.
func (l *Ledger) Owed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.owed)
}

// Register shows how the counters are.
func (l *Ledger) Register(to prometheus.Registerer) error {
	of := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value)
	}
	return errors.Join(
		to.Register(of("modelplane_maas_quota_unanswered_total", "Requests for which the counters of tokens could not be asked.", func() float64 { return float64(l.away.Load()) })),
		to.Register(of("modelplane_maas_quota_lost_tokens_total", "Tokens that were used and never counted, because the counters were away for too long.", func() float64 { return float64(l.lost.Load()) })),
		to.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "modelplane_maas_quota_owed_counters", Help: "Counters of tokens that are behind because their store is away."}, func() float64 { return float64(l.Owed()) })),
	)
}
