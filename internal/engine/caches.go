// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const ownerIndex = "modelplane-owner-uid"

func metav1Key(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

// CacheOptions are what a manager that runs an engine gives its cache, so that
// memory holds only what is read.
func CacheOptions() cache.Options {
	return cache.Options{DefaultTransform: trimInput}
}

// caches are the engine's own, beside the manager's cache of inputs.
type caches struct {
	mgr    manager.Manager
	owned  cache.Cache
	inputs map[string]cache.Cache // by selector
	trims  *trims
	users  *users

	mu sync.RWMutex
	// children are the informers of the owned cache that are indexed by owner.
	children map[any]toolscache.SharedIndexInformer // by form
}

// started makes a cache one that the manager starts and waits for before
// anything else.
type started struct{ cache.Cache }

func (s started) GetCache() cache.Cache { return s.Cache }

// ownedName is the name of the owned cache among the trims.
const ownedName = "children"

func newCaches(mgr manager.Manager) (*caches, error) {
	exists, err := labels.NewRequirement(LabelOwner, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	c := &caches{mgr: mgr, inputs: map[string]cache.Cache{}, trims: newTrims(), users: &users{by: map[userKey]int{}}, children: map[any]toolscache.SharedIndexInformer{}}
	c.owned, err = c.add(cache.Options{
		DefaultLabelSelector: labels.NewSelector().Add(*exists),
		DefaultTransform:     c.trims.transform(ownedName, newShapes().trimChild),
		// A read must never start a watch on an API that has just gone.
		ReaderFailOnMissingInformer: true,
	})
	return c, err
}

func (c *caches) add(o cache.Options) (cache.Cache, error) {
	o.HTTPClient, o.Scheme, o.Mapper = c.mgr.GetHTTPClient(), c.mgr.GetScheme(), c.mgr.GetRESTMapper()
	made, err := cache.New(c.mgr.GetConfig(), o)
	if err != nil {
		return nil, fmt.Errorf("make a cache: %w", err)
	}
	return made, c.mgr.Add(started{made})
}

// of returns the cache for an input: the manager's, or one of our own where
// the input is selected or trimmed.
func (c *caches) of(in Input, object client.Object, controller string) (cache.Cache, error) {
	key := "inputs"
	if in.Select != nil {
		key += " " + in.Select.String()
	}
	if err := c.trims.add(key, object, in.Trim, controller); err != nil {
		return nil, err
	}
	if in.Select == nil && in.Trim == nil {
		return c.mgr.GetCache(), nil
	}
	if have, ok := c.inputs[key]; ok {
		return have, nil
	}
	made, err := c.add(cache.Options{DefaultLabelSelector: in.Select, DefaultTransform: c.trims.transform(key, trimInput)})
	if err == nil {
		c.inputs[key] = made
	}
	return made, err
}

// index makes children of a kind findable by their owner. It may be called
// again, and must be when the kind was dropped.
func (c *caches) index(ctx context.Context, obj client.Object) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.children[formOf(obj)] != nil {
		return nil
	}
	informer, err := c.owned.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return fmt.Errorf("the cache has no index: %T", informer)
	}
	err = shared.AddIndexers(toolscache.Indexers{ownerIndex: func(o any) ([]string, error) {
		m, ok := o.(metav1.Object)
		if !ok {
			return nil, fmt.Errorf("%T is no object", o)
		}
		return []string{m.GetLabels()[LabelOwner]}, nil
	}})
	if err == nil {
		c.children[formOf(obj)] = shared
	}
	return err
}

// drop ends a watch of the owned cache.
func (c *caches) drop(ctx context.Context, obj client.Object) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.children, formOf(obj))
	return c.owned.RemoveInformer(ctx, obj)
}

// indexer gives direct access to the children of a kind. What it returns is the
// cache's own and must not be changed. It waits until the cache is filled.
func (c *caches) indexer(ctx context.Context, gvk schema.GroupVersionKind, form any) (toolscache.Indexer, error) {
	c.mu.RLock()
	informer := c.children[form]
	c.mu.RUnlock()
	if informer == nil {
		return nil, fmt.Errorf("%s is not watched", gvk.Kind)
	}
	if !informer.HasSynced() && !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("wait for the watch on %s: %w", gvk.Kind, context.Cause(ctx))
	}
	return informer.GetIndexer(), nil
}

// reached is the version up to which the children of a kind are known, empty if
// that is not known.
func (c *caches) reached(form any) string {
	c.mu.RLock()
	informer := c.children[form]
	c.mu.RUnlock()
	if informer == nil || !informer.HasSynced() {
		return ""
	}
	return informer.GetStore().LastStoreSyncResourceVersion()
}
