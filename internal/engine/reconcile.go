// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelplane/modelplane/internal/kube"
)

// patience is how many failures in a row stay between us and the log before
// the object itself says that it is stalled.
const patience = 5

// reconciler takes one object at a time through the four rooms.
type reconciler[T client.Object, Seen any] struct {
	kind    Kind[T, Seen]
	spec    Spec
	gvk     schema.GroupVersionKind
	scheme  *runtime.Scheme
	client  client.Client
	objects cache.Cache
	home    types.NamespacedName // the one object, if it is only one
	sources *sources
	tracker *tracker
	writer  *writer
	report  *reporter
	metrics *objectMetrics
	clock   clock.PassiveClock
	pace    Pace

	mu        sync.Mutex
	failures  map[types.NamespacedName]int
	conflicts map[types.NamespacedName]int
	uids      map[types.NamespacedName]types.UID
	removed   map[types.UID]bool // deleted by us, still seen
}

// Reconcile is called by the queue. A conflict only says that the cache lags
// behind: it is tried again shortly and is no failure. Whatever an event that got
// lost would have told is found by a look at the caches now and then.
func (r *reconciler[T, Seen]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := r.reconcile(ctx, req)
	conflicts := r.row(r.conflicts, req.NamespacedName, apierrors.IsConflict(err))
	if conflicts > 0 {
		return reconcile.Result{RequeueAfter: min(conflictPause<<min(conflicts-1, 10), longestConflict)}, nil
	}
	if err == nil && r.has(req.NamespacedName) {
		result.RequeueAfter = soonest(result.RequeueAfter, r.pace.next())
	}
	return result, err
}

