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
)

func (r *reconciler[T, Seen]) finalizer() string {
	return first(r.spec.Finalizer, FinalizerPrefix+r.spec.Name)
}

// holdOn adds our finalizer, before anything exists that needs it.
func (r *reconciler[T, Seen]) holdOn(ctx context.Context, o owner) error {
	have := o.GetFinalizers()
	if slices.Contains(have, r.finalizer()) {
		return nil
	}
	return r.setFinalizers(ctx, o, append(slices.Clone(have), r.finalizer()))
}

// finish cleans up after an object that is being deleted and lets it go.
func (r *reconciler[T, Seen]) finish(ctx context.Context, o owner, obj T) *Problem {
	have := o.GetFinalizers()
	rest := slices.DeleteFunc(slices.Clone(have), func(f string) bool {
		return f == r.finalizer() || slices.Contains(r.spec.OldFinalizers, f)
	})
	if len(rest) == len(have) {
		return nil // nothing of it is ours to do
	}
	if slices.Contains(have, r.finalizer()) {
		gone, problems := r.writer.removeUnreachable(ctx, o)
		if len(problems) > 0 {
			return summary(problems)
		}
		if !gone {
			return WaitFor("CleaningUp", "Waiting for children in other namespaces to go.")
		}
		if p := r.cleanup(ctx, obj); p != nil {
			return p
		}
	}
	if err := r.setFinalizers(ctx, o, rest); client.IgnoreNotFound(err) != nil {
		return problemOf(err, "Removing the finalizer")
	}
	return nil
}

func (r *reconciler[T, Seen]) cleanup(ctx context.Context, obj T) *Problem {
	cleaner, ok := r.kind.(Cleaner[T, Seen])
	if !ok {
		return nil
	}
	seen, err := r.observe(ctx, obj)
	if err != nil {
		return problemOf(err, "Reading what the clean-up depends on")
	}
	if err := cleaner.Cleanup(ctx, obj, seen); err != nil {
		p := problemOf(err, "Cleaning up outside the cluster")
		p.visible = true
		return p
	}
	return nil
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
	return nil
}
