// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/fetch"
	"github.com/modelplane/modelplane/internal/kube/address"
)

// order is what a model ought to be.
type order struct {
	spec   Spec
	listed bool
	// epoch is the server's: a model that was loaded by an earlier one is not loaded.
	epoch int
}

// worker brings one model to where it ought to be. Orders that come while it works replace each other.
type worker struct {
	puller *Puller
	name   string
	have   Spec // of the files that are there; zero for none

	mu      sync.Mutex
	want    order
	told    bool
	changed chan struct{} // has one entry while there is an order that was not looked at
	first   bool          // somebody waits for the first outcome
	done    bool
	stop    context.CancelFunc // of what is being done for an order

	began  time.Time // of the wait for a server
	loaded order     // what the server was told last
}

func newWorker(p *Puller, name string) *worker {
	w := &worker{puller: p, name: name, changed: make(chan struct{}, 1)}
	w.have, _ = p.folder.mark(name)
	return w
}

// tell gives another order. What is being done for the old one ends. It is false when the worker has ended.
func (w *worker) tell(o order, first bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done || w.told && w.want == o {
		return !w.done
	}
	w.want, w.told = o, true
	if first && !w.first {
		w.first = true
		w.puller.first.Add(1)
	}
	if w.stop != nil {
		w.stop()
	}
	w.wake()
	return true
}

// renew has the same model loaded by another server.
func (w *worker) renew(epoch int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told && !w.done && w.want.listed {
		w.want.epoch = epoch
		w.wake()
	}
}

func (w *worker) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// wanted is the order, and a context that ends with it.
func (w *worker) wanted(ctx context.Context) (order, context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, w.stop = context.WithCancel(ctx)
	return w.want, ctx
}

// outcome lets the start go on.
func (w *worker) outcome() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first {
		w.first = false
		w.puller.first.Done()
	}
}

// run does what is wanted, and again after a pause what failed, until the model is gone or the process ends.
func (w *worker) run(ctx context.Context) {
	defer w.outcome()
	failures := 0
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
			failures = 0
		case <-retry:
		}
		want, working := w.wanted(ctx)
		err := w.reach(working, want)
		replaced := working.Err() != nil
		w.stop()
		if replaced {
			continue
		}
		if err == nil || !w.waits(err) {
			w.outcome()
		}
		if err == nil && !want.listed && w.leave(want) {
			return
		}
		retry = nil
		if err != nil {
			pause := w.puller.Pauses[min(failures, len(w.puller.Pauses)-1)]
			failures++
			w.complain(err, pause)
			retry = time.After(pause)
		}
	}
}

// leave ends the worker of a model that is gone, unless it was listed again meanwhile.
func (w *worker) leave(was order) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = w.want == was
	return w.done
}

// waits tells whether the start may still wait: the server may be starting itself.
func (w *worker) waits(err error) bool {
	if !errors.Is(err, errUnreachable) {
		w.began = time.Time{}
		return false
	}
	if w.began.IsZero() {
		w.began = time.Now()
	}
	return time.Since(w.began) < w.puller.Patience
}

func (w *worker) complain(err error, pause time.Duration) {
	log := w.puller.Log
	if errors.Is(err, errUnreachable) {
		log.Info("The model server does not answer; the model is loaded when it does", "model", w.name)
		return
	}
	log.Error("A model is not as the list says; it is tried again", "model", w.name, "in", pause.String(), "err", err.Error())
}

// reach makes the model what it ought to be.
func (w *worker) reach(ctx context.Context, want order) error {
	if !want.listed {
		return w.remove(ctx)
	}
	if w.have != want.spec {
		if err := w.replace(ctx, want.spec); err != nil {
			return err
		}
	}
	if w.loaded == want {
		return nil
	}
	if err := w.puller.call(ctx, w.name, "load"); err != nil {
		return err
	}
	w.loaded = want
	w.puller.Log.Info("Loaded", "model", w.name)
	return nil
}

// replace fetches the files, and puts them into the place of the old ones when they are complete.
func (w *worker) replace(ctx context.Context, spec Spec) error {
	p := w.puller
	if err := spec.check(); err != nil {
		return err
	}
	select {
	case p.turns <- struct{}{}:
		defer func() { <-p.turns }()
	case <-ctx.Done():
		return errGone
	}
	staged, err := p.folder.stage(w.name)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := fetch.Run(ctx, []fetch.Pair{{Source: spec.StorageURI, Destination: staged}}, p.Fetch); err != nil {
		return errors.Join(err, p.folder.unstage(w.name))
	}
	if w.have != (Spec{}) { // the server may have the old files open
		if err := p.call(ctx, w.name, "unload"); err != nil {
			p.Log.Debug("The old version was not unloaded", "model", w.name, "err", err.Error())
		}
	}
	w.have, w.loaded = Spec{}, order{}
	if err := p.folder.swap(w.name, spec); err != nil {
		return err
	}
	w.have = spec
	p.Log.Info("Fetched", "model", w.name, "source", address.Shown(spec.StorageURI), "seconds", time.Since(began).Round(time.Millisecond).Seconds())
	return nil
}

// remove takes the files away and has the server forget the model.
func (w *worker) remove(ctx context.Context) error {
	removed := w.puller.folder.remove(w.name)
	if removed == nil {
		w.have = Spec{}
	}
	err := w.puller.call(ctx, w.name, "unload")
	if errors.Is(err, errUnreachable) {
		return errors.Join(removed, err) // a server that comes back would not have it, one that was only busy would
	}
	w.loaded = order{}
	if err != nil {
		w.puller.Log.Warn("The model server did not unload a model; its files are gone", "model", w.name, "err", err.Error())
	}
	if removed == nil {
		w.puller.Log.Info("Removed", "model", w.name)
	}
	return removed
}
