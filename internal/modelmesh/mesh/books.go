// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
)

// books writes down, for the others, what this instance has. Each model is written as it is at that time, not as it was when
// something happened, so nothing is lost when etcd is away for a while or the same model changes many times.
type books struct {
	mesh *Mesh

	mu     sync.Mutex
	dirty  map[string]*note
	order  []string
	tokens chan struct{}
}

type note struct {
	failure *store.Failure
	used    int64 // when the model was last asked for, in milliseconds; 0 when that is nothing new
	killed  int64 // when the runtime ended that loaded it, in milliseconds; 0 when it did not
	pause   time.Duration
}

const (
	writers      = 8
	writeTimeout = 10 * time.Second
	leastPause   = 100 * time.Millisecond
	mostPause    = 5 * time.Second
)

func newBooks(m *Mesh) *books {
	return &books{mesh: m, dirty: map[string]*note{}, tokens: make(chan struct{}, 1)}
}

func (b *books) run(ctx context.Context) {
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for {
				id, n := b.take()
				if n == nil {
					select {
					case <-b.tokens:
						continue
					case <-ctx.Done():
						return
					}
				}
				b.poke() // there may be more for the other writers
				b.write(ctx, id, n)
			}
		})
	}
	all.Wait()
}

func (b *books) poke() {
	select {
	case b.tokens <- struct{}{}:
	default:
	}
}

// touch says that a model has changed here.
func (b *books) touch(id string) { b.add(id, &note{}) }

// used says that a model is asked for that nobody can load.
func (b *books) used(id string, at int64) { b.add(id, &note{used: at}) }

// failed says that a load has failed here.
func (b *books) failed(id string, used int64, message string) {
	const most = 2000
	b.add(id, &note{used: used, failure: &store.Failure{Instance: b.mesh.set.Instance, At: b.mesh.now().UnixMilli(), Message: message[:min(len(message), most)]}})
}

func (b *books) add(id string, n *note) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.dirty[id]; known != nil {
		if n.failure != nil {
			known.failure = n.failure
		}
		known.used, known.killed = max(known.used, n.used), max(known.killed, n.killed)
		return
	}
	b.dirty[id] = n
	b.order = append(b.order, id)
	b.poke()
}

func (b *books) take() (string, *note) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.order) > 0 {
		id := b.order[0]
		b.order = b.order[1:]
		if n := b.dirty[id]; n != nil {
			delete(b.dirty, id)
			return id, n
		}
	}
	return "", nil
}

// flush waits until everything is written.
func (b *books) flush(ctx context.Context) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		b.mu.Lock()
		left := len(b.dirty)
		b.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// settle writes the record of a model now, for somebody who has waited for it and looks at it next.
func (b *books) settle(ctx context.Context, id string) {
	b.mu.Lock()
	n := b.dirty[id]
	if n == nil {
		n = &note{}
	} else { // a writer that finds no note goes on to the next
		delete(b.dirty, id)
	}
	b.mu.Unlock()
	if b.write(ctx, id, n); ctx.Err() != nil { // whoever waited does so no longer, and may not have heard whether it is written
		b.add(id, n)
	}
}

// killed writes down that the runtime ended while it loaded a model, and returns the record; nil when etcd does not answer in
// time, and it is written later.
func (b *books) killed(ctx context.Context, id string) *store.Model {
	n := &note{killed: b.mesh.now().UnixMilli()}
	asked, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	record, err := b.mesh.models.Update(asked, id, func(now *store.Model) (*store.Model, bool, error) { return b.next(id, now, n) })
	if err != nil {
		b.add(id, n)
		return nil
	}
	return record
}

// write brings the record of a model up to what is here. What fails is tried again later.
func (b *books) write(ctx context.Context, id string, n *note) {
	asked, cancel := context.WithTimeout(ctx, writeTimeout)
	_, err := b.mesh.models.Update(asked, id, func(now *store.Model) (*store.Model, bool, error) {
		return b.next(id, now, n)
	})
	cancel()
	if err == nil || errors.Is(err, store.ErrReadOnly) || ctx.Err() != nil {
		return
	}
	b.mesh.log.Warn("The record of a model cannot be written; it is tried again", "model", id, "err", err.Error())
	n.pause = min(max(2*n.pause, leastPause), mostPause)
	time.AfterFunc(n.pause, func() { b.add(id, n) })
}

// next is what the record should say.
func (b *books) next(id string, now *store.Model, n *note) (*store.Model, bool, error) {
	e := b.mesh.cache().get(id)
	if now == nil { // nobody wants the model any more
		if e != nil {
			b.mesh.background(func(context.Context) { b.mesh.leave(e, false) })
		}
		return nil, false, nil
	}
	self := b.mesh.set.Instance
	written, there := now.Copy(self)
	next, write := now.Clone(), false
	var loaded int64
	if e != nil {
		_, loaded = e.is()
	}
	if e != nil && e.live() && !b.mesh.parted.Load() && (n.killed == 0 || loaded != 0) {
		if want := (store.Copy{Instance: self, Began: e.began, Loaded: loaded}); want != written {
			next.SetCopy(want)
			write = true
		}
		if write && loaded != 0 { // whatever ended runtimes, it was not this model, or it is cured
			next.Acquit()
		}
		if weight := b.mesh.cache().weightOf(e); loaded != 0 && now.Size != weight {
			next.Size, write = weight, true
		}
	} else if there {
		next.RemoveCopy(self)
		if written.Loaded != 0 {
			next.LastUnload = b.mesh.now().UnixMilli()
		}
		write = true
	}
	if n.failure != nil {
		next.SetFailure(*n.failure)
		write = true
	}
	if n.killed != 0 {
		write = next.Killed(self, n.killed) || write
	}
	if n.used > next.LastUsed {
		next.LastUsed, write = n.used, true
	}
	if write && e != nil {
		next.LastUsed = max(next.LastUsed, e.used.Load())
	}
	return next, write, nil
}
