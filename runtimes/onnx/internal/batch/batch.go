// SPDX-License-Identifier: Apache-2.0

// Package batch stands between requests and the model: a queue with a limit, workers that take from it, and the joining
// of several requests into one run. It knows neither protocols nor ONNX Runtime.
package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
)

// Runner answers inputs with outputs. Inputs that are joined by their first dimension must give outputs that can be
// taken apart by it.
type Runner interface {
	Run(inputs []*tensor.Tensor) ([]*tensor.Tensor, error)
}

// What a request can meet with besides an error of the model.
var (
	ErrFull   = errors.New("the queue is full; try again later or add replicas")
	ErrClosed = errors.New("the server is shutting down")
)

// Options bound the work.
type Options struct {
	Workers  int           // runs at the same time
	Queue    int           // requests that wait for a worker
	MaxRows  int64         // rows in a run that was joined from several requests; up to 1: nothing is joined
	MaxDelay time.Duration // how long the first request of a run waits for others
}

// Watch is told what happens, for metrics. Each function may be called by several goroutines at once.
type Watch struct {
	Waited func(time.Duration)                                // a request came to its turn
	Ran    func(requests int, rows int64, took time.Duration) // a run ended
}

// Queue takes requests.
type Queue struct {
	runner  Runner
	options Options
	watch   Watch
	jobs    chan *job
	workers sync.WaitGroup
	// alone is set when the outputs of the model turn out not to be divisible by rows.
	alone atomic.Bool

	mu     sync.RWMutex
	closed bool
}

type job struct {
	ctx    context.Context
	inputs []*tensor.Tensor
	rows   int64 // 0 when the request cannot be joined with others
	since  time.Time
	done   chan result
}

type result struct {
	outputs []*tensor.Tensor
	err     error
}

// New starts the workers; Close ends them.
func New(runner Runner, options Options, watch Watch) *Queue {
	q := &Queue{runner: runner, options: options, watch: watch, jobs: make(chan *job, options.Queue)}
	for range max(options.Workers, 1) {
		q.workers.Go(q.work)
	}
	return q
}

// Do waits for the answer. A request whose context ends while it waits is not run.
func (q *Queue) Do(ctx context.Context, inputs []*tensor.Tensor) ([]*tensor.Tensor, error) {
	j := &job{ctx: ctx, inputs: inputs, rows: rowsOf(inputs), since: time.Now(), done: make(chan result, 1)}
	if err := q.put(j); err != nil {
		return nil, err
	}
	select {
	case r := <-j.done:
		return r.outputs, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (q *Queue) put(j *job) error {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.closed {
		return ErrClosed
	}
	select {
	case q.jobs <- j:
		return nil
	default:
		return ErrFull
	}
}

// Len is how many requests wait.
func (q *Queue) Len() int { return len(q.jobs) }

// Close refuses new requests, answers those that wait and returns when the last worker has ended.
func (q *Queue) Close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.jobs)
	}
	q.mu.Unlock()
	q.workers.Wait()
}

// rowsOf is the first dimension that all inputs share; 0 without one.
func rowsOf(inputs []*tensor.Tensor) int64 {
	rows := inputs[0].Rows()
	for _, t := range inputs {
		if t.Rows() != rows {
			return 0
		}
	}
	return rows
}

// work takes requests until the queue is closed and empty. A request that did not fit into a run begins the next one.
func (q *Queue) work() {
	var next *job
	for {
		first := next
		if first == nil {
			var more bool
			if first, more = <-q.jobs; !more {
				return
			}
		}
		var jobs []*job
		jobs, next = q.collect(first)
		q.run(jobs)
	}
}

// collect adds to the first request what fits to it, until the run is full or the first request has waited long enough.
func (q *Queue) collect(first *job) (jobs []*job, next *job) {
	jobs = []*job{first}
	if q.options.MaxRows <= 1 || first.rows == 0 || q.alone.Load() {
		return jobs, nil
	}
	late := time.NewTimer(q.options.MaxDelay - time.Since(first.since))
	defer late.Stop()
	for rows := first.rows; rows < q.options.MaxRows; {
		j, ok := q.another(late.C)
		if !ok {
			break
		}
		if !fits(first, j) || rows+j.rows > q.options.MaxRows {
			return jobs, j
		}
		jobs = append(jobs, j)
		rows += j.rows
	}
	return jobs, nil
}

// another takes what waits already, even when it is late, and else waits until it is.
func (q *Queue) another(late <-chan time.Time) (*job, bool) {
	select {
	case j, ok := <-q.jobs:
		return j, ok
	default:
	}
	select {
	case j, ok := <-q.jobs:
		return j, ok
	case <-late:
		return nil, false
	}
}

// fits says whether two requests differ in nothing but the number of rows and the values.
func fits(a, b *job) bool {
	if b.rows == 0 {
		return false
	}
	for i, t := range a.inputs {
		if !slices.Equal(t.Shape[1:], b.inputs[i].Shape[1:]) {
			return false
		}
	}
	return true
}

// run answers all jobs. When a joined run fails each is tried alone, so that nobody suffers from another's request.
func (q *Queue) run(jobs []*job) {
	jobs = slices.DeleteFunc(jobs, gone)
	for _, j := range jobs {
		q.watch.Waited(time.Since(j.since))
	}
	if len(jobs) > 1 && q.together(jobs) {
		return
	}
	for _, j := range jobs {
		outputs, err := q.measured(j.inputs, 1, j.rows)
		j.done <- result{outputs, err}
	}
}

func gone(j *job) bool { return j.ctx.Err() != nil }

func (q *Queue) measured(inputs []*tensor.Tensor, requests int, rows int64) ([]*tensor.Tensor, error) {
	began := time.Now()
	outputs, err := q.safely(inputs)
	q.watch.Ran(requests, rows, time.Since(began))
	return outputs, err
}

// safely keeps a defect that one request brings to light from ending the others.
func (q *Queue) safely(inputs []*tensor.Tensor) (outputs []*tensor.Tensor, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the model failed: %v", p)
		}
	}()
	return q.runner.Run(inputs)
}

// together joins the jobs into one run and hands each its rows. It says whether they were answered.
func (q *Queue) together(jobs []*job) bool {
	inputs, rows, err := join(jobs)
	if err != nil {
		return false
	}
	outputs, err := q.measured(inputs, len(jobs), rows)
	if err != nil {
		return false
	}
	for _, t := range outputs {
		if t.Rows() != rows {
			q.alone.Store(true)
			return false
		}
	}
	begin := int64(0)
	for _, j := range jobs {
		own := make([]*tensor.Tensor, len(outputs))
		for i, t := range outputs {
			own[i] = t.Slice(begin, begin+j.rows)
		}
		begin += j.rows
		j.done <- result{own, nil}
	}
	return true
}

func join(jobs []*job) ([]*tensor.Tensor, int64, error) {
	inputs := make([]*tensor.Tensor, len(jobs[0].inputs))
	for i := range inputs {
		parts := make([]*tensor.Tensor, len(jobs))
		for k, j := range jobs {
			parts[k] = j.inputs[i]
		}
		var err error
		if inputs[i], err = tensor.Join(parts); err != nil {
			return nil, 0, err
		}
	}
	return inputs, inputs[0].Rows(), nil
}
