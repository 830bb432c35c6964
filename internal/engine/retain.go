// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// retained tells whether a live child outlives its owner, whoever that was.
func retained(obj client.Object) bool {
	labels := obj.GetLabels()
	_, goes := labels[LabelGoesWithLast]
	return obj.GetAnnotations()[AnnotationRetained] != "" || labels[LabelOwner] == OwnerShared && !goes
}

// applyRetained writes the children that outlive their owner where the plan leaves
// all others as they are: what holds data must not be collected because something
// else keeps the object from being planned.
func (w *writer) applyRetained(ctx context.Context, o owner, intents []*intent) outcome {
	out := outcome{}
	w.noteReached(intents)
	have, err := w.childrenOf(ctx, o.GetUID())
	if err != nil {
		out.fail(problemOf(err, "Reading the children"))
		return out
	}
	for _, in := range intents {
		if in.Retain && !in.Shared && !in.Unmanaged && !in.Delete {
			w.applyOne(ctx, o, in, have[in.key], &out)
		}
	}
	w.untieRetained(ctx, o, have, &out)
	return out
}

// untieRetained takes owner references off children that outlive their owner:
// those that an earlier release of ours left at a take-over, and those that
// somebody added since. The garbage collector would delete the child by them.
func (w *writer) untieRetained(ctx context.Context, o owner, have children, out *outcome) {
	for key, obj := range have {
		if !retained(obj) || len(obj.GetOwnerReferences()) == 0 || obj.GetDeletionTimestamp() != nil || !w.made(obj) || w.optedOut(obj) {
			continue
		}
		holder := types.UID(obj.GetLabels()[LabelOwner])
		last, known := w.ledger.get(holder, key)
		if known && older(obj.GetResourceVersion(), last.version) || w.rivals.held(o.GetUID(), key) {
			continue // done, and the cache is behind; or contested
		}
		head, err := w.untie(ctx, key, obj)
		if err != nil {
			if client.IgnoreNotFound(err) != nil {
				out.fail(problemOf(err, "Taking owner references off "+key.String()))
			}
			continue
		}
		out.wrote++
		if known {
			last.version = head.GetResourceVersion()
			w.ledger.put(holder, key, last)
		}
		w.repaired(o, key, lastEditor(obj), taken, []string{"metadata.ownerReferences"}, out, Event{Reason: "ChildRepaired",
			Message: fmt.Sprintf("%s had owner references, with which it would have been deleted. They were taken off, because it outlives its %s.", key, o.gvk.Kind)})
	}
}

// untie takes all owner references off the very object that was looked at.
// Server-side apply cannot: it removes only what is ours alone.
func (w *writer) untie(ctx context.Context, key childKey, live client.Object) (*metav1.PartialObjectMetadata, error) {
	head, err := w.patchHead(ctx, key, map[string]any{"uid": live.GetUID(), "ownerReferences": nil})
	if err != nil {
		return nil, err
	}
	log.FromContext(ctx).V(1).Info("Took owner references off an object that outlives its owner", "child", key.String())
	return head, nil
}

// inherited tells whether an object that is only created was left for the owner: by an earlier controller, with which
// it would be deleted, or by an earlier owner of the same name.
func (w *writer) inherited(o owner, in *intent, head client.Object) bool {
	done := head.GetLabels()[LabelOwner] == string(in.holder) && retained(head) == in.Retain
	if done || in.Shared || head.GetDeletionTimestamp() != nil || w.optedOut(head) {
		return false
	}
	return head.GetAnnotations()[AnnotationOwner] == o.ref() ||
		slices.ContainsFunc(head.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
			return ref.UID == o.GetUID() || previous(o, &ref) || w.former(ref)
		})
}

// settle changes of a child that is only created whether it outlives its owner: that may be decided anew at any time.
func (w *writer) settle(ctx context.Context, in *intent, live client.Object) error {
	if retained(live) == in.Retain || in.Shared || live.GetDeletionTimestamp() != nil || !w.made(live) || w.optedOut(live) {
		return nil
	}
	last, known := w.ledger.get(in.holder, in.key)
	if known && older(live.GetResourceVersion(), last.version) {
		return nil // done, and the cache is behind
	}
	return w.tie(ctx, in, live)
}

// tie says of the very object that was looked at whose it is and whether it goes with its owner, and changes nothing else: its
// content cannot be applied again, because it is not known any more.
func (w *writer) tie(ctx context.Context, in *intent, live client.Object) error {
	annotations := map[string]any{AnnotationRetained: nil, AnnotationOwner: nil}
	for _, name := range []string{AnnotationRetained, AnnotationOwner} {
		if value, ok := in.body.GetAnnotations()[name]; ok {
			annotations[name] = value
		}
	}
	head, err := w.patchHead(ctx, in.key, map[string]any{
		"uid": live.GetUID(), "ownerReferences": in.body.GetOwnerReferences(), "annotations": annotations,
		"labels": map[string]any{LabelOwner: in.holder},
	})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	w.ledger.put(in.holder, in.key, entry{uid: head.UID, digest: in.digest, version: head.ResourceVersion})
	return nil
}

// patchHead changes metadata of an object and nothing else.
func (w *writer) patchHead(ctx context.Context, key childKey, meta map[string]any) (*metav1.PartialObjectMetadata, error) {
	body, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return nil, err
	}
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(key.gvk)
	head.SetNamespace(key.Namespace)
	head.SetName(key.Name)
	return head, w.client.Patch(ctx, head, client.RawPatch(types.MergePatchType, body), client.FieldOwner(w.fieldOwner))
}
