// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// The two places where a cluster says which APIs it serves. Both are watched
// as metadata only.
var apiSources = []schema.GroupVersionKind{
	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
	{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
}

// resourceLister is the part of discovery that is needed.
type resourceLister interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

type listener func(ctx context.Context, gvk schema.GroupVersionKind, present bool) error

// apis knows which optional APIs the cluster serves now, and tells when one
// comes or goes.
type apis struct {
	discovery resourceLister
	cache     cache.Cache

	mu      sync.RWMutex
	present map[schema.GroupVersionKind]bool // those that may come and go
	// found is what discovery said before the start, so that one question does for
	// all kinds of a group and version.
	found map[schema.GroupVersion]map[string]bool
	// withdrawn are the names of definitions that were deleted.
	withdrawn map[string]bool
	// listeners are told of each change, one after the other. It is told again
	// when one of them fails.
	listeners []listener
	queue     workqueue.TypedRateLimitingInterface[schema.GroupVersion]
}

func newAPIs(d resourceLister, c cache.Cache) *apis {
	return &apis{
		discovery: d, cache: c, present: map[schema.GroupVersionKind]bool{},
		found: map[schema.GroupVersion]map[string]bool{}, withdrawn: map[string]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[schema.GroupVersion](50*time.Millisecond, time.Minute)),
	}
}

// add makes an API optional and looks for it at once.
func (a *apis) add(gvk schema.GroupVersionKind) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.present[gvk]; known {
		return nil
	}
	found, asked := a.found[gvk.GroupVersion()]
	if !asked {
		var err error
		if found, err = a.discover(gvk.GroupVersion()); err != nil {
			return fmt.Errorf("look for the API %s: %w", gvk.GroupVersion(), err)
		}
		a.found[gvk.GroupVersion()] = found
	}
	a.present[gvk] = found[gvk.Kind]
	return nil
}

func (a *apis) listen(f listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners = append(a.listeners, f)
}

// served is nil unless the kind is optional and absent.
func (a *apis) served(gvk schema.GroupVersionKind) error {
	if a.absent(gvk) {
		return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	return nil
}

// absent tells whether an API is optional and not there.
func (a *apis) absent(gvk schema.GroupVersionKind) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	present, optional := a.present[gvk]
	return optional && !present
}

func (a *apis) optional(gvk schema.GroupVersionKind) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, ok := a.present[gvk]
	return ok
}

// has tells whether an optional API is there in any version that we use.
func (a *apis) has(gk schema.GroupKind) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for gvk, present := range a.present {
		if present && gvk.GroupKind() == gk {
			return true
		}
	}
	return false
}

func (a *apis) discover(gv schema.GroupVersion) (map[string]bool, error) {
	list, err := a.discovery.ServerResourcesForGroupVersion(gv.String())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			found[r.Kind] = true
		}
	}
	return found, nil
}

// NeedLeaderElection is false: a standby knows its APIs too.
func (a *apis) NeedLeaderElection() bool { return false }

// Start watches the places where APIs are announced, until ctx ends.
func (a *apis) Start(ctx context.Context) error {
	defer a.queue.ShutDown()
	for _, gvk := range apiSources {
		if err := a.watch(ctx, gvk); err != nil {
			return err
		}
	}
	a.mu.Lock()
	clear(a.found)
	a.mu.Unlock()
	a.wake(func(schema.GroupVersion) bool { return true })
	go func() {
		for a.next(ctx) {
		}
	}()
	<-ctx.Done()
	return nil
}

func (a *apis) watch(ctx context.Context, gvk schema.GroupVersionKind) error {
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(gvk)
	informer, err := a.cache.GetInformer(ctx, head, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch %s: %w", gvk.Kind, err)
	}
	// Both are named <something>.<group>.
	announced := func(obj any, deleted bool) {
		if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if m, err := meta.Accessor(obj); err == nil {
			a.note(gvk, m.GetName(), deleted)
			_, group, _ := strings.Cut(m.GetName(), ".")
			a.wake(func(gv schema.GroupVersion) bool { return gv.Group == group })
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { announced(obj, false) },
		UpdateFunc: func(_, obj any) { announced(obj, false) },
		DeleteFunc: func(obj any) { announced(obj, true) },
	})
	return err
}

