// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Bounds of one reconcile and of waiting for a new watch.
const (
	reconcileTimeout = 2 * time.Minute
	syncTimeout      = time.Minute
	fillPause        = time.Second
)

func (c *controllerOf[T, Seen]) setup(ctx context.Context, e *Engine) error {
	primary := newObject[T]()
	gvk, err := apiutil.GVKForObject(primary, e.mgr.GetScheme())
	if err != nil {
		return err
	}
	awake := &outside{sources: c.spec.Sources}
	r := c.reconciler(e, gvk)
	r.sources.calls = newCaller(&c.spec, awake.wake)
	if r.report.part, err = e.claims.add(gvk.GroupKind(), c.spec); err != nil {
		return err
	}
	watches, err := c.watches(e, r)
	if err != nil {
		return err
	}
	run, err := controller.New(c.spec.Name, e.mgr, controller.Options{
		Reconciler:              r,
		MaxConcurrentReconciles: c.spec.workers(e.mgr.GetControllerOptions().MaxConcurrentReconciles),
		ReconciliationTimeout:   reconcileTimeout,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](shortestPause, longestPause),
	})
	if err != nil {
		return err
	}
	if err := run.Watch(source.Channel(r.writer.waker.queue, &handler.EnqueueRequestForObject{})); err != nil {
		return err
	}
	if err := run.Watch(awake); err != nil {
		return err
	}
	for _, w := range watches {
		if err := w.begin(ctx); err != nil {
			return err
		}
		if err := run.Watch(w); err != nil {
			return err
		}
	}
	return e.follow(run, r.tracker, watches, r.gone)
}

func (c *controllerOf[T, Seen]) reconciler(e *Engine, gvk schema.GroupVersionKind) *reconciler[T, Seen] {
	live, rivals := e.mgr.GetAPIReader(), newRivals(e.pace.Contest, e.clock)
	return &reconciler[T, Seen]{
		kind: c.kind, spec: c.spec, gvk: gvk, scheme: e.mgr.GetScheme(), client: e.mgr.GetClient(), clock: e.clock, pace: e.pace,
		tracker: newTracker(), metrics: newObjectMetrics(gvk.Kind),
		failures: map[types.NamespacedName]int{}, conflicts: map[types.NamespacedName]int{}, uids: map[types.NamespacedName]types.UID{}, removed: map[types.UID]bool{},
		sources: &sources{
			scheme: e.mgr.GetScheme(), inputs: e.mgr.GetCache(), selected: map[any]client.Reader{}, home: map[schema.GroupKind]bool{},
			indexes: indexes{}, field: c.spec.fieldOwner(),
			owned: e.caches.owned, heads: map[schema.GroupKind]bool{}, live: live, apis: e.apis, contents: e.contents, scope: e.caches.scope,
		},
		writer: &writer{
			client: e.mgr.GetClient(), live: live, caches: e.caches, apis: e.apis, ledger: newLedger(),
			metrics: &childMetrics{kind: gvk.Kind}, fieldOwner: c.spec.fieldOwner(), second: c.spec.second(), sharing: newSharing(), optOut: c.spec.OptOut,
			oldManagers: c.spec.OldManagers, formerOwners: c.spec.FormerOwners, unwritten: c.spec.ApplyFailedReasons,
			blockers: e.blockers, rivals: rivals, waker: newWaker(), clock: e.clock,
		},
		report: &reporter{
			client: e.mgr.GetClient(), events: e.mgr.GetEventRecorder(c.spec.fieldOwner()), clock: e.clock,
			ready: c.spec.readyType(), blocked: c.spec.Blocked, readyEvent: c.spec.ReadyEvent, notReadyEvent: c.spec.NotReadyEvent, knative: c.spec.KnativeConditions, owner: c.spec.fieldOwner(),
			written: map[types.UID]writtenStatus{}, rivals: rivals, live: live, kind: gvk,
			noStatus: c.spec.NoStatus, told: map[types.UID]string{},
		},
	}
}

