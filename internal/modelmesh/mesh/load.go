// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
)

var errRemoved = because(outcomeAbsent, codes.Unavailable, "the model was given up before it was loaded; try again")

// errTried is for a model that may have ended a runtime: it is loaded in one instance at a time until it is known.
var errTried = because(outcomeAbsent, codes.Unavailable, "the model is being loaded elsewhere, alone because a runtime ended while it loaded it; try again")

// triedElsewhere tells whether another instance is loading a model.
func (m *Mesh) triedElsewhere(record *store.Model) bool {
	return slices.ContainsFunc(record.Copies, func(c store.Copy) bool {
		return c.Instance != m.set.Instance && !m.isLoaded(c) && m.exists(c.Instance)
	})
}

// awaitTrial waits a while until another instance has loaded a model or not.
func (m *Mesh) awaitTrial(ctx context.Context, id string) {
	const most, pause = 10 * time.Second, 50 * time.Millisecond
	for deadline := m.now().Add(most); ctx.Err() == nil && m.now().Before(deadline); wait(ctx, pause) {
		if row, ok := m.models.Get(id); !ok || row.Value.Kills == 0 || !m.triedElsewhere(row.Value) || m.stoppedFor(row.Value) > 0 {
			return
		}
	}
}

// urgent is how far in the future a load that somebody waits for is dated, so that it comes before all others.
const urgent = 2 * time.Hour

// wish is how a model is to be loaded here.
type wish struct {
	lastUsed int64    // milliseconds
	awaited  bool     // somebody waits for it
	extra    bool     // others may have it too
	size     int64    // in units, 0 when the asker does not know
	instead  []string // instances whose copies do not count, because they were asked in vain
}

// loadHere begins to load a model, unless it is here or on its way already.
func (m *Mesh) loadHere(ctx context.Context, id string, record *store.Model, w wish) (*entry, error) {
	priority := w.lastUsed
	if w.awaited {
		priority = m.now().Add(urgent).UnixMilli()
	}
	if e := m.cache().get(id); e != nil {
		m.pool.raise(e, priority)
		return e, nil
	}
	if err := m.failedHere(id, record); err != nil {
		return nil, err
	}
	if err := m.mayLoad(id, record.Type()); err != nil {
		return nil, err
	}
	e := m.newEntry(id, record)
	weight := m.weigh(ctx, e, record, w)
	if err := m.cache().refuses(id, weight, w.lastUsed); err != nil { // nobody need hear that it is about to be loaded
		return nil, m.refused(ctx, e, err)
	}
	if err := m.claim(ctx, e, w); err != nil {
		if errors.Is(err, errTried) {
			m.awaitTrial(ctx, id)
		}
		return nil, err
	}
	existing, evicted, err := m.cache().add(e, weight, w.lastUsed)
	for _, old := range evicted {
		m.metrics.evicted(m.now().Sub(time.UnixMilli(old.used.Load())))
		m.leave(old, true)
		m.resettle(old)
	}
	switch {
	case err != nil:
		return nil, m.refused(ctx, e, err)
	case existing != nil:
		m.pool.raise(existing, priority)
		return existing, nil
	case !m.pool.push(e, priority):
		m.leave(e, false)
		return nil, because(outcomeRefused, codes.ResourceExhausted, "too many loads wait already; try again")
	}
	m.books.touch(id)
	m.publishSoon()
	return e, nil
}

// refused lets the record say what has become of a load for which there is no room: nothing, or a failure where that never
// changes.
func (m *Mesh) refused(ctx context.Context, e *entry, err *outcome) error {
	if err.kind == outcomeFailed {
		m.failed.add(e, m.now(), err)
		m.books.failed(e.id, e.used.Load(), status.Convert(err.err).Message())
	}
	m.books.settle(ctx, e.id)
	return err
}

