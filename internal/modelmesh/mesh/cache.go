// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/lru"
)

// spaceTimeout is how long a load waits for what was given up for it to be unloaded.
const spaceTimeout = 3 * time.Minute

// cache is what this instance holds. Its lock is around changes of order and memory together; finding takes none.
type cache struct {
	mu       sync.Mutex
	models   *lru.Cache[string, *entry]
	buffer   *lru.Buffer
	minSpace int64
	leaving  map[string]chan struct{} // models that the runtime may still have, by id
}

func newCache(l *limits) *cache {
	buffer := lru.NewBuffer(l.capacity, l.threads, l.defaultSize)
	return &cache{
		models: lru.New[string, *entry](buffer.Limit()), buffer: buffer, leaving: map[string]chan struct{}{},
		minSpace: lru.MinSpace(l.capacity, l.threads, l.defaultSize, true),
	}
}

func (c *cache) get(id string) *entry {
	found, ok := c.models.Peek(id)
	if !ok {
		return nil
	}
	return found.Value
}

// use finds a model and notes the use.
func (c *cache) use(id string, now int64) *entry {
	e, ok := c.models.Get(id, now)
	if !ok {
		return nil
	}
	e.used.Store(now)
	return e
}

// free is what could be loaded without giving anything up.
func (c *cache) free() int64 { return max(c.models.Capacity()-c.models.Used(), 0) }

func (c *cache) full() bool { return c.free() < c.minSpace }

// oldest is when the model was last used that would go next; now when there is none.
func (c *cache) oldest(now int64) int64 {
	if e, ok := c.models.Oldest(); ok {
		return min(e.LastUsed, now)
	}
	return now
}

// add takes an entry in and returns what has to go for it. One that is there already is returned instead.
func (c *cache) add(e *entry, weight, lastUsed int64) (existing *entry, evicted []*entry, err *outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if there := c.get(e.id); there != nil {
		return there, nil, nil
	}
	if err := c.unfit(e.id, weight, lastUsed); err != nil {
		return nil, nil, err
	}
	e.weight = weight
	c.buffer.Claim(weight)
	_, _, gone := c.models.Add(e.id, e, weight, lastUsed)
	if e.want.Pinned {
		c.models.Pin(e.id, true)
	}
	return nil, c.departed(gone), nil
}

// refuses tells why a model could not be added now; nil when it could.
func (c *cache) refuses(id string, weight, lastUsed int64) *outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unfit(id, weight, lastUsed)
}

func (c *cache) unfit(id string, weight, lastUsed int64) *outcome {
	if weight > c.models.Capacity() {
		return because(outcomeFailed, codes.ResourceExhausted, fmt.Sprintf(
			"the model %s needs %d MiB, and the runtime has %d MiB for models; give it more memory or correct the model's size", id, weight*unit>>20, c.models.Capacity()*unit>>20))
	}
	if oldest, ok := c.models.Oldest(); weight > c.free() && (!ok || oldest.LastUsed > lastUsed) {
		return because(outcomeRefused, codes.ResourceExhausted,
			"the model "+id+" does not fit: everything that is loaded was used more recently or is pinned; it is loaded when somebody calls it, or add memory")
	}
	return nil
}

// departed accounts for what has left the order, and for what has to leave because of that.
func (c *cache) departed(gone []lru.Entry[string, *entry]) (out []*entry) {
	for len(gone) > 0 {
		for _, g := range gone {
			c.account(g.Value)
			out = append(out, g.Value)
		}
		gone = c.models.SetCapacity(c.buffer.Limit())
	}
	return out
}

func (c *cache) account(e *entry) {
	if !e.resident {
		c.buffer.Release(e.weight)
		return
	}
	c.buffer.Unloading(e.weight)
	c.leaving[e.id] = make(chan struct{})
}

// take removes an entry; false when it has gone already.
func (c *cache) take(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.models.RemoveIf(e.id, func(found lru.Entry[string, *entry]) bool { return found.Value == e })
	if ok {
		c.account(e)
		c.models.SetCapacity(c.buffer.Limit())
	}
	return ok
}

// start waits until there is memory for an entry and nothing is left of the same model.
func (c *cache) start(ctx context.Context, e *entry) error {
	timer := time.NewTimer(spaceTimeout)
	defer timer.Stop()
	for {
		c.mu.Lock()
		changed, former := c.buffer.Changed(), c.leaving[e.id]
		if c.get(e.id) != e {
			c.mu.Unlock()
			return errRemoved
		}
		if former == nil && c.buffer.Start(e.weight, c.models.Used()) {
			e.resident = true
			c.mu.Unlock()
			return nil
		}
		c.mu.Unlock()
		select {
		case <-changed:
		case <-former:
		case <-ctx.Done():
			return errRemoved
		case <-timer.C:
			return because(outcomeRefused, codes.ResourceExhausted, "no memory became free for the model "+e.id+"; the runtime is slow to unload others, see its log")
		}
	}
}

// resize says what a loaded model really takes, and returns what has to go for it.
func (c *cache) resize(e *entry, weight int64) []*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.get(e.id) != e || weight == e.weight {
		return nil
	}
	c.buffer.Resize(weight-e.weight, c.models.Used())
	e.weight = weight
	return c.departed(c.models.SetWeight(e.id, weight))
}

// unloaded says that the memory of an entry is free, or that it never will be.
func (c *cache) unloaded(e *entry, lost bool) []*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !e.resident {
		return nil
	}
	e.resident = false
	if lost {
		c.buffer.Lost(e.weight)
	} else {
		c.buffer.Unloaded(e.weight)
	}
	if ended := c.leaving[e.id]; ended != nil {
		close(ended)
		delete(c.leaving, e.id)
	}
	return c.departed(c.models.SetCapacity(c.buffer.Limit()))
}

// weightOf is what an entry takes, or is thought to.
func (c *cache) weightOf(e *entry) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.weight
}

// all are the entries, those used longest ago first.
func (c *cache) all() []*entry {
	out := make([]*entry, 0, c.models.Len())
	for e := range c.models.All() {
		out = append(out, e.Value)
	}
	return out
}
