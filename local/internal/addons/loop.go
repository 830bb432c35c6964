// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// lookAfterChanges calls look after each change of what is watched, until ctx ends, and again in growing pauses after it
// failed. Everything is looked at every time: on one machine that is little.
func lookAfterChanges(ctx context.Context, sources informers.SharedInformerFactory, watched []cache.SharedIndexInformer,
	ready func(), look func(context.Context) error, failed string,
) error {
	const everything = "everything"
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, time.Minute))
	changed := func(any) { queue.Add(everything) }
	for _, source := range watched {
		_, err := source.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, now any) { changed(now) }, DeleteFunc: changed,
		})
		if err != nil {
			return err
		}
	}
	sources.Start(ctx.Done())
	defer sources.Shutdown()
	for kind, known := range sources.WaitForCacheSync(ctx.Done()) {
		if !known && ctx.Err() == nil {
			return fmt.Errorf("watching %s failed", kind)
		}
	}
	ready()
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	for {
		key, ended := queue.Get()
		if ended {
			return nil
		}
		if err := look(ctx); err != nil && ctx.Err() == nil {
			slog.Error(failed, "error", err)
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}