func (m *Mesh) newEntry(id string, record *store.Model) *entry {
	e := &entry{
		id: id, typ: record.Type(), path: record.Path, key: record.Key(), began: m.now().UnixMilli(), queuedAt: m.now(),
		done: make(chan struct{}), index: -1, want: wishesOf(record.Key()),
	}
	e.used.Store(record.LastUsed)
	if len(e.want.Unclear) > 0 {
		m.log.Warn("A model's owner wishes what cannot be understood; it is loaded as if nothing were said", "model", id, "wishes", e.want.Unclear)
	}
	return e
}

// mayLoad refuses what this instance should not begin now.
func (m *Mesh) mayLoad(id, typ string) error {
	switch {
	case m.draining.Load() && m.others(typ):
		return because(outcomeRefused, codes.Unavailable, "this instance is about to end")
	case !m.runtime.ready.Load():
		return because(outcomeRuntime, codes.Unavailable, "the runtime of this instance does not answer")
	}
	now := m.now()
	least := m.minChurn(typ)
	if age := now.Sub(time.UnixMilli(m.cache().oldest(now.UnixMilli()))); m.cache().full() && m.cache().models.Len() > 0 && age < least {
		return because(outcomeRefused, codes.ResourceExhausted, fmt.Sprintf(
			"Cache churn threshold exceeded: memory is full and the model that would have to go for %s was used %s ago, less than %s; more models are in use at once than fit, add pods or memory",
			id, age.Round(time.Millisecond), least.Round(time.Millisecond)))
	}
	return nil
}

// weigh guesses what a model will take: what its owner says, what it took elsewhere, what the runtime says, or the usual.
func (m *Mesh) weigh(ctx context.Context, e *entry, record *store.Model, w wish) int64 {
	weight := max(w.size, record.Size)
	if weight == 0 && e.want.Size == 0 {
		weight = m.runtime.predict(ctx, e.id, e.typ, e.path, e.key)
	}
	if weight = max(weight, e.want.Size); weight == 0 {
		weight = m.runtime.said.Load().defaultSize
	}
	return weight
}

// claimTimeout is how long etcd may take before a load begins without it.
const claimTimeout = 2 * time.Second

