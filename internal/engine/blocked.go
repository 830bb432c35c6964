// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// mostBlockers bounds the watches on single objects. Who finds no place is woken
// by time.
const mostBlockers = 100

// Pauses of those who cannot be woken by a watch, and of a watch that failed.
const (
	blockedPause   = 10 * time.Second
	longestBlocked = 10 * time.Minute
	blockerRetry   = time.Second
)

// blockers watch what stands in the way of a child and is in none of the caches:
// somebody else's object of the child's name, or a namespace that goes. Each
// is watched by its name and as metadata only, as long as somebody waits for it.
type blockers struct {
	client metadata.Interface
	mapper meta.RESTMapper
	//nolint:containedctx // the watches live as long as the engine and not as long as the reconcile that began them
	ctx  context.Context
	stop context.CancelFunc

	mu       sync.Mutex
	most     int
	by       map[childKey]*blocker
	byWaiter map[waiter]map[childKey]struct{}
	tries    map[waiter]int // of those who are woken by time
}

// blocker is one watched object and who waits for it.
type blocker struct {
	state   string
	waiters map[waiter]struct{}
	cancel  context.CancelFunc
	failed  bool // it cannot be watched
}

// waiter is an object of one controller.
type waiter struct {
	controller *waker
	who        types.NamespacedName
}

// waker puts objects into the queue of a controller.
type waker struct{ queue chan event.GenericEvent }

func newWaker() *waker { return &waker{queue: make(chan event.GenericEvent, 1)} }

func (w *waker) wake(ctx context.Context, who types.NamespacedName) {
	head := &metav1.PartialObjectMetadata{}
	head.SetNamespace(who.Namespace)
	head.SetName(who.Name)
	select {
	case w.queue <- event.GenericEvent{Object: head}:
	case <-ctx.Done():
	}
}

func newBlockers(c metadata.Interface, mapper meta.RESTMapper) *blockers {
	ctx, stop := context.WithCancel(context.Background())
	return &blockers{client: c, mapper: mapper, ctx: ctx, stop: stop, most: mostBlockers,
		by: map[childKey]*blocker{}, byWaiter: map[waiter]map[childKey]struct{}{}, tries: map[waiter]int{}}
}

// NeedLeaderElection is false: nobody waits on a standby.
func (b *blockers) NeedLeaderElection() bool { return false }

// Start ends the watches with the manager.
func (b *blockers) Start(ctx context.Context) error {
	<-ctx.Done()
	b.stop()
	return nil
}

// wait notes everything that an object waits for now, as it was seen. It returns
// when to look again where no watch will tell, zero otherwise.
func (b *blockers) wait(w waiter, blocking map[childKey]string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(w, blocking)
	var again time.Duration
	watched := true
	for key, state := range blocking {
		bl := b.by[key]
		switch {
		case bl == nil && len(b.by) >= b.most:
			watched = false
			continue
		case bl == nil:
			bl = b.begin(key, state)
		case bl.failed:
			watched = false
		case bl.state != state: // one of the two is behind
			again = blockerRetry
		}
		bl.waiters[w] = struct{}{}
		if b.byWaiter[w] == nil {
			b.byWaiter[w] = map[childKey]struct{}{}
		}
		b.byWaiter[w][key] = struct{}{}
	}
	if watched {
		delete(b.tries, w)
		return again
	}
	pause := min(blockedPause<<min(b.tries[w], 10), longestBlocked)
	b.tries[w]++
	return soonest(again, pause)
}

// standing is how an object is that one waits for, empty if it is not known or not
// there.
func (b *blockers) standing(w waiter, key childKey) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, waits := b.byWaiter[w][key]; !waits || b.by[key].failed {
		return ""
	}
	return b.by[key].state
}

// leave forgets what an object no longer waits for.
func (b *blockers) leave(w waiter, still map[childKey]string) {
	for key := range b.byWaiter[w] {
		if _, waits := still[key]; waits {
			continue
		}
		delete(b.byWaiter[w], key)
		bl := b.by[key]
		if delete(bl.waiters, w); len(bl.waiters) == 0 {
			bl.cancel()
			delete(b.by, key)
		}
	}
	if len(b.byWaiter[w]) == 0 {
		delete(b.byWaiter, w)
	}
	if len(still) == 0 {
		delete(b.tries, w)
	}
}

