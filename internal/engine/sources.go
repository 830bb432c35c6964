// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// EventSource tells of changes outside the API server by waking the objects that
// they concern. It runs where the controller runs, until ctx ends, and is started
// again when it returns before. A key that waits to be looked at takes no more
// room when it is woken again, and one that no object has costs nothing.
type EventSource func(ctx context.Context, wake func(types.NamespacedName)) error

// outside wakes objects for what happens outside the API server.
type outside struct {
	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	sources []EventSource
}

// Start is called when the controller begins, which is when its replica leads.
func (w *outside) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.mu.Lock()
	w.queue = queue
	w.mu.Unlock()
	for _, s := range w.sources {
		go w.listen(ctx, s)
	}
	return nil
}

func (w *outside) wake(who types.NamespacedName) {
	w.mu.Lock()
	queue := w.queue
	w.mu.Unlock()
	if queue != nil {
		queue.Add(reconcile.Request{NamespacedName: who})
	}
}

func (w *outside) listen(ctx context.Context, s EventSource) {
	const shortest, longest = time.Second, time.Minute
	pause := shortest
	for {
		began := time.Now()
		err := s(ctx, w.wake)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > longest {
			pause = shortest
		}
		log.FromContext(ctx).Info("A source of events ended; starting it again", "error", err, "after", pause.String())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, longest)
	}
}
