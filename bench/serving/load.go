// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// nameOf gives services names of one length, so that one can stand for another
// in a copy of its children.
func nameOf(i int) string { return fmt.Sprintf("svc-%05d", i) }

// service is what users have: a model of a known format somewhere in a store.
func service(i int) *v1beta1.InferenceService {
	isvc := &v1beta1.InferenceService{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: nameOf(i)}}
	isvc.Spec.Predictor.Model = &v1beta1.ModelSpec{ModelFormat: v1beta1.ModelFormat{Name: "sklearn"}}
	isvc.Spec.Predictor.Model.StorageURI = ptr.To("s3://models/" + isvc.Name)
	return isvc
}

// parallel calls do for 1 to n, with so many at once, and joins the errors.
func parallel(n, workers int, do func(i int) error) error {
	work, errs := make(chan int), make([]error, n+1)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range work {
				errs[i] = do(i)
			}
		})
	}
	for i := 1; i <= n; i++ {
		work <- i
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}

// clock tells when each service was asked for and when it was first seen ready.
type clock struct {
	mu           sync.Mutex
	asked, ready map[string]time.Time
}

// watchServices starts a clock.
func (b *bed) watchServices(ctx context.Context) *clock {
	b.t.Helper()
	c := &clock{asked: map[string]time.Time{}, ready: map[string]time.Time{}}
	services, err := cache.New(b.Config(), cache.Options{Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		b.t.Fatal(err)
	}
	informer, err := services.GetInformer(ctx, &v1beta1.InferenceService{}, cache.BlockUntilSynced(false))
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: c.see, UpdateFunc: func(_, obj any) { c.see(obj) }}); err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	b.t.Cleanup(stop)
	go func() { _ = services.Start(ctx) }() // ends with the context only
	return c
}

func (c *clock) see(obj any) {
	isvc, ok := obj.(*v1beta1.InferenceService)
	if !ok || !isReady(isvc) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, seen := c.ready[isvc.Name]; !seen {
		c.ready[isvc.Name] = time.Now()
	}
}

func isReady(isvc *v1beta1.InferenceService) bool {
	return slices.ContainsFunc(isvc.Status.Conditions, func(c v1beta1.Condition) bool {
		return c.Type == "Ready" && c.Status == corev1.ConditionTrue
	})
}

func (c *clock) ask(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[name] = time.Now()
}

// missing tells whether some of the services that were asked for are not ready.
func (c *clock) missing() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.asked {
		if _, ok := c.ready[name]; !ok {
			return fmt.Errorf("%d of %d are ready; %s is not", len(c.ready), len(c.asked), name)
		}
	}
	return nil
}

// times returns when services became ready, counted from begin, and how long
// each took, both sorted.
func (c *clock) times(begin time.Time) (ready, took []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, asked := range c.asked {
		if asked.Before(begin) {
			continue
		}
		ready = append(ready, c.ready[name].Sub(begin))
		took = append(took, c.ready[name].Sub(asked))
	}
	slices.Sort(ready)
	slices.Sort(took)
	return ready, took
}

// askForFirst creates the service that stands for all others. It is also the
// sign that the manager works: webhooks may refuse it at first.
func (b *bed) askForFirst(ctx context.Context, c *clock, m *manager, patience time.Duration) {
	b.t.Helper()
	b.until(ctx, patience, "the first service to be accepted", func() error {
		m.usage(b.t)
		c.ask(nameOf(0))
		return client.IgnoreAlreadyExists(b.client.Create(ctx, service(0)))
	})
	b.until(ctx, patience, "the first service to be ready", func() error {
		m.usage(b.t)
		if err := c.missing(); err != nil {
			return errors.Join(err, b.why(ctx, nameOf(0)))
		}
		return nil
	})
}

// why is what a service that is not ready says.
func (b *bed) why(ctx context.Context, name string) error {
	isvc := &v1beta1.InferenceService{}
	if err := b.client.Get(ctx, client.ObjectKey{Namespace: space, Name: name}, isvc); err != nil {
		return err
	}
	var all []error
	for _, c := range isvc.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			all = append(all, fmt.Errorf("%s of %s is %s: %s", c.Type, name, c.Status, c.Message))
		}
	}
	return errors.Join(all...)
}

// askForAll creates n services as fast as the API takes them.
func (b *bed) askForAll(ctx context.Context, c *clock, n, clients int) {
	b.t.Helper()
	err := parallel(n, clients, func(i int) error {
		c.ask(nameOf(i))
		return b.client.Create(ctx, service(i))
	})
	if err != nil {
		b.t.Fatalf("create services: %v", err)
	}
}

// allReady tells whether every service is ready now.
func (b *bed) allReady(ctx context.Context) error {
	list := &v1beta1.InferenceServiceList{}
	if err := b.client.List(ctx, list, client.InNamespace(space)); err != nil {
		return err
	}
	for i := range list.Items {
		if !isReady(&list.Items[i]) {
			return fmt.Errorf("%s is not ready", list.Items[i].Name)
		}
	}
	return nil
}
