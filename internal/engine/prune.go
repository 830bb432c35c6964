// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// prune removes the children that the plan no longer names. They are found by
// their owner's label among all kinds of children, so that it works after a
// restart and when a child changed its kind.
func (w *writer) prune(ctx context.Context, o owner, have children, intents []*intent, out *outcome) {
	wanted := make(map[childKey]bool, len(intents))
	for _, in := range intents {
		wanted[in.key] = true
	}
	for key, obj := range have {
		if !wanted[key] && obj.GetAnnotations()[AnnotationRetained] == "" && w.ours(o, obj) && w.made(obj) && !w.rivals.held(o.GetUID(), key) && !w.optedOut(obj) {
			w.remove(ctx, o, key, obj, out)
		}
	}
}

// removeNamed removes the very objects that a plan wants to be gone.
func (w *writer) removeNamed(ctx context.Context, o owner, intents []*intent, out *outcome) {
	for _, in := range intents {
		if !in.Delete {
			continue
		}
		if in.uid == "" {
			out.fail(badPlan(fmt.Errorf("the plan deletes %s without saying which one: it has no UID", in.key)))
			continue
		}
		head := &metav1.PartialObjectMetadata{}
		head.SetUID(in.uid)
		holder := &metav1.PartialObjectMetadata{}
		holder.SetUID(in.holder)
		w.remove(ctx, owner{Object: holder, gvk: o.gvk}, in.key, head, out)
	}
}

// ours is false for a child whose owner reference was taken over by somebody
// else: it is no longer ours to delete.
func (w *writer) ours(o owner, obj client.Object) bool {
	ref := metav1.GetControllerOfNoCopy(obj)
	return ref == nil || ref.UID == o.GetUID() || obj.GetAnnotations()[AnnotationOwner] == o.ref()
}

// made tells whether it was this controller that made a child: others may look
// after the same owner. What no controller of ours has applied (somebody wiped
// the managed fields) counts as the first one's.
func (w *writer) made(obj client.Object) bool {
	maker := makerOf(obj, w.fieldOwner)
	return maker == w.fieldOwner || maker == "" && !w.second
}

// makerOf is the field owner of the controller that applied a child, preferably
// this one; empty if none did.
func makerOf(obj client.Object, preferred string) string {
	maker := ""
	if obj == nil {
		return maker
	}
	for _, m := range obj.GetManagedFields() {
		if m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "" || !IsOurs(m.Manager) {
			continue
		}
		if m.Manager == preferred {
			return preferred
		}
		maker = m.Manager
	}
	return maker
}

func (w *writer) remove(ctx context.Context, o owner, key childKey, obj client.Object, out *outcome) {
	last, known := w.ledger.get(o.GetUID(), key)
	if obj.GetDeletionTimestamp() != nil || known && last.deleted && last.uid == obj.GetUID() {
		return // on its way
	}
	uid := obj.GetUID()
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(key.gvk)
	head.SetNamespace(key.Namespace)
	head.SetName(key.Name)
	w.ledger.put(o.GetUID(), key, entry{uid: uid, deleted: true}) // before the event, which would be taken for somebody's deletion
	err := w.client.Delete(ctx, head, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		w.ledger.restore(o.GetUID(), key, last, known)
		out.fail(problemOf(err, "Removing "+key.String()))
		return
	}
	out.wrote++
	w.metrics.count(key.gvk, "prune")
	if on, begun := w.rivals.repaired(o.GetUID(), key, lastEditor(obj), restored, nil); on {
		countContested(w.metrics.kind, key.gvk.Kind, lastEditor(obj))
		if begun {
			out.events = append(out.events, Event{Warning: true, Reason: Contested, Message: w.rivals.problem(o.gvk.Kind, o.GetUID()).Message})
		}
	}
	log.FromContext(ctx).V(1).Info("Removed a child that is no longer wanted", "child", key.String())
}

// removeUnreachable deletes what the garbage collector cannot reach when the
// owner goes, and tells whether all of it is gone. The problem names what does
// not go although it was deleted.
func (w *writer) removeUnreachable(ctx context.Context, o owner) (gone bool, problem *Problem) {
	have, err := w.childrenOf(ctx, o.GetUID())
	if err != nil {
		return false, problemOf(err, "Reading the children")
	}
	unseen, err := w.addUnseen(ctx, o, have)
	if err != nil {
		return false, problemOf(err, "Looking for children that were just written")
	}
	out := outcome{}
	gone = true
	for key, obj := range have {
		if metav1.GetControllerOfNoCopy(obj) != nil || obj.GetAnnotations()[AnnotationRetained] != "" || !w.made(obj) {
			continue
		}
		gone = false
		if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) > 0 {
			out.fail(WaitFor("ChildTerminating", "It is being deleted and waits for %s to go, which has finalizers. If it stays, look at these.", key).passes())
			continue
		}
		w.remove(ctx, o, key, obj, &out)
	}
	if len(out.problems) > 0 {
		return false, summary(out.problems)
	}
	if unseen > 0 && out.wrote > 0 {
		return w.removeUnreachable(ctx, o) // perhaps no event will ever tell of their deletion
	}
	return gone, nil
}

// addUnseen adds the children that were written but are not in the cache yet, and
// counts them.
func (w *writer) addUnseen(ctx context.Context, o owner, have children) (unseen int, err error) {
	for key, last := range w.ledger.of(o.GetUID()) {
		if have[key] != nil || w.apis.absent(key.gvk) {
			continue
		}
		head := &metav1.PartialObjectMetadata{}
		head.SetGroupVersionKind(key.gvk)
		err := w.live.Get(ctx, key.NamespacedName, head)
		if client.IgnoreNotFound(err) != nil {
			return unseen, err
		}
		if err != nil || last.uid != "" && head.UID != last.uid || head.Labels[LabelOwner] != string(o.GetUID()) {
			w.ledger.forget(o.GetUID(), key)
			continue
		}
		have[key] = head
		unseen++
	}
	return unseen, nil
}

// formerOwner is the UID of an object of this name that far children of ours name
// as their owner; empty if there are none. It looks at all of them, which is rarely
// needed.
func (w *writer) formerOwner(ctx context.Context, o owner) (types.UID, error) {
	var uid types.UID
	for _, k := range w.kinds {
		err := w.with(ctx, k, func(i childIndex) error {
			for _, item := range i.List() {
				obj := item.(client.Object)
				if obj.GetAnnotations()[AnnotationOwner] == o.ref() && obj.GetAnnotations()[AnnotationRetained] == "" && makerOf(obj, w.fieldOwner) == w.fieldOwner {
					uid = types.UID(obj.GetLabels()[LabelOwner])
				}
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return uid, nil
}
