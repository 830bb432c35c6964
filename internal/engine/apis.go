// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
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

// apis knows which optional APIs the cluster serves now, and tells when one
// comes or goes.
type apis struct {
	discovery resourceLister
	cache     cache.Cache

	mu sync.RWMutex
	by map[schema.GroupVersionKind]*term // of those that may come and go; nil while one is absent
	// found is what discovery said before the start, so that one question does for
	// all kinds of a group and version.
	found map[schema.GroupVersion]map[string]bool
	// withdrawn are the names of definitions that were deleted.
	withdrawn map[string]bool
	// followers are told of each change, one after the other.
	followers []*follower
	queue     workqueue.TypedRateLimitingInterface[schema.GroupVersion]
}

// term is a time for which an API is served. It is open when its watches are
// filled: until then the API counts as absent, so that no read waits for a watch
// that may never be filled.
type term struct {
	//nolint:containedctx // it lasts as long as the API, not as long as a call
	ctx    context.Context
	end    context.CancelFunc
	open   bool
	anew   bool           // its watches could not begin, and are to begin again
	reads  sync.WaitGroup // that are going on
	filled chan struct{}  // closed when nobody waits for its watches any more
}

func newTerm(open bool) *term {
	ctx, end := context.WithCancel(context.Background())
	t := &term{ctx: ctx, end: end, open: open, filled: make(chan struct{})}
	if open {
		close(t.filled)
	}
	return t
}

func newAPIs(d resourceLister, c cache.Cache) *apis {
	return &apis{
		discovery: d, cache: c, by: map[schema.GroupVersionKind]*term{},
		found: map[schema.GroupVersion]map[string]bool{}, withdrawn: map[string]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[schema.GroupVersion](50*time.Millisecond, time.Minute)),
	}
}

// add makes an API optional and looks for it at once.
func (a *apis) add(gvk schema.GroupVersionKind) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.by[gvk]; known {
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
	a.by[gvk] = nil
	if found[gvk.Kind] { // the process begins when its watches are filled
		a.by[gvk] = newTerm(true)
	}
	return nil
}

func (a *apis) follow(f *follower) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.followers = append(a.followers, f)
}

// served is nil unless the kind is optional and absent.
func (a *apis) served(gvk schema.GroupVersionKind) error {
	if a.absent(gvk) {
		return missing(gvk)
	}
	return nil
}

func missing(gvk schema.GroupVersionKind) error {
	return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
}

// absent tells whether an API is optional and not there.
func (a *apis) absent(gvk schema.GroupVersionKind) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	t, optional := a.by[gvk]
	return optional && (t == nil || !t.open)
}

// ends tells whether an API is optional and not even about to be there: then
// nothing may watch it.
func (a *apis) ends(gvk schema.GroupVersionKind) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	t, optional := a.by[gvk]
	return optional && t == nil
}

func (a *apis) optional(gvk schema.GroupVersionKind) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, ok := a.by[gvk]
	return ok
}

// has tells whether an optional API is there in any version that we use.
func (a *apis) has(gk schema.GroupKind) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for gvk, t := range a.by {
		if t != nil && t.open && gvk.GroupKind() == gk {
			return true
		}
	}
	return false
}

// read reads from a cache of a kind. It ends with the API, and the watches end
// after it: a read that comes later would begin them anew, and wait for what
// never comes.
func (a *apis) read(ctx context.Context, gvk schema.GroupVersionKind, do func(context.Context) error) error {
	a.mu.RLock()
	t, optional := a.by[gvk]
	if optional && (t == nil || !t.open) {
		a.mu.RUnlock()
		return missing(gvk)
	}
	if !optional {
		a.mu.RUnlock()
		return do(ctx)
	}
	t.reads.Add(1)
	a.mu.RUnlock()
	defer t.reads.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	err := do(ctx)
	if err != nil && t.ctx.Err() != nil {
		return missing(gvk)
	}
	return err
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
	for gvk := range a.by {
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
	for gvk := range a.by {
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
	var came, went []schema.GroupVersionKind
	a.mu.RLock()
	for gvk, t := range a.by {
		if gvk.GroupVersion() != gv {
			continue
		}
		if t != nil && (t.anew || !found[gvk.Kind]) {
			went = append(went, gvk)
		}
		if found[gvk.Kind] && (t == nil || t.anew) {
			came = append(came, gvk)
		}
	}
	a.mu.RUnlock()
	followed = true
	for _, gvk := range went {
		a.leave(ctx, gvk)
	}
	for _, gvk := range came {
		if err := a.come(ctx, gvk); err != nil {
			log.FromContext(ctx).Info("Could not follow an API; trying again", "api", gvk.String(), "error", err.Error())
			a.leave(ctx, gvk)
			followed = false
		}
	}
	return followed
}

// come begins the watches on an API, and opens it when they are filled. It does not
// wait for that: the API may go before, and others come.
func (a *apis) come(ctx context.Context, gvk schema.GroupVersionKind) error {
	t := newTerm(false)
	a.mu.Lock()
	a.by[gvk] = t
	followers := a.followers
	a.mu.Unlock()
	for _, f := range followers {
		if err := f.begin(ctx, gvk); err != nil {
			close(t.filled)
			return err
		}
	}
	go func() {
		defer close(t.filled)
		defer context.AfterFunc(ctx, t.end)()
		for _, f := range followers {
			if !f.fill(t.ctx, gvk) {
				return
			}
		}
		a.mu.Lock()
		t.open = t.ctx.Err() == nil
		a.mu.Unlock()
		log.FromContext(ctx).Info("API changed", "api", gvk.String(), "present", true)
		for _, f := range followers {
			if err := f.opened(ctx, gvk); err != nil {
				log.FromContext(ctx).Info("Could not follow an API; trying again", "api", gvk.String(), "error", err.Error())
				a.again(gvk)
				return
			}
			f.wake(t.ctx, gvk)
		}
	}()
	return nil
}

// leave ends the reads of an API and then its watches.
func (a *apis) leave(ctx context.Context, gvk schema.GroupVersionKind) {
	a.mu.Lock()
	t, followers := a.by[gvk], a.followers
	a.by[gvk] = nil
	a.mu.Unlock()
	t.end()
	<-t.filled
	t.reads.Wait()
	if t.open {
		log.FromContext(ctx).Info("API changed", "api", gvk.String(), "present", false)
	}
	for _, f := range followers {
		f.end(ctx, gvk)
	}
	for _, f := range followers {
		f.wake(ctx, gvk)
	}
}

// again looks for an API once more, because it cannot be watched although discovery
// listed it.
func (a *apis) again(gvk schema.GroupVersionKind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.by[gvk]; t != nil {
		t.anew = true
	}
	a.queue.AddRateLimited(gvk.GroupVersion())
}

// withdrawnButListed tells whether discovery still lists a kind whose definition
// was deleted.
func (a *apis) withdrawnButListed(gv schema.GroupVersion) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for gvk, t := range a.by {
		if t != nil && gvk.GroupVersion() == gv && a.withdrawn[definitionOf(gvk)] {
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
	for gvk, t := range a.by {
		if t != nil || gvk.GroupVersion() != gv {
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
