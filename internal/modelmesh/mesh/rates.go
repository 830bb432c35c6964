// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/placement"
	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
	"github.com/modelplane/modelplane/internal/modelmesh/mesh/track"
)

// rate is what is remembered of the use of a copy between two looks.
type rate struct {
	calls, busy int64
	pattern     track.Pattern

	rpm       atomic.Int64
	threshold atomic.Int64
	heavy     atomic.Int64 // when it was last used much, in milliseconds
}

// rates looks at how much each model is used here, and has more copies made of those that are used much.
func (m *Mesh) rates(ctx context.Context) {
	ticker := time.NewTicker(m.set.Periods.Rate)
	defer ticker.Stop()
	before := m.now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		m.memory.rest()
		now := m.now()
		if took := now.Sub(before); took > 0 && !m.draining.Load() {
			for _, e := range m.cache().all() {
				if state, _ := e.is(); state == active {
					m.lookAt(e, now, took)
				}
			}
		}
		before = now
	}
}

// lookAt decides about one model.
func (m *Mesh) lookAt(e *entry, now time.Time, took time.Duration) {
	row, ok := m.models.Get(e.id)
	if !ok {
		return
	}
	calls, busy := e.calls.Load(), e.busy.Load()
	done, spent := calls-e.rate.calls, busy-e.rate.busy
	e.rate.calls, e.rate.busy = calls, busy
	rpm, threshold := track.RPM(done, took), m.threshold(e, done, spent)
	e.rate.rpm.Store(rpm)
	e.rate.threshold.Store(threshold)
	if track.Heavy(rpm, threshold) {
		e.rate.heavy.Store(now.UnixMilli())
	}
	copies := len(m.present(e.id, row.Value, nil))
	wanted, exclude := copies, []string(nil)
	if done > 0 {
		growth := track.ScaleUp(m.demand(e, row.Value, rpm, threshold, now, took))
		wanted, exclude = copies+growth.Copies, growth.TooBusy
	}
	if e.want.MinCopies > wanted {
		wanted = max(wanted, min(e.want.MinCopies, m.eligible(row.Value)))
	}
	if wanted <= copies {
		return
	}
	m.log.Info("A model gets more copies", "model", e.id, "copies", copies, "wanted", wanted, "rpm", rpm)
	m.background(func(ctx context.Context) {
		asked, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_ = m.ensureCopies(asked, e.id, wanted, loadRequest{LastUsed: now.Add(track.CopyAhead).UnixMilli(), Extra: true, avoid: exclude})
	})
}

// demand is what is known of a model that was used.
func (m *Mesh) demand(e *entry, record *store.Model, rpm, threshold int64, now time.Time, took time.Duration) track.Demand {
	p := m.set.Periods
	window := track.Window{Min: p.SecondCopyAfter, Max: p.SecondCopyBefore}
	all, rules := m.candidates(nil), *m.constraints.Load()
	total := placement.Sum(all, rules, e.typ)
	d := track.Demand{
		Now: now.UnixMilli(), RPM: rpm, Tick: took, Threshold: threshold, Again: e.rate.pattern.Used(now.UnixMilli(), window), Window: window,
		AssumeLoaded: m.times.AssumeLoaded(e.typ), FreeShare: total.FreeShare(), LRUTime: total.LRUTime, SelfRPM: m.rpm.Load(),
	}
	for _, c := range record.Copies {
		if m.exists(c.Instance) {
			d.Started = append(d.Started, c.Began)
		}
	}
	for _, i := range all {
		if i.ID == m.set.Instance || !rules.Allows(e.typ, i.Labels) {
			continue
		}
		_, has := record.Copy(i.ID)
		failed := slices.ContainsFunc(record.Failures, func(f store.Failure) bool { return f.Instance == i.ID })
		d.Peers = append(d.Peers, track.Peer{ID: i.ID, RPM: i.RPM, Has: has || failed})
	}
	return d
}

// threshold is how many calls a minute a copy bears. Where the runtime bears a number of calls at once, it follows from how
// long they take.
func (m *Mesh) threshold(e *entry, calls, busy int64) int64 {
	e.mu.Lock()
	slots := cap(e.slots)
	e.mu.Unlock()
	if slots > 0 && calls > 0 {
		const tenth = int64(100 * time.Microsecond)
		if t := track.LatencyThreshold(slots, calls, busy/tenth, m.set.LatencyPercent); t > 0 {
			return t
		}
	}
	return track.Threshold(m.scaleUpRPM.Load())
}
