// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"time"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/placement"
	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
	"github.com/modelplane/modelplane/internal/modelmesh/mesh/track"
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
		m.failed.expire(m.now().Add(-m.set.LoadFailureExpiry))
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

// shrink gives up copies that others have too, a few at a time, while memory is short.
func (m *Mesh) shrink() {
	if m.draining.Load() || !m.runtime.ready.Load() {
		return
	}
	now := m.now()
	byType := map[string][]track.Copy{}
	for _, e := range m.cache().all() {
		if c, several := m.spareCopy(e); several {
			byType[e.typ] = append(byType[e.typ], c)
		}
	}
	for typ, copies := range byType {
		state := track.State{
			Now: now.UnixMilli(), FreeShare: placement.Sum(m.all(), *m.constraints.Load(), typ).FreeShare(),
			LRUTime: m.cache().oldest(now.UnixMilli()), Capacity: max(m.cache().models.Capacity(), 20*m.cache().minSpace), Tick: m.set.Periods.Rate,
			Third: m.set.Periods.ThirdCopyFor,
		}
		for _, c := range track.ScaleDown(state, copies) {
			if e := m.cache().get(c.ID); e != nil {
				m.log.Info("A copy of a model that others have is given up", "model", e.id, "copies", c.Copies)
				m.leave(e, false)
			}
		}
	}
}

// spareCopy is what is known of a model here that others have loaded too, and of which as many stay as were asked for.
func (m *Mesh) spareCopy(e *entry) (track.Copy, bool) {
	state, _ := e.is()
	row, ok := m.models.Get(e.id)
	if state != active || !ok || e.want.Pinned {
		return track.Copy{}, false
	}
	out := track.Copy{
		ID: e.id, Weight: m.cache().weightOf(e), LastUsed: e.used.Load(), Copies: 1, LastHeavy: e.rate.heavy.Load(), LastUnload: row.Value.LastUnload,
		RPM: e.rate.rpm.Load(), Threshold: max(e.rate.threshold.Load(), 1), Queued: e.underWay(), LastLoad: e.began,
	}
	own := placeable(m.set.Instance, m.record())
	for _, c := range m.reachable(row.Value, nil) {
		other, known := m.instances.Get(c.Instance)
		if c.Loaded == 0 || !known || other.Value.Shutdown {
			continue
		}
		out.Copies++
		out.LastLoad = max(out.LastLoad, c.Began)
		out.WorsePlace = m.view(e.typ).Compare(own, placeable(c.Instance, other.Value)) > 0
	}
	return out, out.Copies > max(e.want.MinCopies, 1)
}