func (r *reconciler[T, Seen]) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if r.home != (types.NamespacedName{}) && r.home != req.NamespacedName {
		return reconcile.Result{}, nil // some other object of the kind
	}
	obj := newObject[T]()
	err := r.sources.apis.read(ctx, r.gvk, func(ctx context.Context) error { return r.objects.Get(ctx, req.NamespacedName, obj) })
	if meta.IsNoMatchError(err) {
		r.forget(ctx, req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if apierrors.IsNotFound(err) {
		if p := r.removeOrphans(ctx, req.NamespacedName); p != nil {
			return reconcile.Result{}, p
		}
		r.forget(ctx, req.NamespacedName)
		r.count("deleted")
		if p := r.writer.removeUnshared(ctx); p != nil {
			return reconcile.Result{}, p
		}
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read the object: %w", err)
	}
	r.remember(req.NamespacedName, obj.GetUID())
	o := owner{Object: obj, gvk: r.gvk}
	if obj.GetDeletionTimestamp() != nil {
		return r.finish(ctx, o, obj)
	}
	return r.advance(ctx, o, obj)
}

func (r *reconciler[T, Seen]) advance(ctx context.Context, o owner, obj T) (reconcile.Result, error) {
	seen, err := r.observe(ctx, obj)
	if err != nil {
		return reconcile.Result{}, r.reportAndRetry(ctx, obj, Plan{}, problemOf(err, "Reading what the decision depends on"), nil)
	}
	plan := r.kind.Plan(obj, seen)
	if plan.DeleteSelf != nil {
		return reconcile.Result{}, r.reportAndRetry(ctx, obj, Plan{}, r.remove(ctx, obj, *plan.DeleteSelf), nil)
	}
	return r.carryOut(ctx, o, obj, plan)
}

// carryOut applies a plan and reports.
func (r *reconciler[T, Seen]) carryOut(ctx context.Context, o owner, obj T, plan Plan) (reconcile.Result, error) {
	out := r.apply(ctx, o, plan)
	if obj.GetDeletionTimestamp() != nil && slices.ContainsFunc(out.problems, namespaceGoes) {
		return reconcile.Result{}, r.reportAndRetry(ctx, obj, Plan{}, r.letGo(ctx, o), nil) // it cannot be made any more
	}
	out.again = soonest(out.again, r.writer.blockers.wait(r.writer.waiter(client.ObjectKeyFromObject(obj)), out.blockers))
	problem := plan.Problem
	if len(out.problems) > 0 {
		problem = summary(out.problems)
	}
	if problem == nil && out.unseen {
		plan.Status = nil // it speaks of children as they were; their events come with another look
	}
	if len(out.problems) == 0 {
		if p := r.sources.calls.perform(client.ObjectKeyFromObject(obj), plan.Calls); p != nil {
			problem = p
		}
	}
	if len(out.problems) == 0 && !out.unseen {
		err := r.takeOff(ctx, o, plan.RemoveAnnotations)
		if err == nil {
			err = r.putLabels(ctx, o, plan.SetLabels)
		}
		if apierrors.IsConflict(err) {
			return reconcile.Result{}, err
		} else if err != nil {
			plan.Status, problem = nil, problemOf(err, "Changing the object's own labels and annotations")
		}
	}
	err := r.reportAndRetry(ctx, obj, plan, problem, out.events)
	out.again = soonest(out.again, r.writer.rivals.due(obj.GetUID()))
	return reconcile.Result{RequeueAfter: soonest(plan.RequeueAfter, out.again)}, err
}

func (r *reconciler[T, Seen]) observe(ctx context.Context, obj T) (Seen, error) {
	rec := r.sources.recorder(client.ObjectKeyFromObject(obj), r.tracker)
	defer rec.done()
	// A plan that names a child of an optional kind is woken when that API comes.
	for _, k := range r.writer.kinds {
		if r.sources.apis.optional(k.gvk) {
			rec.need(need{gk: k.gvk.GroupKind(), api: true}, nil)
		}
	}
	return r.kind.Observe(ctx, rec, obj)
}

func (r *reconciler[T, Seen]) apply(ctx context.Context, o owner, plan Plan) outcome {
	out := outcome{}
	intents := make([]*intent, 0, len(plan.Children))
	unreachable := false
	for _, c := range plan.Children {
		in, err := newIntent(r.scheme, o, c)
		if err != nil {
			out.fail(badPlan(err))
			return out
		}
		if !r.writer.declared(in.key.gvk) {
			out.fail(badPlan(fmt.Errorf("the plan names %s, a kind that the controller did not declare", in.key)))
			return out
		}
		unreachable = unreachable || !in.reachable && !in.Retain && !in.Shared && !in.Unmanaged && !in.Delete
		intents = append(intents, in)
	}
	if plan.KeepChildren {
		return r.writer.applyRetained(ctx, o, intents)
	}
	if err := r.finalize(ctx, o, plan, unreachable); err != nil {
		out.fail(problemOf(err, "Changing the finalizers"))
		return out
	}
	return r.writer.apply(ctx, o, intents)
}

// finalize sees to it that an object has our finalizer if it needs it.
func (r *reconciler[T, Seen]) finalize(ctx context.Context, o owner, plan Plan, unreachable bool) error {
	_, ends := r.kind.(Teardown[T, Seen])
	switch {
	case o.GetDeletionTimestamp() != nil:
		return nil
	case unreachable, ends && !plan.NoFinalizer:
		return r.ensureFinalizer(ctx, o)
	case ends && !r.spec.FarReaching: // else an earlier child may still need it
		return r.dropFinalizer(ctx, o)
	}
	return nil
}

// reportAndRetry reports, counts and decides whether to try again.
func (r *reconciler[T, Seen]) reportAndRetry(ctx context.Context, obj T, plan Plan, problem *Problem, said []Event) error {
	key := client.ObjectKeyFromObject(obj)
	retry := problem != nil && problem.Family == Failed
	failures := r.row(r.failures, key, retry)
	shown := problem
	if retry && !problem.visible {
		plan.Status = nil // it speaks of children that could not be written
		if failures < patience {
			shown = nil
		}
	}
	conditions, err := r.tell(ctx, obj, plan, shown, said)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		r.count(outcomeOf(problem, false, true))
		return err
	}
	ready := r.spec.ready(conditions) && (!r.spec.NoStatus || problem == nil)
	if !r.spec.second() {
		r.metrics.observe(key, conditions, ready, r.clock.Now())
	}
	r.count(outcomeOf(problem, ready, false))
	if retry {
		return problem
	}
	if problem != nil {
		log.FromContext(ctx).V(1).Info("Not as asked", "family", problem.Family, "reason", problem.Reason, "message", problem.Message)
	}
	return nil
}

func (r *reconciler[T, Seen]) tell(ctx context.Context, obj T, plan Plan, shown *Problem, said []Event) (kube.Conditions, error) {
	live, _, err := r.report.current(obj)
	if err != nil {
		return nil, err
	}
	ready := r.spec.ready(conditionsOf(live))
	r.metrics.changed(client.ObjectKeyFromObject(obj), obj.GetGeneration(), obj.GetCreationTimestamp().Time, r.clock.Now(), ready)
	if plan.Status == nil && shown == nil && len(said) == 0 && !r.spec.NoStatus && r.report.contestShown(obj, live) {
		return conditionsOf(live), nil
	}
	return r.report.report(ctx, obj, plan, shown, said)
}

