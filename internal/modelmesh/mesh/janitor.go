// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"time"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
)

// janitor compares, now and then, what is here with what the registry says, and removes copies that are not needed while
// memory is short.
func (m *Mesh) janitor(ctx context.Context) {
	wait(ctx, min(time.Second, m.set.Periods.Janitor))
	ticker := time.NewTicker(m.set.Periods.Janitor)
	defer ticker.Stop()
	for ctx.Err() == nil {
		m.tidy()
		m.shrink()
		m.peers.prune(m.now().Add(-m.set.Periods.MissingFor))
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// tidy writes down whatever the registry has wrong about this instance.
func (m *Mesh) tidy() {
	now := m.now()
	for _, e := range m.cache().all() {
		row, ok := m.models.Get(e.id)
		if !ok {
			m.books.touch(e.id)
			continue
		}
		_, loaded := e.is()
		if written, there := row.Value.Copy(m.set.Instance); !there || written.Loaded != loaded {
			m.books.touch(e.id)
		} else if now.Sub(time.UnixMilli(row.Value.LastUsed)) > staleUse && e.used.Load() > row.Value.LastUsed {
			m.background(func(ctx context.Context) { m.writeUse(ctx, e) })
		}
	}
	m.models.Each(func(id string, row store.Row[store.Model]) bool {
		if _, there := row.Value.Copy(m.set.Instance); there && m.cache().get(id) == nil {
			m.books.touch(id)
		}
		return true
	})
}

// staleUse is how far the time of the last use in the registry may lie behind.
const staleUse = 6 * time.Hour

func (m *Mesh) writeUse(ctx context.Context, e *entry) {
	asked, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, _ = m.models.Update(asked, e.id, func(now *store.Model) (*store.Model, bool, error) {
		if now == nil || now.LastUsed >= e.used.Load() {
			return now, false, nil
		}
		next := now.Clone()
		next.LastUsed = e.used.Load()
		return next, true, nil
	})
}

// shrink gives up copies that others have too, the least used first, a twentieth of the memory at a time, while memory is
// short.
func (m *Mesh) shrink() {
	now := m.now()
	if m.draining.Load() || !m.short() {
		return
	}
	budget := max(m.cache().models.Capacity()/20, 1)
	for _, e := range m.cache().all() {
		weight := m.cache().weightOf(e)
		if budget <= 0 {
			return
		}
		if m.dispensable(e, now) {
			m.log.Info("A copy of a model that others have is given up", "model", e.id)
			m.leave(e, false)
			budget -= weight
		}
	}
}

// short tells whether the mesh has little memory left.
func (m *Mesh) short() bool {
	var used, capacity int64
	m.instances.Each(func(_ string, row store.Row[store.Instance]) bool {
		used, capacity = used+row.Value.Used, capacity+row.Value.Capacity
		return true
	})
	return 20*(capacity-used) <= capacity
}

// dispensable tells whether a copy can go because others do its work.
func (m *Mesh) dispensable(e *entry, now time.Time) bool {
	state, _ := e.is()
	row, ok := m.models.Get(e.id)
	if state != active || !ok || e.want.Pinned || e.underWay() > 1 {
		return false
	}
	var others []string
	for _, c := range m.reachable(row.Value, nil) {
		if c.Loaded != 0 {
			others = append(others, c.Instance)
		}
	}
	copies := len(others) + 1
	idle := now.Sub(time.UnixMilli(e.used.Load()))
	switch {
	case copies <= max(e.want.MinCopies, 1):
		return false
	case copies == 2:
		age := now.Sub(time.UnixMilli(m.cache().oldest(now.UnixMilli())))
		return idle > min(age/10, 10*time.Hour) && m.set.Instance > others[0]
	}
	quiet := min(max(m.set.Periods.SecondCopyAfter, 10*time.Minute), 5*time.Hour)
	if m.set.Periods.SecondCopyAfter < 10*time.Minute && m.set.Periods.Janitor < time.Minute {
		quiet = m.set.Periods.SecondCopyAfter
	}
	return now.Sub(time.UnixMilli(e.rate.heavy.Load())) > quiet && 3*e.rate.rpm.Load() <= 2*m.scaleUpRPM.Load() && m.set.Instance >= others[len(others)-1]
}
