// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
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
	for _, c := range row.Value.Copies {
		elsewhere = elsewhere || c.Instance != m.set.Instance && c.Loaded != 0
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

// loadTimes knows how long loads take, for each type of model.
type loadTimes struct {
	mu    sync.Mutex
	types map[string]*loadTime
}

type loadTime struct {
	count    int
	mean, m2 float64 // in seconds; m2 is the sum of squared distances from the mean
}

func newLoadTimes() *loadTimes { return &loadTimes{types: map[string]*loadTime{}} }

// mostTypes bounds what is remembered; types are few, but clients name them.
const mostTypes = 10_000

// loaded takes note of a load. The first few pull the assumption towards what they took; later ones replace it by what
// almost all loads stay below.
func (l *loadTimes) loaded(typ string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.types[typ]
	if t == nil {
		if len(l.types) >= mostTypes {
			return
		}
		t = &loadTime{}
		l.types[typ] = t
	}
	t.count++
	distance := took.Seconds() - t.mean
	t.mean += distance / float64(t.count)
	t.m2 += distance * (took.Seconds() - t.mean)
}

// assumed is how long after its begin a load is believed to have ended.
func (l *loadTimes) assumed(typ string, loadTimeout time.Duration) time.Duration {
	start := max(3*time.Second, loadTimeout/3)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.types[typ]
	if t == nil {
		return start
	}
	mean := time.Duration(t.mean * float64(time.Second))
	if t.count <= 3 {
		current := start
		for range t.count {
			current = (2*current + mean) / 3
		}
		return current
	}
	deviations := 3.0
	if t.count <= 20 {
		deviations = 5
	}
	return mean + time.Duration(deviations*math.Sqrt(t.m2/float64(t.count-1))*float64(time.Second))
}

// minChurn is how long a model may expect to stay once it is loaded.
func (m *Mesh) minChurn(typ string) time.Duration {
	if m.set.Periods.MinChurn > 0 {
		return m.set.Periods.MinChurn
	}
	return 10 * m.times.assumed(typ, m.runtime.said.Load().loadTimeout)
}

// busyTime counts calls over the last minutes.
type busyTime struct {
	calls atomic.Int64

	mu      sync.Mutex
	samples []sample // the oldest first
}

type sample struct {
	at    time.Time
	calls int64
}

const (
	sampleEvery = time.Minute
	rateOver    = 6 * time.Minute
)

func (b *busyTime) add(time.Duration) { b.calls.Add(1) }

// rpm is how many calls a minute there were lately.
func (b *busyTime) rpm(now time.Time) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls.Load()
	if len(b.samples) == 0 || now.Sub(b.samples[len(b.samples)-1].at) >= sampleEvery {
		b.samples = append(b.samples, sample{now, calls})
	}
	for len(b.samples) > 1 && now.Sub(b.samples[0].at) > rateOver+sampleEvery {
		b.samples = b.samples[1:]
	}
	took := now.Sub(b.samples[0].at)
	if took < 3*time.Second {
		return 0
	}
	return (calls - b.samples[0].calls) * int64(time.Minute) / int64(took)
}
