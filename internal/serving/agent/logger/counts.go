// SPDX-License-Identifier: Apache-2.0

package logger

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Why events are lost.
const (
	// Full is a queue, or memory for bodies, that has no room.
	Full = "queue-full"
	// TooLarge is a body that is longer than what is kept.
	TooLarge = "too-large"
	// Cut is an answer that ended before it was complete.
	Cut = "incomplete"
	// Undelivered is what the receiver did not take.
	Undelivered = "undelivered"
	// Stopped is what was left when the process had to end.
	Stopped = "stopped"
)

// tellEvery is how often losses are told of: a receiver that is gone must not fill the log.
const tellEvery = 10 * time.Second

// Counts are what became of events. It is a collector of metrics.
type Counts struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	total  map[string]int64
	told   map[string]int64
	last   time.Time
	reason string // of the last failure
}

// Sent is the count of events that arrived.
const Sent = "sent"

func newCounts(log *slog.Logger) *Counts {
	return &Counts{log: log, now: time.Now, total: map[string]int64{}, told: map[string]int64{}}
}

func (c *Counts) sent(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total[Sent] += int64(n)
}

func (c *Counts) lose(why string, n int) { c.fail(why, n, nil) }

func (c *Counts) fail(why string, n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total[why] += int64(n)
	if err != nil {
		c.reason = err.Error()
	}
	if now := c.now(); now.Sub(c.last) >= tellEvery {
		c.last = now
		c.tell()
	}
}

// Of is how many events went that way.
func (c *Counts) Of(why string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total[why]
}

// Tell logs what was lost and not told of.
func (c *Counts) Tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell()
}

func (c *Counts) tell() {
	for _, why := range slices.Sorted(maps.Keys(c.total)) {
		since := c.total[why] - c.told[why]
		if why == Sent || since == 0 {
			continue
		}
		c.told[why] = c.total[why]
		attrs := []any{"why", why, "events", since, "inAll", c.total[why], "sent", c.total[Sent]}
		if why == Undelivered {
			attrs = append(attrs, "err", c.reason)
		}
		c.log.Warn("Events of the payload log are lost", attrs...)
	}
}

var described = prometheus.NewDesc("modelplane_agent_log_events_total",
	"Events of the payload log by what became of them: sent, or why they were lost.", []string{"result"}, nil)

// Describe is for the registry of metrics.
func (*Counts) Describe(to chan<- *prometheus.Desc) { to <- described }

// Collect is for the registry of metrics.
func (c *Counts) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, result := range []string{Sent, Full, TooLarge, Cut, Undelivered, Stopped} {
		to <- prometheus.MustNewConstMetric(described, prometheus.CounterValue, float64(c.total[result]), result)
	}
}

// budget bounds the bytes of bodies that are kept.
type budget struct {
	most int64
	used atomic.Int64
}

func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.most {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) release(n int64) { b.used.Add(-n) }
