// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// watched is one source of events of one controller: its objects, its children
// or an input. It is given to the controller once and lasts while the cluster
// serves the API, so that it works on when that is removed and installed again.
type watched struct {
	engine   *Engine
	gvk      schema.GroupVersionKind
	object   client.Object
	optional bool
	cache    cache.Cache
	handler  handler.EventHandler
	owned    bool
	index    func(client.Object) []string // of an input
	field    string                       // that it is indexed as

	mu    sync.Mutex
	held  bool            // counts as a user of the informer
	ctx   context.Context // of the controller, once it runs
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	// from feeds the queue while the API is there.
	from   cache.Informer
	events toolscache.ResourceEventHandlerRegistration
}

// custom tells whether an API is none of Kubernetes' own, which are always there.
func custom(gvk schema.GroupVersionKind) bool {
	return !clientgoscheme.Scheme.IsGroupRegistered(gvk.Group)
}

// String names the watch in the controller's log.
func (w *watched) String() string { return "watch on " + w.gvk.String() }

// Start is called when the controller begins.
func (w *watched) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.mu.Lock()
	w.ctx, w.queue = ctx, queue
	w.mu.Unlock()
	err := w.begin(ctx)
	if meta.IsNoMatchError(err) && w.engine.apis.optional(w.gvk) {
		w.engine.apis.again(w.gvk) // it went since the process asked for it
		return nil
	}
	return err
}

// WaitForSync lets the controller begin with a full cache.
func (w *watched) WaitForSync(ctx context.Context) error {
	w.mu.Lock()
	events := w.events
	w.mu.Unlock()
	if events == nil {
		return nil
	}
	err := w.engine.apis.read(ctx, w.gvk, func(ctx context.Context) error {
		if !toolscache.WaitForCacheSync(ctx.Done(), events.HasSynced) {
			return fmt.Errorf("wait for the %s: %w", w, context.Cause(ctx))
		}
		return nil
	})
	if meta.IsNoMatchError(err) {
		return nil // gone again
	}
	return err
}

// begin makes the informer, and listens to it when the controller runs and the API
// is open. It does nothing while the API is absent.
func (w *watched) begin(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.engine.apis.ends(w.gvk) {
		return nil
	}
	if err := w.hold(ctx); err != nil {
		return err
	}
	return w.listen(ctx)
}

// opened listens to an informer that is filled.
func (w *watched) opened(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listen(ctx)
}

// listen hears of everything that the informer has, and then of changes. Before the
// API is open there would be nothing to look at for whom that wakes.
func (w *watched) listen(ctx context.Context) error {
	if w.queue == nil || w.from != nil || w.engine.apis.absent(w.gvk) {
		return nil
	}
	from, err := w.cache.GetInformer(ctx, w.object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.gvk.Kind, err)
	}
	if w.events, err = from.AddEventHandler(&hearing{ctx: w.ctx, handler: w.handler, queue: w.queue}); err != nil {
		return fmt.Errorf("listen to %s: %w", w.gvk.Kind, err)
	}
	w.from = from
	return nil
}

// hold makes this one of the users of the informer.
func (w *watched) hold(ctx context.Context) error {
	if w.held {
		return nil
	}
	if w.owned {
		if err := w.engine.caches.index(ctx, w.object); err != nil {
			return fmt.Errorf("index %s by owner: %w", w.gvk.Kind, err)
		}
	}
	if w.index != nil {
		if err := w.cache.IndexField(ctx, w.object, w.field, w.index); err != nil {
			return fmt.Errorf("index %s: %w", w.gvk.Kind, err)
		}
	}
	w.engine.caches.users.add(w.cache, w.object)
	w.held = true
	return nil
}

// end stops listening, and ends the informer if nobody else uses it.
func (w *watched) end(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	if w.from != nil {
		err = w.from.RemoveEventHandler(w.events)
	}
	w.from, w.events = nil, nil
	if !w.held {
		return err
	}
	w.held = false
	if !w.engine.caches.users.remove(w.cache, w.object) {
		return err
	}
	if w.owned {
		return errors.Join(err, w.engine.caches.drop(ctx, w.object))
	}
	return errors.Join(err, w.cache.RemoveInformer(ctx, w.object))
}

// fill waits until the cache has everything, or ctx ends.
func (w *watched) fill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	_, err := w.cache.GetInformer(ctx, w.object)
	return err
}

