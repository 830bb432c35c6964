// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Writer keeps what was used.
type Writer interface {
	// Add puts a batch to what is there, all of it or nothing, and only once however often it is told.
	Add(ctx context.Context, batch string, rows []Row) error
}

// Rows can also be asked.
type Rows interface {
	Writer
	// Sum answers a query.
	Sum(ctx context.Context, q Query) ([]Row, error)
}

// Recorder sums requests up in memory and hands them to a Writer from time to time, and when it ends. A batch that could not be
// written is written again under its own name, so that nothing is counted twice; meanwhile the next one grows, up to a size.
// What does not fit is not in the rows, but is counted as dropped, and is in the metrics all the same.
type Recorder struct {
	rows    Writer
	metrics *Metrics
	every   time.Duration
	size    int
	log     *slog.Logger

	mu    sync.Mutex
	sums  map[Key]*Sums
	batch []Row // what is on its way, and has to stay as it is
	name  string
	wake  chan struct{}
}

// RecorderOptions of a Recorder; zero fields have a meaning.
type RecorderOptions struct {
	// Every is how often rows are written; 10 seconds if zero.
	Every time.Duration
	// Size is how many rows may wait; 10,000 if zero. Half of them waiting are written at once.
	Size int
	Log  *slog.Logger
}

// last is how long the last batch may take when everything ends.
const last = 10 * time.Second

// NewRecorder hands rows over, and tells metrics at once. Without rows (nil) there are only metrics.
func NewRecorder(rows Writer, metrics *Metrics, o RecorderOptions) *Recorder {
	r := &Recorder{rows: rows, metrics: metrics, every: o.Every, size: o.Size, log: o.Log, sums: map[Key]*Sums{}, wake: make(chan struct{}, 1)}
	if r.every <= 0 {
		r.every = 10 * time.Second
	}
	if r.size <= 0 {
		r.size = 10_000
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r
}

// Denied tells of a request that was refused.
func (r *Recorder) Denied(tenant, reason string) { r.metrics.denied(tenant, reason) }

// Used tells of a request that was answered. It does not wait.
func (r *Recorder) Used(record Record) {
	r.metrics.used(record)
	if r.rows == nil {
		return
	}
	row := record.row()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sums[row.Key]
	if s == nil {
		if len(r.sums) >= r.size {
			r.metrics.dropped.Inc()
			return
		}
		s = &Sums{}
		r.sums[row.Key] = s
	}
	s.add(row.Sums)
	if len(r.sums) >= r.size/2 {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Run writes until the context ends, and then what is left.
func (r *Recorder) Run(ctx context.Context) error {
	if r.rows == nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return r.finish(ctx)
		case <-tick.C:
		case <-r.wake:
		}
		if err := r.flush(ctx); err != nil {
			r.log.Warn("Usage cannot be written; it is tried again", "err", err.Error())
		}
	}
}

// finish writes what failed before, and then the rest.
func (r *Recorder) finish(ctx context.Context) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), last)
	defer cancel()
	for range 2 {
		if err := r.flush(limited); err != nil {
			r.log.Error("The last usage cannot be written and is lost", "rows", r.waiting(), "err", err.Error())
			return err
		}
	}
	return nil
}

// flush writes the batch that failed before, or else the next one.
func (r *Recorder) flush(ctx context.Context) error {
	name, batch := r.next()
	if len(batch) == 0 {
		return nil
	}
	if err := r.rows.Add(ctx, name, batch); err != nil {
		r.metrics.failures.Inc()
		return err
	}
	r.metrics.written.Add(float64(len(batch)))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batch = nil
	return nil
}

func (r *Recorder) next() (string, []Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.batch == nil && len(r.sums) > 0 {
		r.name = uuid.NewString()
		for k, s := range r.sums {
			r.batch = append(r.batch, Row{k, *s})
		}
		clear(r.sums)
	}
	return r.name, r.batch
}

func (r *Recorder) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sums) + len(r.batch)
}
