// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func (r *reconciler[T, Seen]) finalizer() string {
	return first(r.spec.Finalizer, FinalizerPrefix+r.spec.Name)
}

// ensureFinalizer adds our finalizer, before anything exists that needs it.
func (r *reconciler[T, Seen]) ensureFinalizer(ctx context.Context, o owner) error {
	have := o.GetFinalizers()
	if slices.Contains(have, r.finalizer()) {
		return nil
	}
	return r.setFinalizers(ctx, o, append(slices.Clone(have), r.finalizer()))
}

// dropFinalizer takes our finalizer off an object that goes without us.
func (r *reconciler[T, Seen]) dropFinalizer(ctx context.Context, o owner) error {
	have := o.GetFinalizers()
	if !slices.Contains(have, r.finalizer()) {
		return nil
	}
	return r.setFinalizers(ctx, o, slices.DeleteFunc(slices.Clone(have), func(f string) bool { return f == r.finalizer() }))
}

// finish brings an object that is being deleted to its end and lets it go.
func (r *reconciler[T, Seen]) finish(ctx context.Context, o owner, obj T) (reconcile.Result, error) {
	rest, held := r.finalizersOfOthers(o)
	if len(rest) == len(o.GetFinalizers()) {
		return reconcile.Result{}, r.reportAndRetry(ctx, obj, Plan{}, nil, nil) // nothing of it is ours to do
	}
	if held {
		plan, err := r.ending(ctx, obj)
		if err != nil {
			return reconcile.Result{}, r.reportAndRetry(ctx, obj, Plan{}, problemOf(err, "Reading what the end depends on"), nil)
		}
		if plan != nil {
			return r.carryOut(ctx, o, obj, *plan)
		}
	}
	return reconcile.Result{}, r.reportAndRetry(ctx, obj, Plan{}, r.letGo(ctx, o), nil)
}

// letGo removes what the garbage collector cannot reach, and then our finalizers.
func (r *reconciler[T, Seen]) letGo(ctx context.Context, o owner) *Problem {
	r.writer.blockers.wait(r.writer.waiter(client.ObjectKeyFromObject(o)), nil)
	rest, held := r.finalizersOfOthers(o)
	if held {
		if gone, problem := r.writer.removeUnreachable(ctx, o); problem != nil || !gone {
			return problem
		}
	}
	if err := r.setFinalizers(ctx, o, rest); client.IgnoreNotFound(err) != nil {
		return problemOf(err, "Removing the finalizer")
	}
	return nil
}

// removeOrphans removes the far children of an object that went in spite of its
// finalizer: the API server does not look for one that is added in the moment of
// the deletion, and people take them off.
func (r *reconciler[T, Seen]) removeOrphans(ctx context.Context, key types.NamespacedName) *Problem {
	if !r.spec.FarReaching {
		return nil
	}
	head := &metav1.PartialObjectMetadata{}
	head.SetNamespace(key.Namespace)
	head.SetName(key.Name)
	r.mu.Lock()
	head.SetUID(r.uids[key])
	r.mu.Unlock()
	o := owner{Object: head, gvk: r.gvk}
	if head.UID == "" { // it went before we came
		uid, err := r.writer.formerOwner(ctx, o)
		if err != nil || uid == "" {
			return asProblem(err, "Reading the children")
		}
		err = r.writer.live.Get(ctx, key, newObject[T]())
		if !apierrors.IsNotFound(err) {
			return asProblem(err, "Looking whether the object is gone") // it is there, and the cache follows
		}
		head.SetUID(uid)
	}
	_, problem := r.writer.removeUnreachable(ctx, o)
	return problem
}

// finalizersOfOthers are those that are not ours to take off; held tells whether
// the one that we set is among the rest.
func (r *reconciler[T, Seen]) finalizersOfOthers(o owner) (rest []string, held bool) {
	have := o.GetFinalizers()
	rest = slices.DeleteFunc(slices.Clone(have), func(f string) bool {
		return f == r.finalizer() || slices.Contains(r.spec.OldFinalizers, f)
	})
	return rest, slices.Contains(have, r.finalizer())
}

// ending is what must be done before the object may go; nil if nothing must.
func (r *reconciler[T, Seen]) ending(ctx context.Context, obj T) (*Plan, error) {
	kind, ok := r.kind.(Teardown[T, Seen])
	if !ok {
		return nil, nil
	}
	seen, err := r.observe(ctx, obj)
	if err != nil {
		return nil, err
	}
	ending := kind.Teardown(obj, seen)
	if ending.Finished {
		return nil, nil
	}
	if ending.Problem == nil && ending.Status == nil && !r.spec.second() { // else what the first one says would contradict it
		ending.Problem = WaitFor("Deleting", "It is being deleted, and waits for what must happen before. Nothing needs to be done.").passes()
	}
	return &ending.Plan, nil
}

// remove deletes the object because its plan says so, and tells once why.
func (r *reconciler[T, Seen]) remove(ctx context.Context, obj T, why Event) *Problem {
	uid := obj.GetUID()
	r.mu.Lock()
	again := r.removed[uid]
	r.mu.Unlock()
	if again {
		return nil
	}
	err := r.client.Delete(ctx, obj.DeepCopyObject().(client.Object),
		client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return problemOf(err, "Removing the object")
	}
	r.mu.Lock()
	r.removed[uid] = true
	r.mu.Unlock()
	r.report.say(obj, why)
	return nil
}

// setFinalizers replaces the list if nobody else changed the object since.
func (r *reconciler[T, Seen]) setFinalizers(ctx context.Context, o owner, finalizers []string) error {
	return r.setMeta(ctx, o, "finalizers", finalizers)
}

// takeOff removes the annotations that are there if nobody else changed the
// object since: a request that was made meanwhile is not lost.
func (r *reconciler[T, Seen]) takeOff(ctx context.Context, o owner, annotations []string) error {
	off := map[string]any{}
	for _, name := range annotations {
		if _, there := o.GetAnnotations()[name]; there {
			off[name] = nil
		}
	}
	if len(off) == 0 {
		return nil
	}
	return client.IgnoreNotFound(r.setMeta(ctx, o, "annotations", off))
}

// putLabels writes the labels that are not there yet, as takeOff does.
func (r *reconciler[T, Seen]) putLabels(ctx context.Context, o owner, labels map[string]string) error {
	on := map[string]any{}
	for name, value := range labels {
		if have, there := o.GetLabels()[name]; !there || have != value {
			on[name] = value
		}
	}
	if len(on) == 0 {
		return nil
	}
	return client.IgnoreNotFound(r.setMeta(ctx, o, "labels", on))
}

// setMeta changes one field of the object's metadata.
func (r *reconciler[T, Seen]) setMeta(ctx context.Context, o owner, field string, value any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": o.GetResourceVersion(), field: value,
	}})
	if err != nil {
		return err
	}
	answer := o.DeepCopyObject().(client.Object)
	if err := r.client.Patch(ctx, answer, client.RawPatch(types.MergePatchType, body), client.FieldOwner(r.spec.fieldOwner())); err != nil {
		return err
	}
	// The status patch that follows must build on this version.
	o.SetResourceVersion(answer.GetResourceVersion())
	o.SetFinalizers(answer.GetFinalizers())
	o.SetAnnotations(answer.GetAnnotations())
	o.SetLabels(answer.GetLabels())
	return nil
}