// note remembers which definitions of kinds that we use were deleted: discovery
// lists them for a moment longer.
func (a *apis) note(source schema.GroupVersionKind, name string, deleted bool) {
	if source != apiSources[0] {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.withdrawn, name)
	for gvk := range a.present {
		if deleted && definitionOf(gvk) == name {
			a.withdrawn[name] = true
		}
	}
}

// definitionOf is the name of the definition of a kind, as far as it can be guessed.
func definitionOf(gvk schema.GroupVersionKind) string {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural.GroupResource().String()
}

func (a *apis) wake(match func(schema.GroupVersion) bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for gvk := range a.present {
		if match(gvk.GroupVersion()) {
			a.queue.Add(gvk.GroupVersion())
		}
	}
}

// next looks at one group and version again, false when there is no more.
func (a *apis) next(ctx context.Context) bool {
	gv, shutdown := a.queue.Get()
	if shutdown {
		return false
	}
	defer a.queue.Done(gv)
	found, err := a.discover(gv)
	if err != nil {
		log.FromContext(ctx).V(1).Info("Could not look for an optional API; trying again", "api", gv.String(), "error", err.Error())
		a.queue.AddRateLimited(gv)
		return true
	}
	followed := a.notify(ctx, gv, found)
	if !followed || a.announcedButAbsent(ctx, gv) || a.withdrawnButListed(gv) {
		a.queue.AddRateLimited(gv) // discovery follows a moment later
	} else {
		a.queue.Forget(gv)
	}
	return true
}

// notify tells of what changed. It is false when that must be told again.
func (a *apis) notify(ctx context.Context, gv schema.GroupVersion, found map[string]bool) (followed bool) {
	changed := map[schema.GroupVersionKind]bool{}
	a.mu.Lock()
	for gvk, before := range a.present {
		if gvk.GroupVersion() == gv && found[gvk.Kind] != before {
			a.present[gvk] = found[gvk.Kind]
			changed[gvk] = found[gvk.Kind]
		}
	}
	listeners := a.listeners
	a.mu.Unlock()
	followed = true
	for gvk, present := range changed {
		log.FromContext(ctx).Info("API changed", "api", gvk.String(), "present", present)
		var failed error
		for _, tell := range listeners {
			failed = errors.Join(failed, tell(ctx, gvk, present))
		}
		if failed != nil {
			log.FromContext(ctx).Info("Could not follow an API; trying again", "api", gvk.String(), "error", failed.Error())
			followed = false
			a.mu.Lock()
			a.present[gvk] = !present
			a.mu.Unlock()
		}
	}
	return followed
}

// withdrawnButListed tells whether discovery still lists a kind whose definition
// was deleted.
func (a *apis) withdrawnButListed(gv schema.GroupVersion) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for gvk, present := range a.present {
		if present && gvk.GroupVersion() == gv && a.withdrawn[definitionOf(gvk)] {
			return true
		}
	}
	return false
}

// announcedButAbsent tells whether a definition exists for a kind that
// discovery does not list yet.
func (a *apis) announcedButAbsent(ctx context.Context, gv schema.GroupVersion) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for gvk, present := range a.present {
		if present || gvk.GroupVersion() != gv {
			continue
		}
		head := &metav1.PartialObjectMetadata{}
		head.SetGroupVersionKind(apiSources[0])
		err := a.cache.Get(ctx, metav1Key(definitionOf(gvk)), head)
		if err == nil && head.DeletionTimestamp == nil {
			return true
		}
	}
	return false
}
