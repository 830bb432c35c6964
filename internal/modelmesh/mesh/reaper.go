// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
)

// reaper is what the leader does for all: it forgets what instances had that are gone for good, fills memory that nobody
// uses with models that were used lately, and sees to it that models have the copies that were asked for.
func (m *Mesh) reaper(ctx context.Context) {
	ticker := time.NewTicker(min(m.set.Periods.Reaper, 2*time.Minute))
	defer ticker.Stop()
	missing := map[string]time.Time{}
	var last time.Time
	leads := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !m.election.Leads() {
			leads = false
			clear(missing)
			continue
		}
		now := m.now()
		if leads && now.Sub(last) < m.set.Periods.Reaper {
			continue
		}
		leads, last = true, now
		m.reap(ctx, missing, now)
		began := m.fill(ctx)
		m.mover.all()
		m.log.Info(roundOver, "loads", began)
	}
}

// reap forgets copies and failures of instances that have been missing for long, many models at a time.
func (m *Mesh) reap(ctx context.Context, missing map[string]time.Time, now time.Time) {
	seen := map[string]bool{}
	stale := map[string][]string{} // models by instance
	m.models.Each(func(id string, row store.Row[store.Model]) bool {
		for _, c := range row.Value.Copies {
			if !m.exists(c.Instance) {
				seen[c.Instance] = true
				stale[c.Instance] = append(stale[c.Instance], id)
			}
		}
		if len(row.Value.Failures) != len(m.counting(row.Value)) {
			stale[""] = append(stale[""], id)
		}
		return true
	})
	for instance := range missing {
		if !seen[instance] {
			delete(missing, instance)
		}
	}
	var models []string
	for instance := range seen {
		since, known := missing[instance]
		if !known {
			missing[instance] = now
		} else if now.Sub(since) >= m.set.Periods.MissingFor {
			models = append(models, stale[instance]...)
		}
	}
	m.prune(ctx, append(models, stale[""]...), missing, now)
}

// prune takes what is stale out of records, several at once.
func (m *Mesh) prune(ctx context.Context, models []string, missing map[string]time.Time, now time.Time) {
	slices.Sort(models)
	work := make(chan string)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for id := range work {
				asked, cancel := context.WithTimeout(ctx, writeTimeout)
				_, _ = m.models.Update(asked, id, func(record *store.Model) (*store.Model, bool, error) {
					return m.pruned(record, missing, now)
				})
				cancel()
			}
		})
	}
	for _, id := range slices.Compact(models) {
		work <- id
	}
	close(work)
	workers.Wait()
}

func (m *Mesh) pruned(record *store.Model, missing map[string]time.Time, now time.Time) (*store.Model, bool, error) {
	if record == nil {
		return nil, false, nil
	}
	next, write := record.Clone(), false
	for _, c := range record.Copies {
		if since, gone := missing[c.Instance]; gone && now.Sub(since) >= m.set.Periods.MissingFor && !m.exists(c.Instance) {
			write = next.RemoveCopy(c.Instance) || write
		}
	}
	counting := m.counting(record)
	for _, f := range record.Failures {
		if !slices.ContainsFunc(counting, func(c store.Failure) bool { return c.Instance == f.Instance }) {
			write = next.RemoveFailure(f.Instance) || write
		}
	}
	if latest := now.UnixMilli(); next.LastUsed > latest+int64(urgent/time.Millisecond) {
		next.LastUsed, write = latest, true
	}
	return next, write, nil
}

// roundOver is what the log says when the leader has looked after all models, so that whoever measures can begin when nothing is
// about to happen.
const roundOver = "The round of the leader is over"

// mostFill bounds how many loads one round asks for.
const mostFill = 1000

// fill has models loaded that are wanted or were used lately, where there is room. It tells how many.
func (m *Mesh) fill(ctx context.Context) (began int) {
	type candidate struct {
		id       string
		lastUsed int64
		size     int64
		copies   int
		keep     bool
	}
	room := m.room()
	var wanted []candidate
	m.models.Each(func(id string, row store.Row[store.Model]) bool {
		record := row.Value
		w := wishesOf(record.Key())
		copies := len(m.present(id, record, nil))
		keep := w.Pinned && copies == 0 || copies < w.MinCopies && copies < m.eligible(record)
		if len(m.failures(record)) >= 2 || m.stoppedFor(record) > 0 || !keep && copies > 0 || m.nobodyFor(record.Type()) != nil {
			return true
		}
		wanted = append(wanted, candidate{id, record.LastUsed, max(record.Size, w.Size, m.runtime.said.Load().defaultSize), max(copies+1, w.MinCopies), keep})
		return true
	})
	slices.SortFunc(wanted, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(truth(b.keep), truth(a.keep)), cmp.Compare(b.lastUsed, a.lastUsed), cmp.Compare(a.id, b.id))
	})
	for i, c := range wanted {
		if ctx.Err() != nil || i >= mostFill || (!c.keep && room < c.size) {
			return began
		}
		copies := 1
		if c.keep {
			copies = max(c.copies, 1)
		}
		asked, cancel := context.WithTimeout(ctx, 10*time.Second)
		if m.ensureCopies(asked, c.id, copies, loadRequest{LastUsed: c.lastUsed}) == nil {
			room -= c.size
			began++
		}
		cancel()
	}
	return began
}

// room is half of what is free in the mesh above an eighth of each instance.
func (m *Mesh) room() (total int64) {
	for _, i := range m.candidates(nil) {
		if i.LoadsInProgress <= 50*max(i.LoadThreads, 1) {
			total += max(i.Capacity-i.Used-i.Capacity/8, 0) / 2
		}
	}
	return total
}
