// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// statusKey stands for the status among the things that can be contested.
var statusKey childKey

// askedOf recognises a status that is sent once more, whatever time it is and
// whoever contests it.
func askedOf(status map[string]any) (digest, error) {
	plain := runtime.DeepCopyJSON(status)
	dropCondition(plain, Contested)
	for _, c := range rawConditions(plain) {
		delete(c, "lastTransitionTime")
	}
	d, _, err := digestOf(plain)
	return d, err
}

// undone tells whether a status is what we wrote last: then somebody else changed it
// since.
func (r *reporter) undone(obj client.Object, next map[string]any) bool {
	asked, err := askedOf(r.part.on(obj).of(next))
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok := r.written[obj.GetUID()]
	return err == nil && ok && w.asked == asked && w.answer == nil
}

// believe forgets what the last write of a status was answered with: there is a
// newer state, and the cache may be the one that has it.
func (r *reporter) believe(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w, ok := r.written[uid]; ok {
		w.answer = nil
		r.written[uid] = w
	}
}

// contest counts that a status is written once more, and says so when it has
// happened too often.
func (r *reporter) contest(ctx context.Context, obj client.Object, live, next map[string]any, kept bool) {
	on, begun := r.rivals.repaired(obj.GetUID(), statusKey, "", rewritten, nil)
	if !on {
		return
	}
	if begun {
		r.rivals.name(obj.GetUID(), statusKey, r.statusEditor(ctx, obj))
	}
	countContested(r.kind.Kind, "Status", r.rivals.known(obj.GetUID(), statusKey))
	p := r.rivals.problem(r.kind.Kind, obj.GetUID())
	if r.part.on(obj).decides(Contested) {
		setCondition(next, Contested, metav1.ConditionTrue, p)
		r.stamp(obj, live, next, kept)
	}
	if begun {
		r.say(obj, Event{Warning: true, Reason: Contested, Message: p.Message})
	}
}

// statusEditor asks once who changes the status, which the cache does not keep. Who
// changes something else of the object is not meant.
func (r *reporter) statusEditor(ctx context.Context, obj client.Object) string {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(r.kind.GroupVersion().WithKind(r.kind.Kind + "List"))
	err := r.live.List(ctx, list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{"metadata.name": obj.GetName()})
	if err != nil || len(list.Items) == 0 {
		return ""
	}
	name, when := "", metav1.Time{}
	for _, m := range list.Items[0].GetManagedFields() {
		tree, err := fieldTree(m)
		if _, inStatus := tree["f:status"]; err == nil && inStatus && m.Manager != r.owner && m.Time != nil && !m.Time.Before(&when) {
			name, when = m.Manager, *m.Time
		}
	}
	return name
}
