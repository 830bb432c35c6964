// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"container/heap"
	"context"
	"sync"
)

// pool is the queue of loads. Those that somebody waits for come first, then those of models that were used most recently.
type pool struct {
	mu    sync.Mutex
	waits waitingLoads
	more  chan struct{} // says that somebody may look again
	runs  int
	alone bool // the load that runs suffers no other beside it
}

// mostQueued bounds the loads that wait.
const mostQueued = 100_000

func newPool() *pool { return &pool{more: make(chan struct{}, 1)} }

func (p *pool) poke() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

func (p *pool) push(e *entry, priority int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waits) >= mostQueued {
		return false
	}
	e.priority = priority
	heap.Push(&p.waits, e)
	p.poke()
	return true
}

// raise moves a load that waits to the front when somebody has begun to wait for it.
func (p *pool) raise(e *entry, priority int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.index >= 0 && e.index < int64(len(p.waits)) && p.waits[e.index] == e && priority > e.priority {
		e.priority = priority
		heap.Fix(&p.waits, int(e.index))
	}
}

func (p *pool) remove(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.index >= 0 && e.index < int64(len(p.waits)) && p.waits[e.index] == e {
		heap.Remove(&p.waits, int(e.index))
	}
}

// next waits for a load; nil when the context has ended.
func (p *pool) next(ctx context.Context) *entry {
	for {
		if e := p.take(); e != nil {
			return e
		}
		select {
		case <-p.more:
		case <-ctx.Done():
			return nil
		}
	}
}

// take is the most urgent load; nil when there is none or it has to wait for others to end.
func (p *pool) take() *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waits) == 0 || p.alone || p.waits[0].suspect && p.runs > 0 {
		return nil
	}
	e := heap.Pop(&p.waits).(*entry) //nolint:forcetypeassert // nothing else is put in
	p.runs++
	if p.alone = e.suspect; len(p.waits) > 0 {
		p.poke()
	}
	return e
}

func (p *pool) finished() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs--
	p.alone = false
	p.poke()
}

// pending is how many loads wait or run.
func (p *pool) pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waits) + p.runs
}

// waitingLoads is a heap, the most urgent first.
type waitingLoads []*entry

func (w waitingLoads) Len() int           { return len(w) }
func (w waitingLoads) Less(i, j int) bool { return w[i].priority > w[j].priority }
func (w waitingLoads) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = int64(i), int64(j)
}

// Push is for package heap.
func (w *waitingLoads) Push(x any) {
	e := x.(*entry) //nolint:forcetypeassert // nothing else is put in
	e.index = int64(len(*w))
	*w = append(*w, e)
}

// Pop is for package heap.
func (w *waitingLoads) Pop() any {
	old := *w
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*w = old[:len(old)-1]
	e.index = -1
	return e
}
