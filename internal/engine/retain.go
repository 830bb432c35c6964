// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"

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
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": live.GetUID(), "ownerReferences": nil}})
	if err != nil {
		return nil, err
	}
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(key.gvk)
	head.SetNamespace(key.Namespace)
	head.SetName(key.Name)
	if err := w.client.Patch(ctx, head, client.RawPatch(types.MergePatchType, body), client.FieldOwner(w.fieldOwner)); err != nil {
		return nil, err
	}
	log.FromContext(ctx).V(1).Info("Took owner references off an object that outlives its owner", "child", key.String())
	return head, nil
}