// hearing hands what an informer tells to a controller.
type hearing struct {
	//nolint:containedctx // it is the controller's
	ctx     context.Context
	handler handler.EventHandler
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func (h *hearing) OnAdd(obj any, first bool) {
	if o, ok := obj.(client.Object); ok {
		h.handler.Create(h.ctx, event.CreateEvent{Object: o, IsInInitialList: first}, h.queue)
	}
}

func (h *hearing) OnUpdate(before, after any) {
	old, ok := before.(client.Object)
	now, both := after.(client.Object)
	if ok && both {
		h.handler.Update(h.ctx, event.UpdateEvent{ObjectOld: old, ObjectNew: now}, h.queue)
	}
}

func (h *hearing) OnDelete(obj any) {
	unknown, lost := obj.(toolscache.DeletedFinalStateUnknown)
	if lost {
		obj = unknown.Obj
	}
	if o, ok := obj.(client.Object); ok {
		h.handler.Delete(h.ctx, event.DeleteEvent{Object: o, DeleteStateUnknown: lost}, h.queue)
	}
}

// users counts who uses which informer: it must not end with the first that
// no longer needs it.
type users struct {
	mu sync.Mutex
	by map[userKey]int
}

type userKey struct {
	cache cache.Cache
	form  any
}

func (u *users) add(c cache.Cache, obj client.Object) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.by[userKey{c, formOf(obj)}]++
}

// remove tells whether it was the last one.
func (u *users) remove(c cache.Cache, obj client.Object) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := userKey{c, formOf(obj)}
	u.by[key]--
	if u.by[key] > 0 {
		return false
	}
	delete(u.by, key)
	return true
}

// follower begins and ends a controller's watches as APIs come and go, and wakes
// the objects that asked for them.
type follower struct {
	watches []*watched
	tracker *tracker
	gone    func(context.Context, schema.GroupVersionKind)
	woken   chan event.GenericEvent
}

func (e *Engine) follow(run controller.Controller, t *tracker, watches []*watched, gone func(context.Context, schema.GroupVersionKind)) error {
	f := &follower{watches: watches, tracker: t, gone: gone, woken: make(chan event.GenericEvent, 1)}
	e.apis.follow(f)
	return run.Watch(source.Channel(f.woken, &handler.EnqueueRequestForObject{}))
}

func (f *follower) of(gvk schema.GroupVersionKind) iter.Seq[*watched] {
	return func(yield func(*watched) bool) {
		for _, w := range f.watches {
			if w.gvk == gvk && !yield(w) {
				return
			}
		}
	}
}

func (f *follower) begin(ctx context.Context, gvk schema.GroupVersionKind) error {
	for w := range f.of(gvk) {
		if err := w.begin(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fill returns when all watches on an API are filled, and is false if ctx ended
// before.
func (f *follower) fill(ctx context.Context, gvk schema.GroupVersionKind) bool {
	for w := range f.of(gvk) {
		for err := w.fill(ctx); err != nil; err = w.fill(ctx) {
			if ctx.Err() == nil {
				log.FromContext(ctx).Info("The watch on an API that came is not filled yet; waiting on", "api", gvk.String(), "error", err.Error())
			}
			select {
			case <-ctx.Done():
				return false
			case <-time.After(fillPause):
			}
		}
	}
	return true
}

// opened begins to hear of the API's objects.
func (f *follower) opened(ctx context.Context, gvk schema.GroupVersionKind) error {
	for w := range f.of(gvk) {
		if err := w.opened(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) end(ctx context.Context, gvk schema.GroupVersionKind) {
	for w := range f.of(gvk) {
		if err := w.end(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Could not end a watch", "api", gvk.String())
		}
	}
	f.gone(ctx, gvk)
}

func (f *follower) wake(ctx context.Context, gvk schema.GroupVersionKind) {
	for _, who := range f.tracker.concernedByAPI(gvk.GroupKind()) {
		select {
		case f.woken <- event.GenericEvent{Object: headFor(who)}:
		case <-ctx.Done():
			return
		}
	}
}

// headFor names an object to the queue.
func headFor(who types.NamespacedName) *metav1.PartialObjectMetadata {
	head := &metav1.PartialObjectMetadata{}
	head.SetNamespace(who.Namespace)
	head.SetName(who.Name)
	return head
}
