// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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
	from source.SyncingSource
	stop context.CancelFunc
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
	return w.begin(ctx)
}

// WaitForSync lets the controller begin with a full cache.
func (w *watched) WaitForSync(ctx context.Context) error {
	w.mu.Lock()
	from := w.from
	w.mu.Unlock()
	if from == nil {
		return nil
	}
	if err := from.WaitForSync(ctx); err != nil && !w.engine.apis.absent(w.gvk) {
		return err
	}
	return nil
}

// begin makes the informer and, when the controller runs, listens to it. It does
// nothing while the API is absent.
func (w *watched) begin(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.engine.apis.absent(w.gvk) {
		return nil
	}
	if err := w.hold(ctx); err != nil {
		return err
	}
	if w.queue == nil || w.from != nil {
		return nil
	}
	running, stop := context.WithCancel(w.ctx)
	from := source.Kind(w.cache, w.object, w.handler)
	if err := from.Start(running, w.queue); err != nil {
		stop()
		return err
	}
	w.from, w.stop = from, stop
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
	if w.stop != nil {
		w.stop()
	}
	w.from, w.stop = nil, nil
	if !w.held {
		return nil
	}
	w.held = false
	if !w.engine.caches.users.remove(w.cache, w.object) {
		return nil
	}
	if w.owned {
		return w.engine.caches.drop(ctx, w.object)
	}
	return w.cache.RemoveInformer(ctx, w.object)
}

// turn follows an API that came or went.
func (w *watched) turn(ctx context.Context, present bool) error {
	if !present {
		return w.end(ctx)
	}
	if err := w.begin(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	_, err := w.cache.GetInformer(ctx, w.object) // returns when it is filled
	return err
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

// follow begins and ends a controller's watches as APIs come and go, and wakes
// the objects that asked for them.
func (e *Engine) follow(run controller.Controller, t *tracker, watches []*watched, gone func(schema.GroupVersionKind)) error {
	woken := make(chan event.GenericEvent, 1)
	if err := run.Watch(source.Channel(woken, &handler.EnqueueRequestForObject{})); err != nil {
		return err
	}
	e.apis.listen(func(ctx context.Context, gvk schema.GroupVersionKind, present bool) error {
		for _, w := range watches {
			if w.gvk != gvk {
				continue
			}
			if err := w.turn(ctx, present); err != nil {
				return fmt.Errorf("follow %s: %w", gvk, err)
			}
		}
		if !present {
			gone(gvk)
		}
		for _, who := range t.concernedByAPI(gvk.GroupKind()) {
			select {
			case woken <- event.GenericEvent{Object: headFor(who)}:
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	return nil
}

// headFor names an object to the queue.
func headFor(who types.NamespacedName) *metav1.PartialObjectMetadata {
	head := &metav1.PartialObjectMetadata{}
	head.SetNamespace(who.Namespace)
	head.SetName(who.Name)
	return head
}
