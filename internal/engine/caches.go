// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	ownerIndex        = "modelplane-owner-uid"
	lastAppliedByUser = "kubectl.kubernetes.io/last-applied-configuration"
)

func metav1Key(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

// CacheOptions are what a manager that runs an engine gives its cache, so that
// memory holds only what is read.
func CacheOptions() cache.Options {
	return cache.Options{DefaultTransform: trimInput}
}

// trimInput drops what nobody reads and what can be as large as the object.
func trimInput(obj any) (any, error) {
	m, ok := obj.(metav1.Object)
	if !ok {
		return obj, nil
	}
	m.SetManagedFields(nil)
	if a := m.GetAnnotations(); a[lastAppliedByUser] != "" {
		delete(a, lastAppliedByUser)
		m.SetAnnotations(a)
	}
	return obj, nil
}

// trimChild keeps, of the managed fields, our own entries and the names of the
// others, which say who edited a child.
func trimChild(obj any) (any, error) {
	m, ok := obj.(metav1.Object)
	if !ok {
		return obj, nil
	}
	managed := m.GetManagedFields()
	for i := range managed {
		if !strings.HasPrefix(managed[i].Manager, fieldOwnerPrefix) {
			managed[i].FieldsV1 = nil
		}
	}
	m.SetManagedFields(managed)
	return obj, nil
}

// caches are the engine's own, beside the manager's cache of inputs.
type caches struct {
	mgr      manager.Manager
	owned    cache.Cache
	selected map[string]cache.Cache // by selector
}

// started makes a cache one that the manager starts and waits for before
// anything else.
type started struct{ cache.Cache }

func (s started) GetCache() cache.Cache { return s.Cache }

func newCaches(mgr manager.Manager) (*caches, error) {
	exists, err := labels.NewRequirement(LabelOwner, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	c := &caches{mgr: mgr, selected: map[string]cache.Cache{}}
	c.owned, err = c.add(cache.Options{
		DefaultLabelSelector: labels.NewSelector().Add(*exists),
		DefaultTransform:     trimChild,
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

// of returns the cache for an input.
func (c *caches) of(in Input) (cache.Cache, error) {
	if in.Select == nil {
		return c.mgr.GetCache(), nil
	}
	key := in.Select.String()
	if have, ok := c.selected[key]; ok {
		return have, nil
	}
	made, err := c.add(cache.Options{DefaultLabelSelector: in.Select, DefaultTransform: trimInput})
	if err == nil {
		c.selected[key] = made
	}
	return made, err
}

// index makes children of a kind findable by their owner.
func (c *caches) index(ctx context.Context, obj client.Object) error {
	return c.owned.IndexField(ctx, obj, ownerIndex, func(o client.Object) []string {
		return []string{o.GetLabels()[LabelOwner]}
	})
}