// watches lists everything that wakes objects of the kind, and tells the
// reconciler where to read it.
func (c *controllerOf[T, Seen]) watches(e *Engine, r *reconciler[T, Seen]) ([]*watched, error) {
	var err error
	if r.objects, err = c.objects(e, r); err != nil {
		return nil, err
	}
	r.writer.sharing.all = r.all
	out := []*watched{{engine: e, gvk: r.gvk, object: newObject[T](), cache: r.objects, handler: primaryHandler(r.report)}}
	for _, k := range c.spec.Children {
		gvk, err := apiutil.GVKForObject(k.Object, e.mgr.GetScheme())
		if err != nil {
			return nil, err
		}
		object := prototype(k.Object, gvk, k.MetadataOnly)
		if err := e.caches.trims.add(ownedName, object, k.Trim, c.spec.Name); err != nil {
			return nil, err
		}
		r.writer.kinds = append(r.writer.kinds, childKind{gvk: gvk, form: formOf(object)})
		r.sources.heads[gvk.GroupKind()] = k.MetadataOnly
		out = append(out, &watched{engine: e, gvk: gvk, object: object, optional: k.Optional, owned: true,
			cache: e.caches.owned, handler: childHandler(ownerKind{r.gvk, e.inNamespaces(r.gvk)}, gvk, r.writer, k.MetadataOnly || k.Trim != nil)})
	}
	for _, in := range c.spec.Inputs {
		gvk, err := apiutil.GVKForObject(in.Object, e.mgr.GetScheme())
		if err != nil {
			return nil, err
		}
		object := prototype(in.Object, gvk, in.MetadataOnly)
		from, err := e.caches.of(in, object, c.spec.Name)
		if err != nil {
			return nil, err
		}
		if err := r.sources.reads(in, gvk.GroupKind(), object, from); err != nil {
			return nil, err
		}
		out = append(out, &watched{engine: e, gvk: gvk, object: object, optional: in.Optional, cache: from,
			index: in.Index, field: r.sources.field, handler: inputHandler(gvk.GroupKind(), r.tracker, in)})
	}
	for _, w := range out {
		if w.optional || custom(w.gvk) {
			if err := e.apis.add(w.gvk); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// reads notes where an input is read. A kind may be an input more than once: in
// several forms, or of several selections.
func (s *sources) reads(in Input, gk schema.GroupKind, object client.Object, from cache.Cache) error {
	form := formOf(object)
	if have := s.selected[form]; have != nil && have != client.Reader(from) && (in.Index != nil || s.indexes[gk] != nil) {
		return fmt.Errorf("%s is an input more than once, with an Index: give one Input that selects all of it", gk.Kind)
	}
	s.selected[form], s.selected[gk] = several{}.with(s.selected[form], from), from
	s.home[gk] = s.home[gk] || in.Home
	if in.Index != nil {
		s.indexes[gk] = in.Index
	}
	return nil
}

// objects is the cache of the objects of the kind, as far as they are the
// controller's to look after.
func (c *controllerOf[T, Seen]) objects(e *Engine, r *reconciler[T, Seen]) (cache.Cache, error) {
	if c.spec.HomeName == "" {
		return e.caches.of(Input{Select: c.spec.Select}, newObject[T](), c.spec.Name)
	}
	r.home = types.NamespacedName{Namespace: e.caches.scope.Home, Name: c.spec.HomeName}
	return e.caches.one(newObject[T](), r.home)
}

// primaryHandler wakes an object for every change of it but our own status
// write.
func primaryHandler(rep *reporter) handler.EventHandler {
	wake := &handler.EnqueueRequestForObject{}
	return handler.Funcs{
		CreateFunc: wake.Create,
		DeleteFunc: wake.Delete,
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if !rep.isOwn(e.ObjectNew) {
				wake.Update(ctx, e, q)
			}
		},
	}
}

// childHandler wakes the owner of a child, or all who plan a shared one, and
// notes that the child is gone. Where not all of a child is kept (partial), a
// change of what is not kept wakes nobody.
func childHandler(owner ownerKind, gvk schema.GroupVersionKind, w *writer, partial bool) handler.EventHandler {
	wake := func(obj client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		for _, who := range w.sharing.planners(childKey{gvk: gvk, NamespacedName: client.ObjectKeyFromObject(obj)}) {
			q.Add(reconcile.Request{NamespacedName: who})
		}
		if who, ok := owner.of(obj); ok {
			q.Add(reconcile.Request{NamespacedName: who})
		}
	}
	left := func(obj client.Object) {
		w.ledger.left(types.UID(obj.GetLabels()[LabelOwner]), childKey{gvk: gvk, NamespacedName: client.ObjectKeyFromObject(obj)}, obj.GetUID())
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			wake(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if e.ObjectOld.GetLabels()[LabelOwner] != e.ObjectNew.GetLabels()[LabelOwner] {
				left(e.ObjectOld) // for its owner it is gone
			}
			if unchanged(e, partial) {
				return
			}
			wake(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			left(e.Object)
			wake(e.Object, q)
		},
	}
}

// unchanged tells whether an update has nothing to say to us: the same state once
// more, or another one of which only what is kept counts, and that is alike.
func unchanged(e event.UpdateEvent, trimmed bool) bool {
	return e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion() || trimmed && alike(e.ObjectOld, e.ObjectNew)
}

// ownerKind is a kind of owners, and whether they are in namespaces.
type ownerKind struct {
	schema.GroupVersionKind
	namespaced func() bool
}

// inNamespaces tells whether objects of a kind are in namespaces, from when the cluster has said so. Until then there is no
// object that it would matter for.
func (e *Engine) inNamespaces(gvk schema.GroupVersionKind) func() bool {
	var mu sync.Mutex
	known, yes := false, true
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		if !known && !e.apis.absent(gvk) {
			if found, err := apiutil.IsGVKNamespaced(gvk, e.mgr.GetRESTMapper()); err == nil {
				known, yes = true, found
			}
		}
		return yes
	}
}

// of names the object of the kind that a child belongs to. One of the cluster has no namespace, whatever its child has: under
// two names it would be reconciled twice at the same time.
func (kind ownerKind) of(child client.Object) (types.NamespacedName, bool) {
	if ref := metav1.GetControllerOfNoCopy(child); ref != nil && child.GetAnnotations()[AnnotationOwner] == "" {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil || gv.Group != kind.Group || ref.Kind != kind.Kind {
			return types.NamespacedName{}, false
		}
		who := types.NamespacedName{Name: ref.Name}
		if kind.namespaced() {
			who.Namespace = child.GetNamespace()
		}
		return who, true
	}
	parts := strings.Split(child.GetAnnotations()[AnnotationOwner], "/")
	if len(parts) != 3 || parts[0] != kind.GroupKind().String() {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: parts[1], Name: parts[2]}, true
}

// inputHandler wakes exactly those that asked for an input. A change of what is
// trimmed wakes nobody.
func inputHandler(gk schema.GroupKind, t *tracker, in Input) handler.EventHandler {
	wake := func(q workqueue.TypedRateLimitingInterface[reconcile.Request], states ...client.Object) {
		for who := range t.concerned(gk, in.Index, states...) {
			q.Add(reconcile.Request{NamespacedName: who})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			wake(q, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if unchanged(e, in.Trim != nil) {
				return
			}
			wake(q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			wake(q, e.Object)
		},
	}
}

// prototype is an empty object to watch with: typed where the scheme knows the
// kind, unstructured otherwise, or only a head.
func prototype(obj client.Object, gvk schema.GroupVersionKind, head bool) client.Object {
	if head {
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(gvk)
		return m
	}
	if _, ok := obj.(*unstructured.Unstructured); ok {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		return u
	}
	return newLike(obj)
}