func (b *blockers) begin(key childKey, state string) *blocker {
	ctx, cancel := context.WithCancel(b.ctx)
	bl := &blocker{state: state, cancel: cancel, waiters: map[waiter]struct{}{}}
	b.by[key] = bl
	go b.run(ctx, key, bl)
	return bl
}

// run watches one object until nobody waits for it any more.
func (b *blockers) run(ctx context.Context, key childKey, bl *blocker) {
	pause := blockerRetry
	for {
		began := time.Now()
		err := b.follow(ctx, key, bl)
		if ctx.Err() != nil {
			return
		}
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			log.FromContext(ctx).V(1).Info("Cannot watch what stands in the way of a child", "object", key.String(), "error", err.Error())
			b.fail(ctx, bl)
			return
		}
		if time.Since(began) > longestBlocked {
			pause = blockerRetry
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, longestBlocked)
	}
}

// follow looks at the object once and then at every change of it.
func (b *blockers) follow(ctx context.Context, key childKey, bl *blocker) error {
	mapping, err := b.mapper.RESTMapping(key.gvk.GroupKind(), key.gvk.Version)
	if err != nil {
		return err
	}
	objects := b.client.Resource(mapping.Resource).Namespace(key.Namespace)
	named := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name).String()}
	list, err := objects.List(ctx, named)
	if err != nil {
		return err
	}
	now := ""
	if len(list.Items) > 0 {
		now = stateOf(key, &list.Items[0])
	}
	b.saw(ctx, bl, now)
	named.ResourceVersion, named.AllowWatchBookmarks = list.ResourceVersion, true
	w, err := objects.Watch(ctx, named)
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		head, isHead := e.Object.(client.Object)
		switch {
		case e.Type == watch.Error:
			return apierrors.FromObject(e.Object)
		case e.Type == watch.Deleted:
			b.saw(ctx, bl, "")
		case isHead && (e.Type == watch.Added || e.Type == watch.Modified):
			b.saw(ctx, bl, stateOf(key, head))
		}
	}
	return nil
}

// saw wakes all who wait if the object is not as it was.
func (b *blockers) saw(ctx context.Context, bl *blocker, state string) {
	b.mu.Lock()
	same := bl.state == state
	bl.state = state
	b.mu.Unlock()
	if !same {
		b.wakeAll(ctx, bl)
	}
}

func (b *blockers) fail(ctx context.Context, bl *blocker) {
	b.mu.Lock()
	bl.failed = true
	b.mu.Unlock()
	b.wakeAll(ctx, bl)
}

func (b *blockers) wakeAll(ctx context.Context, bl *blocker) {
	b.mu.Lock()
	waiting := make([]waiter, 0, len(bl.waiters))
	for w := range bl.waiters {
		waiting = append(waiting, w)
	}
	b.mu.Unlock()
	for _, w := range waiting {
		w.controller.wake(ctx, w.who)
	}
}

var namespaceKind = corev1.SchemeGroupVersion.WithKind("Namespace")

// stateOf is what counts of an object that is in the way: whose it is and whether
// it goes. Other changes of it wake nobody. A namespace counts as absent from
// the moment on that it is being deleted.
func stateOf(key childKey, head client.Object) string {
	goes := head.GetDeletionTimestamp() != nil
	if key.gvk == namespaceKind {
		if goes {
			return ""
		}
		return "there"
	}
	var controller types.UID
	if ref := metav1.GetControllerOfNoCopy(head); ref != nil {
		controller = ref.UID
	}
	return fmt.Sprint(head.GetUID(), goes, controller, head.GetLabels()[LabelOwner], head.GetAnnotations()[AnnotationOwner])
}

// soonest is the shorter of two pauses; zero stands for none.
func soonest(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}