func outcomeOf(p *Problem, ready, unwritten bool) string {
	switch {
	case unwritten:
		return "failed"
	case p != nil:
		return strings.ToLower(string(p.Family))
	case ready:
		return "ready"
	}
	return "progressing"
}

func (r *reconciler[T, Seen]) count(outcome string) {
	reconciles.WithLabelValues(r.gvk.Kind, r.spec.Name, outcome).Inc()
}

// row counts how often in a row something happened to an object.
func (r *reconciler[T, Seen]) row(counts map[types.NamespacedName]int, key types.NamespacedName, again bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !again {
		delete(counts, key)
		return 0
	}
	counts[key]++
	return counts[key]
}

// has tells whether an object was there when it was last looked at.
func (r *reconciler[T, Seen]) has(key types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uids[key] != ""
}

func (r *reconciler[T, Seen]) remember(key types.NamespacedName, uid types.UID) {
	r.mu.Lock()
	before := r.uids[key]
	r.uids[key] = uid
	if before != uid {
		delete(r.removed, before)
	}
	r.mu.Unlock()
	if before != "" && before != uid { // deleted and made again between two looks
		r.writer.ledger.forgetOwner(before)
		r.writer.rivals.forgetOwner(before)
		r.report.forget(before)
	}
}

// all lists the objects that the controller looks after.
func (r *reconciler[T, Seen]) all(ctx context.Context) ([]types.NamespacedName, error) {
	kind := r.gvk.GroupVersion().WithKind(r.gvk.Kind + "List")
	made, err := r.scheme.New(kind)
	if err != nil {
		return nil, err
	}
	list, ok := made.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%s is no list", kind)
	}
	err = r.sources.apis.read(ctx, r.gvk, func(ctx context.Context) error {
		return r.objects.List(ctx, list, client.UnsafeDisableDeepCopy)
	})
	if err != nil {
		return nil, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	out := make([]types.NamespacedName, 0, len(items))
	for _, item := range items {
		out = append(out, client.ObjectKeyFromObject(item.(client.Object)))
	}
	return out, nil
}

// gone forgets what was known of an API that went.
func (r *reconciler[T, Seen]) gone(ctx context.Context, gvk schema.GroupVersionKind) {
	r.writer.ledger.forgetKind(func(k childKey) bool { return k.gvk == gvk })
	if gvk != r.gvk {
		return
	}
	r.mu.Lock()
	keys := slices.Collect(maps.Keys(r.uids))
	r.mu.Unlock()
	for _, key := range keys {
		r.forget(ctx, key)
	}
}

func (r *reconciler[T, Seen]) forget(ctx context.Context, key types.NamespacedName) {
	r.mu.Lock()
	uid := r.uids[key]
	delete(r.uids, key)
	delete(r.removed, uid)
	delete(r.failures, key)
	delete(r.conflicts, key)
	r.mu.Unlock()
	r.writer.ledger.forgetOwner(uid)
	r.writer.rivals.forgetOwner(uid)
	r.writer.leave(ctx, key)
	r.writer.blockers.wait(r.writer.waiter(key), nil)
	r.sources.calls.forget(key)
	r.report.forget(uid)
	r.metrics.forget(key)
	r.tracker.replace(key, nil)
}

// summary makes one problem of several: the gravest first, since it is what
// must be solved first.
func summary(problems []*Problem) *Problem {
	rank := map[Family]int{Invalid: 0, Failed: 1, Waiting: 2}
	worst := *problems[0]
	retry := false
	for _, p := range problems {
		retry = retry || p.Family == Failed
		if rank[p.Family] < rank[worst.Family] || p.Family == worst.Family && p.visible && !worst.visible {
			worst = *p
		}
	}
	if n := len(problems) - 1; n > 0 {
		worst.Message = fmt.Sprintf("%s (%d more)", worst.Message, n)
	}
	if retry {
		worst.Family = Failed
	}
	return &worst
}

func newObject[T client.Object]() T {
	var zero T
	return newLike(zero).(T)
}

// The shortest and longest pause before a failed reconcile
// is tried again.
const (
	shortestPause   = 20 * time.Millisecond
	longestPause    = 2 * time.Minute
	conflictPause   = 100 * time.Millisecond
	longestConflict = 10 * time.Second
)
