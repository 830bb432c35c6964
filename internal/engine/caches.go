// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
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

// Scope is what a manager may see. The zero value is the whole cluster.
type Scope struct {
	// Namespaces that it looks after; all if empty. Kinds without a namespace
	// are seen in any case.
	Namespaces []string
	// Home is the manager's own, whose ConfigMaps it reads besides.
	Home string
}

// sees tells whether objects of a namespace are in the caches.
func (s Scope) sees(gk schema.GroupKind, namespace string) bool {
	return len(s.Namespaces) == 0 || namespace == "" || slices.Contains(s.Namespaces, namespace) ||
		gk == configMapKind && namespace == s.Home
}

var configMapKind = schema.GroupKind{Kind: "ConfigMap"}

// watched is what caches are limited to; nil is everything.
func (s Scope) watched() map[string]cache.Config {
	if len(s.Namespaces) == 0 {
		return nil
	}
	out := map[string]cache.Config{}
	for _, n := range s.Namespaces {
		out[n] = cache.Config{}
	}
	return out
}

// CacheOptions are what a manager that runs an engine gives its cache, so that
// memory holds only what is read.
func CacheOptions(scope Scope) cache.Options {
	o := cache.Options{DefaultTransform: trimInput, DefaultNamespaces: scope.watched()}
	if all := scope.watched(); all != nil {
		all[scope.Home] = cache.Config{}
		o.ByObject = map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Namespaces: all}}
	}
	return o
}

// caches are the engine's own, beside the manager's cache of inputs.
type caches struct {
	mgr    manager.Manager
	owned  cache.Cache
	inputs map[string]cache.Cache // by selector
	trims  *trims
	users  *users
	scope  Scope

	mu sync.RWMutex
	// children are the informers of the owned cache, which are indexed by owner:
	// one for each namespace, or one for all.
	children map[any][]toolscache.SharedIndexInformer // by form
}

// started makes a cache one that the manager starts and waits for before
// anything else.
type started struct{ cache.Cache }

func (s started) GetCache() cache.Cache { return s.Cache }

// ownedName is the name of the owned cache among the trims.
const ownedName = "children"

func newCaches(mgr manager.Manager, scope Scope) (*caches, error) {
	exists, err := labels.NewRequirement(LabelOwner, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	c := &caches{mgr: mgr, inputs: map[string]cache.Cache{}, trims: newTrims(), users: &users{by: map[userKey]int{}}, scope: scope, children: map[any][]toolscache.SharedIndexInformer{}}
	c.owned, err = c.add(cache.Options{
		DefaultLabelSelector: labels.NewSelector().Add(*exists),
		DefaultTransform:     c.trims.transform(ownedName, newShapes().trimChild),
		// A read must never start a watch on an API that has just gone.
		ReaderFailOnMissingInformer: true,
		NewInformer:                 c.newChildren,
	})
	return c, err
}

func (c *caches) add(o cache.Options) (cache.Cache, error) {
	o.HTTPClient, o.Scheme, o.Mapper = c.mgr.GetHTTPClient(), c.mgr.GetScheme(), c.mgr.GetRESTMapper()
	if o.DefaultNamespaces == nil {
		o.DefaultNamespaces = c.scope.watched()
	}
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
	namespaces := c.scope.watched()
	if in.Home && namespaces != nil {
		key += " at home"
		namespaces[c.scope.Home] = cache.Config{}
	}
	if err := c.trims.add(key, object, in.Trim, controller); err != nil {
		return nil, err
	}
	if in.Select == nil && in.Trim == nil && !in.Home {
		return c.mgr.GetCache(), nil
	}
	if have, ok := c.inputs[key]; ok {
		return have, nil
	}
	made, err := c.add(cache.Options{DefaultNamespaces: namespaces, DefaultLabelSelector: in.Select, DefaultTransform: c.trims.transform(key, trimInput)})
	if err == nil {
		c.inputs[key] = made
	}
	return made, err
}

// one is a cache of a single object.
func (c *caches) one(object client.Object, key types.NamespacedName) (cache.Cache, error) {
	if key.Namespace == "" {
		return nil, errors.New("the manager's own namespace is not known")
	}
	only := cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name), Transform: trimInput}
	return c.add(cache.Options{ByObject: map[client.Object]cache.ByObject{object: {Namespaces: map[string]cache.Config{key.Namespace: only}}}})
}

// index makes children of a kind findable by their owner. It may be called
// again, and must be when the kind was dropped.
func (c *caches) index(ctx context.Context, obj client.Object) error {
	_, err := c.owned.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	return err
}

// newChildren makes an informer of the owned cache. A cache of several
// namespaces does not give its informers away later.
func (c *caches) newChildren(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
	by[ownerIndex] = func(o any) ([]string, error) {
		m, ok := o.(metav1.Object)
		if !ok {
			return nil, fmt.Errorf("%T is no object", o)
		}
		return []string{m.GetLabels()[LabelOwner]}, nil
	}
	made := toolscache.NewSharedIndexInformer(lw, obj, resync, by)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.children[formOf(obj)] = append(c.children[formOf(obj)], made)
	return made
}

// drop ends a watch of the owned cache.
func (c *caches) drop(ctx context.Context, obj client.Object) error {
	c.mu.Lock()
	delete(c.children, formOf(obj))
	c.mu.Unlock() // whoever makes an informer holds the cache's own lock first
	return c.owned.RemoveInformer(ctx, obj)
}

// childIndex gives direct access to the children of a kind. What it returns is
// the cache's own and must not be changed.
type childIndex []toolscache.Indexer

// GetByKey is as in toolscache.Indexer.
func (x childIndex) GetByKey(key string) (item any, exists bool, err error) {
	for _, i := range x {
		if item, exists, err = i.GetByKey(key); exists || err != nil {
			break
		}
	}
	return item, exists, err
}

// List is as in toolscache.Indexer.
func (x childIndex) List() []any {
	var out []any
	for _, i := range x {
		out = append(out, i.List()...)
	}
	return out
}

// ByIndex is as in toolscache.Indexer.
func (x childIndex) ByIndex(name, value string) ([]any, error) {
	if len(x) == 1 {
		return x[0].ByIndex(name, value)
	}
	var out []any
	for _, i := range x {
		found, err := i.ByIndex(name, value)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// indexer waits until the cache of a kind is filled.
func (c *caches) indexer(ctx context.Context, gvk schema.GroupVersionKind, form any) (childIndex, error) {
	c.mu.RLock()
	informers := c.children[form]
	c.mu.RUnlock()
	if len(informers) == 0 {
		return nil, fmt.Errorf("%s is not watched", gvk.Kind)
	}
	var out childIndex
	for _, informer := range informers {
		if !informer.HasSynced() && !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return nil, fmt.Errorf("wait for the watch on %s: %w", gvk.Kind, context.Cause(ctx))
		}
		out = append(out, informer.GetIndexer())
	}
	return out, nil
}

// reached is the version up to which the children of a kind are known, empty if
// that is not known.
func (c *caches) reached(form any) string {
	c.mu.RLock()
	informers := c.children[form]
	c.mu.RUnlock()
	least := ""
	for _, informer := range informers {
		version := informer.GetStore().LastStoreSyncResourceVersion()
		if !informer.HasSynced() || version == "" {
			return ""
		}
		if least == "" || older(version, least) {
			least = version
		}
	}
	return least
}
