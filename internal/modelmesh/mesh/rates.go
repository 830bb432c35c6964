// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
)

// rate is what is remembered of the use of a copy between two looks.
type rate struct {
	calls, busy int64
	uses        []time.Time

	rpm   atomic.Int64
	heavy atomic.Int64 // when it was last used much, in milliseconds
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
	threshold := m.threshold(e)
	calls := e.calls.Load()
	done := calls - e.rate.calls
	e.rate.calls = calls
	rpm := done * int64(time.Minute) / int64(took)
	e.rate.rpm.Store(rpm)
	if 4*rpm > 3*threshold {
		e.rate.heavy.Store(now.UnixMilli())
	}
	row, ok := m.models.Get(e.id)
	if !ok {
		return
	}
	copies := len(m.present(e.id, row.Value, nil))
	wanted := copies
	switch {
	case rpm >= threshold && !m.justGrown(row.Value, now, took, e.typ):
		wanted += m.growth(rpm, threshold, copies)
	case done > 0 && copies == 1 && m.returns(e, now):
		wanted = 2
	}
	if done > 0 {
		e.rate.uses = append(e.rate.uses, now)
		if len(e.rate.uses) > 64 {
			e.rate.uses = e.rate.uses[1:]
		}
	}
	if wanted = max(wanted, min(e.want.MinCopies, m.eligible(row.Value))); wanted > copies {
		m.log.Info("A model gets more copies", "model", e.id, "copies", copies, "wanted", wanted, "rpm", rpm)
		m.background(func(ctx context.Context) {
			asked, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			_ = m.ensureCopies(asked, e.id, wanted, loadRequest{LastUsed: now.Add(20 * time.Second).UnixMilli(), Extra: true})
		})
	}
}

// threshold is how many calls a minute a copy bears. Where the runtime bears a number of calls at once, it follows from how
// long they take.
func (m *Mesh) threshold(e *entry) int64 {
	e.mu.Lock()
	slots := cap(e.slots)
	e.mu.Unlock()
	calls, busy := e.calls.Load(), e.busy.Load()
	lately, spent := calls-e.rate.calls, busy-e.rate.busy
	e.rate.busy = busy
	if slots == 0 || lately <= 0 || spent <= 0 {
		return m.scaleUpRPM.Load()
	}
	return max(int64(slots)*lately*int64(time.Minute)/spent*int64(m.set.LatencyPercent)/100, 1)
}

// justGrown tells whether a copy began so lately that its effect cannot be seen yet.
func (m *Mesh) justGrown(record *store.Model, now time.Time, took time.Duration, typ string) bool {
	settle := took + min(10*time.Second, m.set.Periods.Rate) + 2*min(m.times.assumed(typ, m.runtime.said.Load().loadTimeout), m.set.Periods.Rate)
	for _, c := range record.Copies {
		if c.Loaded == 0 && m.exists(c.Instance) || c.Instance != m.set.Instance && now.Sub(time.UnixMilli(c.Began)) < settle {
			return true
		}
	}
	return false
}

// growth is how many copies more are tried at once.
func (m *Mesh) growth(rpm, threshold int64, copies int) int {
	cluster := m.instances.Len()
	more := min(int(min(rpm/threshold, 1000)), cluster-copies)
	if more > 2 {
		more = max(min(more, cluster/3), 2)
	}
	return max(more, 0)
}

// returns tells whether a model is used again and again over a longer time, and so deserves a second copy while there is
// room for it.
func (m *Mesh) returns(e *entry, now time.Time) bool {
	p := m.set.Periods
	for _, use := range e.rate.uses {
		if ago := now.Sub(use); ago >= p.SecondCopyAfter && ago <= p.SecondCopyBefore {
			return m.roomy(now)
		}
	}
	return false
}

// roomy tells whether the mesh has memory to spare, or what is in it is old.
func (m *Mesh) roomy(now time.Time) bool {
	var used, capacity, oldest int64
	oldest = now.UnixMilli()
	m.instances.Each(func(_ string, row store.Row[store.Instance]) bool {
		used, capacity, oldest = used+row.Value.Used, capacity+row.Value.Capacity, min(oldest, row.Value.LRU)
		return true
	})
	age := now.Sub(time.UnixMilli(oldest))
	return 10*(capacity-used) >= capacity || age > max(30*m.set.Periods.SecondCopyBefore, 6*time.Hour)
}

// eligible is how many instances may have a model.
func (m *Mesh) eligible(record *store.Model) int {
	_, rule := m.constraints.Load().of(record.Type())
	count := 0
	for _, instance := range m.candidates(nil) {
		if rule.allows(instance.Labels) {
			count++
		}
	}
	return count
}