// claim writes down that the model is about to be loaded here, unless somebody else does the same. Without etcd the load
// goes ahead: a copy too many is better than none.
func (m *Mesh) claim(ctx context.Context, e *entry, w wish) error {
	if m.parted.Load() { // this copy is for one caller, and ends with this instance
		return nil
	}
	asked, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	_, err := m.models.Update(asked, e.id, func(now *store.Model) (*store.Model, bool, error) {
		if now == nil {
			return nil, false, because(outcomeAbsent, codes.NotFound, "the model "+e.id+" is not registered")
		}
		if m.stoppedFor(now) > 0 { // the mirror may not have known it yet
			return now, false, because(outcomeFailed, codes.Internal, "the model "+e.id+" failed to load: "+killed(now))
		}
		if e.suspect = now.Kills > 0; e.suspect && m.triedElsewhere(now) {
			return now, false, errTried
		}
		if _, mine := now.Copy(m.set.Instance); mine {
			return now, false, nil
		}
		if !w.extra && len(m.reachable(now, w.instead)) > 0 {
			return now, false, because(outcomeAbsent, codes.Unavailable, "the model "+e.id+" is being loaded elsewhere")
		}
		next := now.Clone()
		next.SetCopy(store.Copy{Instance: m.set.Instance, Began: e.began})
		return next, true, nil
	})
	if _, refused := errors.AsType[*outcome](err); refused {
		return err
	}
	if ctx.Err() != nil { // it may have come through
		m.books.touch(e.id)
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// loads runs loads one after the other; there are as many of these as the runtime loads models at once.
func (m *Mesh) loads(ctx context.Context) {
	for {
		e := m.pool.next(ctx)
		if e == nil {
			return
		}
		m.load(ctx, e)
		m.pool.finished()
		m.publishSoon()
	}
}

// load takes an entry from the queue to where it answers.
func (m *Mesh) load(ctx context.Context, e *entry) {
	m.metrics.queueDelay(m.now().Sub(e.queuedAt))
	if !e.advance(waiting) {
		return
	}
	if err := m.cache().start(ctx, e); err != nil {
		m.giveUp(e, err)
		return
	}
	said := m.runtime.said.Load()
	loadContext, cancel := context.WithTimeout(ctx, said.loadTimeout)
	defer cancel()
	e.mu.Lock()
	e.cancel = cancel
	e.mu.Unlock()
	if !e.advance(loading) {
		m.unload(ctx, e)
		return
	}
	began, lost := m.now(), m.runtime.whenLost()
	size, concurrency, err := m.runtime.load(loadContext, e.id, e.typ, e.path, e.key)
	took := m.now().Sub(began)
	if err != nil {
		m.loadFailed(ctx, e, err, took, lost)
		return
	}
	m.times.Loaded(e.typ, took)
	m.metrics.loaded(took)
	if size == 0 && e.advance(sizing) {
		started := m.now()
		size = m.runtime.size(loadContext, e.id)
		m.metrics.sized(m.now().Sub(started))
	}
	if closed(lost) { // what was loaded is gone with the runtime
		m.runtimeEnded(ctx, e)
		return
	}
	if m.activate(ctx, e, size, concurrency); closed(lost) {
		m.giveUpLost(e)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// runtimeEnded is for a load whose runtime went away. That is written down before anybody who waits can try it elsewhere: it may
// be the model that ends runtimes.
func (m *Mesh) runtimeEnded(ctx context.Context, e *entry) {
	reason := because(outcomeRuntime, codes.Unavailable, "the runtime of this instance went away while it loaded "+e.id)
	if e.live() {
		if record := m.books.killed(ctx, e.id); record != nil && record.Kills >= maxKills {
			m.log.Error("A model is not loaded any more, because runtimes end while they load it", "model", e.id, "type", e.typ, "runtimes", record.Kills)
			reason = because(outcomeFailed, codes.Internal, "the model "+e.id+" failed to load: "+killed(record))
		} else {
			m.log.Warn("The runtime ended while it loaded a model", "model", e.id, "type", e.typ)
		}
	}
	m.giveUp(e, reason)
}

// activate lets calls in, and lets others know.
func (m *Mesh) activate(ctx context.Context, e *entry, size int64, concurrency int) {
	if size = max(size, e.want.Size); size > 0 {
		for _, old := range m.cache().resize(e, size) {
			if old != e {
				m.leave(old, true)
				continue
			}
			reason := because(outcomeFailed, codes.ResourceExhausted, fmt.Sprintf(
				"the model %s takes %d MiB, more than the runtime has for models", e.id, size*unit>>20))
			m.failed.add(e, m.now(), reason)
			e.end(removed, reason)
			m.books.failed(e.id, e.used.Load(), status.Convert(reason.err).Message())
		}
		m.metrics.size(size * unit)
	}
	said, queue := m.runtime.said.Load(), 0
	if !said.limitConcurrency {
		concurrency = 0
	} else if concurrency > 0 && m.set.MaxInflight >= 0 {
		if queue = m.set.MaxInflight; queue == 0 {
			queue = max(16, 8*concurrency)
		}
	}
	if !e.serving(m.now().UnixMilli(), concurrency, queue) { // given up meanwhile
		m.unload(ctx, e)
		return
	}
	m.failfast.loaded()
	m.failed.forget(e.id)
	m.books.touch(e.id)
	m.log.Debug("Loaded", "model", e.id, "bytes", size*unit)
}

// loadFailed makes a failure known. What the runtime may have begun is undone.
func (m *Mesh) loadFailed(ctx context.Context, e *entry, err error, took time.Duration, lost <-chan struct{}) {
	m.metrics.loadFailure()
	code := status.Code(err)
	if m.runtime.endedWith(code, lost) {
		m.runtimeEnded(ctx, e)
		return
	}
	message := status.Convert(err).Message()
	if code == codes.DeadlineExceeded {
		message = fmt.Sprintf("loading did not end within %s; see the log of the runtime's container", took.Round(time.Second))
	}
	reason := because(outcomeFailed, codes.Internal, "the model "+e.id+" failed to load: "+message)
	m.failed.add(e, m.now(), reason) // before anybody who waits can ask again
	if e.end(failed, reason) < failed {
		m.log.Warn("A model failed to load", "model", e.id, "type", e.typ, "code", code.String(), "err", message)
		m.failfast.failed(e, m)
		m.books.failed(e.id, e.used.Load(), message)
	}
	m.cache().take(e)
	m.books.touch(e.id)
	if code == codes.FailedPrecondition || code == codes.InvalidArgument { // nothing was begun
		m.freed(e, false)
		return
	}
	m.unload(ctx, e)
}

// giveUp ends an entry whose load has not begun, or whose runtime has nothing of it.
func (m *Mesh) giveUp(e *entry, err error) {
	e.end(removed, err)
	m.cache().take(e)
	m.freed(e, false)
	m.books.touch(e.id)
}

// leave takes a model out of this instance. Calls that are under way are answered first.
func (m *Mesh) leave(e *entry, evicted bool) {
	m.cache().take(e)
	before := e.end(removed, errRemoved)
	m.books.touch(e.id)
	switch before {
	case queued:
		m.pool.remove(e)
	case active:
		if evicted {
			m.log.Debug("Evicted", "model", e.id)
		}
		m.background(func(ctx context.Context) { m.unload(ctx, e) })
	case waiting, loading, sizing: // whoever loads it sees that it was removed
	case failed, removed:
	}
}

// unload waits for calls that are under way, then tells the runtime.
func (m *Mesh) unload(ctx context.Context, e *entry) {
	const most = 4 * time.Minute
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-e.quiet():
	case <-timer.C:
	case <-ctx.Done():
	}
	if !m.runtime.ready.Load() {
		m.freed(e, false)
		return
	}
	began := m.now()
	err := m.runtime.unload(ctx, e.id, func(err error) {
		m.metrics.unloadAttemptFailed()
		m.log.Warn("The runtime did not unload a model; it is asked again", "model", e.id, "err", err.Error())
	})
	switch {
	case err == nil:
		m.metrics.unloaded(m.now().Sub(began))
	case !errors.Is(err, errRuntimeLost) && ctx.Err() == nil:
		m.metrics.unloadFailed()
		m.log.Error("A model cannot be unloaded; its memory is lost until the runtime restarts", "model", e.id)
		m.freed(e, true)
		return
	}
	m.freed(e, false)
}

func (m *Mesh) freed(e *entry, lost bool) {
	for _, old := range m.cache().unloaded(e, lost) {
		m.leave(old, true)
	}
	m.mover.room()
	m.publishSoon()
}

// resettle has a model that was given up here loaded elsewhere, if it was not just passing through and others have room.
func (m *Mesh) resettle(e *entry) {
	_, loaded := e.is()
	if loaded == 0 || m.now().Sub(time.UnixMilli(loaded)) < 2*m.runtime.said.Load().loadTimeout || m.short(e.typ) || m.instances.Len() < 2 {
		return
	}
	m.background(func(ctx context.Context) {
		asked, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		row, ok := m.models.Get(e.id)
		if !ok {
			return
		}
		target, err := m.place(row.Value, placing{exclude: []string{m.set.Instance}, lastUsed: e.used.Load()})
		if err == nil && len(m.present(e.id, row.Value, nil)) == 0 {
			_ = m.loadIn(asked, target, loadRequest{Model: e.id, LastUsed: e.used.Load(), Size: row.Value.Size})
		}
	})
}
