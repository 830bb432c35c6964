// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"sync"
	"time"
)

// keepFor is how lately a model must have been used for the end to wait until another instance has it.
const keepFor = time.Hour

// drain hands over what is here: others are told, loads that nobody waits for are dropped, and models are loaded elsewhere,
// those used last before all. Calls are answered meanwhile.
func (m *Mesh) drain(budget time.Duration) {
	if !m.draining.CompareAndSwap(false, true) {
		<-m.drained
		return
	}
	defer close(m.drained)
	ctx, cancel := context.WithTimeout(m.life, budget)
	defer cancel()
	m.log.Info("Handing over", "models", m.cache().models.Len(), "budget", budget.String())
	m.publish(true)
	entries := m.cache().all()
	for _, e := range entries {
		if state, _ := e.is(); state == queued {
			m.leave(e, false)
		}
	}
	m.handOver(ctx, entries)
	m.parted.Store(true)
	m.deregister(ctx)
}

// handOver has models loaded elsewhere, a few at a time.
func (m *Mesh) handOver(ctx context.Context, entries []*entry) {
	const atOnce = 8
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	recent := m.now().Add(-keepFor).UnixMilli()
	for i := len(entries) - 1; i >= 0; i-- { // the last used first
		e := entries[i]
		if state, _ := e.is(); state != active {
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			all.Wait()
			return
		}
		all.Go(func() {
			defer func() { <-slots }()
			m.copyElsewhere(ctx, e, e.used.Load() >= recent)
		})
	}
	all.Wait()
}

func (m *Mesh) copyElsewhere(ctx context.Context, e *entry, wait bool) {
	var excluded []string
	for range maxIterations {
		row, ok := m.models.Get(e.id)
		if !ok {
			return
		}
		others := m.reachable(row.Value, excluded)
		for _, c := range others {
			if i, known := m.instances.Get(c.Instance); c.Loaded != 0 && known && !i.Value.Shutdown {
				return // somebody has it
			}
		}
		var target string
		if len(others) > 0 {
			target = others[0].Instance
		} else {
			var err error
			if target, err = m.place(row.Value, placing{exclude: append(excluded, m.set.Instance), lastUsed: e.used.Load()}); err != nil {
				return
			}
		}
		err := m.loadIn(ctx, target, loadRequest{Model: e.id, LastUsed: e.used.Load(), Size: row.Value.Size, Extra: true, Awaited: true, Wait: wait})
		if err == nil || ctx.Err() != nil {
			return
		}
		excluded = append(excluded, target)
	}
}

// deregister takes this instance's copies out of the registry, so that nobody sends calls here any more; those that come
// nevertheless are answered.
func (m *Mesh) deregister(ctx context.Context) {
	for _, e := range m.cache().all() {
		m.books.touch(e.id)
	}
	m.books.flush(ctx)
}
