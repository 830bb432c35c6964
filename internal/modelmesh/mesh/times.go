// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/track"
)

// failfast counts what fails soon after the start: a version that cannot load what others could must not replace them.
type failfast struct {
	enabled bool
	began   time.Time

	mu              sync.Mutex
	loads, failures int
	fatal           int
	aborted         bool
}

const bootstrap = 3 * time.Minute

func (f *failfast) loaded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loads++
}

// failed counts a failure that others have not had.
func (f *failfast) failed(e *entry, m *Mesh) {
	if !f.enabled || m.now().Sub(f.began) > bootstrap {
		return
	}
	row, ok := m.models.Get(e.id)
	if !ok {
		return
	}
	elsewhere, known := false, false
	proven := m.now().Add(-m.runtime.said.Load().loadTimeout).UnixMilli() // since then it answers, and does not only seem to
	for _, c := range row.Value.Copies {
		elsewhere = elsewhere || c.Instance != m.set.Instance && c.Loaded != 0 && c.Loaded <= proven
	}
	for _, failure := range row.Value.Failures {
		known = known || m.now().Sub(time.UnixMilli(failure.At)) >= 30*time.Minute
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loads++
	if elsewhere {
		f.fatal++
	}
	if !known {
		f.failures++
	}
	if aborted := f.fatal > 2 || f.loads > 20 && 2*f.failures > f.loads; aborted && !f.aborted {
		f.aborted = true
		m.log.Error("Models that other instances have loaded fail to load here; this instance does not become ready, so that it replaces no other", "failures", f.failures, "loads", f.loads)
	}
}

func (f *failfast) stopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.aborted
}

// minChurn is how long a model may expect to stay once it is loaded.
func (m *Mesh) minChurn(typ string) time.Duration {
	if m.set.Periods.MinChurn > 0 {
		return m.set.Periods.MinChurn
	}
	return 10 * m.times.AssumeLoaded(typ)
}

// measure keeps the number of calls a minute current, which others see in the record.
func (m *Mesh) measure(ctx context.Context) {
	var busy track.Busy
	next := time.NewTimer(min(track.FirstSample, m.set.Periods.Publish))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		now, calls := m.now().UnixMilli(), m.calls.Load()
		m.rpm.Store(busy.PerMinute(now, calls))
		busy.Sample(now, calls)
		replaced := m.upgrades.Replaced(m.all(), now)
		m.replaced.Store(&replaced)
		next.Reset(min(track.NextSamples, 10*m.set.Periods.Publish))
	}
}
