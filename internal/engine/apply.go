// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// writer is Apply: it makes the cluster hold exactly the planned children.
type writer struct {
	client     client.Client
	live       client.Reader // uncached, for the rare look before touching what may be somebody else's
	caches     *caches
	apis       *apis
	ledger     *ledger
	metrics    *childMetrics
	fieldOwner string
	second     bool // another controller looks after the same kind
	kinds      []childKind
	sharing    *sharing
	// oldManagers and unwritten as in Spec.
	oldManagers []string
	unwritten   map[string]string
}

// outcome is what Apply has to tell.
type outcome struct {
	problems []*Problem
	events   []Event
	wrote    int
	// unseen is set while the cache lacks a write of ours, so that what was
	// observed is of the time before it. The cache's event follows.
	unseen bool
}

func (out *outcome) fail(p *Problem) { out.problems = append(out.problems, p) }

// children are the live children of one owner, as the cache has them.
type children map[childKey]client.Object

// apply writes what differs, stage by stage, and then removes what the plan no
// longer names. Nothing is removed while something could not be written: the
// old child may be what still serves.
func (w *writer) apply(ctx context.Context, o owner, intents []*intent) outcome {
	out := outcome{}
	have, err := w.childrenOf(ctx, o.GetUID())
	if err != nil {
		out.fail(problemOf(err, "Reading the children"))
		return out
	}
	if err := w.addShared(ctx, o, intents, have); err != nil {
		out.fail(problemOf(err, "Reading the shared children"))
		return out
	}
	slices.SortStableFunc(intents, func(a, b *intent) int { return a.Stage - b.Stage })
	for i, in := range intents {
		if i > 0 && in.Stage != intents[i-1].Stage && len(out.problems) > 0 {
			return out
		}
		if ctx.Err() != nil {
			out.fail(problemOf(ctx.Err(), "Writing "+in.key.String()))
			return out
		}
		if in.Keep {
			continue
		}
		w.applyOne(ctx, o, in, have[in.key], &out)
		out.unseen = out.unseen || w.unseen(in, have[in.key])
	}
	if len(out.problems) == 0 {
		w.prune(ctx, o, have, intents, &out)
	}
	return out
}

func (w *writer) applyOne(ctx context.Context, o owner, in *intent, live client.Object, out *outcome) {
	if err := w.apis.served(in.key.gvk); err != nil {
		out.fail(WaitFor("APIMissing", "%s is wanted, but the cluster does not serve %s. Install that API; nothing needs a restart.",
			in.key, in.key.gvk.GroupVersion()))
		return
	}
	verdict := w.judge(o, in, live)
	if verdict != intact && in.Shared { // whoever comes second finds it done
		defer w.sharing.alone()()
		verdict = w.judge(o, in, live)
	}
	if verdict == intact {
		w.metrics.count(in.key.gvk, "skip")
		return
	}
	if verdict == inherited {
		if err := w.inherit(ctx, in, nil); err != nil {
			out.fail(problemOf(err, "Taking over "+in.key.String()))
		}
		return
	}
	if live != nil && live.GetDeletionTimestamp() != nil {
		out.fail(WaitFor("ChildTerminating", "%s is being deleted and will be made again when it is gone. If it stays, look at its finalizers.", in.key))
		return
	}
	if maker := makerOf(live, w.fieldOwner); maker != "" && maker != w.fieldOwner && !in.Shared {
		out.fail(madeByAnother(in.key, maker))
		return
	}
	if p := w.mayTake(ctx, o, in, live); p != nil {
		out.fail(p)
		return
	}
	err := w.send(ctx, in, live)
	if verdict == edited && apierrors.IsInvalid(err) && live != nil {
		err = w.reclaim(ctx, in, live, err)
	}
	if err != nil {
		w.ledger.tried(in.holder, in.key)
		p := w.explain(ctx, o, in, err)
		p.Reason = cmp.Or(w.unwritten[in.key.gvk.Kind], w.unwritten[""], p.Reason)
		out.fail(p)
		return
	}
	out.wrote++
	w.sharing.say(o, in)
	w.tell(ctx, in, live, verdict, out)
}

// unseen tells whether the cache, which has this of a child, lacks our last
// change of it. A repair does not count: it makes the child what it was.
func (w *writer) unseen(in *intent, live client.Object) bool {
	last, known := w.ledger.get(in.holder, in.key)
	if !known || in.Shared || last.deleted || last.gone || last.digest != in.digest {
		return false
	}
	return live == nil || live.GetLabels()[LabelIntent] != in.digest && older(live.GetResourceVersion(), last.version)
}

// verdict is how a live child compares with the intent.
type verdict string

const (
	intact  verdict = "intact"
	absent  verdict = "absent"  // not there, and never was as far as we know
	deleted verdict = "deleted" // somebody deleted it
	changed verdict = "changed" // the intent is new
	edited  verdict = "edited"  // somebody took a field of ours
	// inherited is intact, but with fields of an earlier controller.
	inherited verdict = "inherited"
)

// check compares without a call. live is what the cache has, which may lag
// behind our own last write; the ledger knows of that.
func (w *writer) check(in *intent, live client.Object) verdict {
	last, known := w.ledger.get(in.holder, in.key)
	switch {
	case live == nil && known && last.gone:
		return deleted
	case live == nil && known && last.deleted:
		return absent
	case live == nil && known && last.digest == in.digest:
		return intact // written, not yet in the cache; a deletion would have been noted
	case live == nil:
		return absent
	case known && !last.deleted && older(live.GetResourceVersion(), last.version):
		if last.digest == in.digest {
			return intact
		}
		return changed
	case live.GetLabels()[LabelIntent] != in.digest:
		if known && last.digest == in.digest {
			return edited
		}
		return changed
	}
	fields := ownedFields(live.GetManagedFields(), w.fieldOwner) // the owner's UID is left out of them
	hash := w.ledger.hash(fields)
	if known && last.uid == live.GetUID() && last.digest == in.digest && last.fields == hash || covers(withHolder(fields, string(in.holder)), in.body.Object) {
		if w.leftBy(live.GetManagedFields()) {
			return inherited
		}
		w.ledger.put(in.holder, in.key, entry{uid: live.GetUID(), digest: in.digest, version: live.GetResourceVersion(), fields: hash})
		return intact
	}
	return edited
}

// mayTake refuses what belongs to somebody else. For a child with an owner
// reference the API server itself refuses a second controller, so that only
// the others need a look.
func (w *writer) mayTake(ctx context.Context, o owner, in *intent, live client.Object) *Problem {
	if live != nil && !in.Shared || in.reachable {
		return nil
	}
	head := live
	if live == nil {
		meta := &metav1.PartialObjectMetadata{}
		meta.SetGroupVersionKind(in.key.gvk)
		err := w.live.Get(ctx, in.key.NamespacedName, meta)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return problemOf(err, "Looking for "+in.key.String())
		}
		head = meta
	}
	if ref := metav1.GetControllerOfNoCopy(head); ref != nil && ref.UID != o.GetUID() {
		return ownedByAnother(in.key, ref)
	}
	uid, named := head.GetLabels()[LabelOwner], head.GetAnnotations()[AnnotationOwner]
	if uid != "" && uid != string(o.GetUID()) && uid != string(in.holder) && named != o.ref() {
		return MustChange("OwnedByAnother", "%s already belongs to %s. Rename one of the two, or remove the other.", in.key, first(named, "somebody else"))
	}
	return nil
}

// madeByAnother is a mistake of two of our plans, of which neither may win.
func madeByAnother(key childKey, maker string) *Problem {
	return &Problem{Family: Invalid, Reason: "OwnedByAnother", visible: true,
		Message: fmt.Sprintf("%s is already made by the controller %s. Please report this.", key, strings.TrimPrefix(maker, fieldOwnerPrefix))}
}

func ownedByAnother(key childKey, ref *metav1.OwnerReference) *Problem {
	return MustChange("OwnedByAnother", "%s already exists and is controlled by %s %s. Rename one of the two, or remove the other.",
		key, ref.Kind, ref.Name)
}

func (w *writer) send(ctx context.Context, in *intent, live client.Object) error {
	body := in.body.DeepCopy()
	var err error
	if len(in.initial) > 0 {
		body, err = w.sendInitial(ctx, in, live)
	} else {
		err = w.put(ctx, body, client.ForceOwnership)
	}
	if in.Replace && immutable(err) {
		err = w.replace(ctx, in, live)
	}
	if err != nil {
		return err
	}
	if body.GetUID() == "" {
		return nil // replaced: the deletion's watch event makes it anew
	}
	w.wrote(in, body)
	if w.leftBy(body.GetManagedFields()) {
		return w.inherit(ctx, in, body)
	}
	return nil
}

// wrote notes what the API server answered to a write.
func (w *writer) wrote(in *intent, answer client.Object) {
	w.ledger.put(in.holder, in.key, entry{
		uid: answer.GetUID(), digest: in.digest, version: answer.GetResourceVersion(),
		fields: w.ledger.hash(withoutHolder(ownedFields(answer.GetManagedFields(), w.fieldOwner), string(in.holder))),
	})
}

func (w *writer) put(ctx context.Context, body *unstructured.Unstructured, opts ...client.ApplyOption) error {
	return w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), append(opts, client.FieldOwner(w.fieldOwner))...)
}

// replace deletes a child that cannot be changed in place. It is made anew when
// the watch says that it is gone.
func (w *writer) replace(ctx context.Context, in *intent, live client.Object) error {
	if live == nil {
		return WaitFor("ChildNotSeen", "%s exists but is not seen yet. It is replaced as soon as it is.", in.key)
	}
	uid := live.GetUID()
	err := w.client.Delete(ctx, in.body.DeepCopy(),
		client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	w.metrics.count(in.key.gvk, "replace")
	w.ledger.put(in.holder, in.key, entry{uid: uid, deleted: true})
	return nil
}

// explain turns a refused write into a problem, with the owner's name where
// ownership is the reason.
func (w *writer) explain(ctx context.Context, o owner, in *intent, err error) *Problem {
	if !controlledByAnother(err) {
		return problemOf(err, "Writing "+in.key.String())
	}
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(in.key.gvk)
	if getErr := w.live.Get(ctx, in.key.NamespacedName, head); getErr != nil {
		return problemOf(getErr, "Looking for the owner of "+in.key.String())
	}
	ref := metav1.GetControllerOf(head)
	if ref == nil {
		return problemOf(err, "Writing "+in.key.String())
	}
	if ref.Kind == o.gvk.Kind && ref.Name == o.GetName() && ref.UID != o.GetUID() {
		return &Problem{Family: Failed, Reason: "PreviousOwnerGone", visible: true, cause: err,
			Message: fmt.Sprintf("%s belongs to a %s of the same name that was deleted. Waiting for the garbage collector to remove it.", in.key, ref.Kind)}
	}
	return ownedByAnother(in.key, ref)
}

// tell counts a write, logs it, and says in an event what a person would want
// to know: that somebody else had changed or deleted the child.
func (w *writer) tell(ctx context.Context, in *intent, live client.Object, v verdict, out *outcome) {
	w.metrics.count(in.key.gvk, "apply")
	log.FromContext(ctx).V(1).Info("Applied a child", "child", in.key.String(), "because", string(v))
	switch v {
	case edited:
		w.metrics.count(in.key.gvk, "repair")
		out.events = append(out.events, Event{Reason: "ChildRepaired",
			Message: fmt.Sprintf("%s was edited%s and has been set back.", in.key, editedBy(live))})
	case deleted:
		w.metrics.count(in.key.gvk, "repair")
		out.events = append(out.events, Event{Reason: "ChildRecreated",
			Message: fmt.Sprintf("%s was deleted and has been made again.", in.key)})
	}
}

// editedBy names the last one who wrote to a child besides us.
func editedBy(live client.Object) string {
	name, when := "", metav1.Time{}
	for _, m := range live.GetManagedFields() {
		if !strings.HasPrefix(m.Manager, fieldOwnerPrefix) && m.Subresource == "" && m.Time != nil && !m.Time.Before(&when) {
			name, when = m.Manager, *m.Time
		}
	}
	if name == "" {
		return ""
	}
	return " by " + name
}

// childKind is a kind of child, in the form that the cache has it.
type childKind struct {
	gvk  schema.GroupVersionKind
	form any
}

// childrenOf finds an owner's children of all kinds in the cache, without
// copying them: they must not be changed.
func (w *writer) childrenOf(ctx context.Context, uid types.UID) (children, error) {
	have := children{}
	for _, k := range w.kinds {
		var found []any
		err := w.with(ctx, k, func(i toolscache.Indexer) (err error) {
			found, err = i.ByIndex(ownerIndex, string(uid))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", k.gvk.Kind, err)
		}
		for _, item := range found {
			obj := item.(client.Object)
			have[childKey{gvk: k.gvk, NamespacedName: client.ObjectKeyFromObject(obj)}] = obj
		}
	}
	return have, nil
}

// child finds one child in the cache, whoever's it is; nil if there is none.
func (w *writer) child(ctx context.Context, key childKey) (client.Object, error) {
	at := slices.IndexFunc(w.kinds, func(k childKind) bool { return k.gvk == key.gvk })
	if at < 0 {
		return nil, nil
	}
	var found any
	err := w.with(ctx, w.kinds[at], func(i toolscache.Indexer) (err error) {
		found, _, err = i.GetByKey(toolscache.NewObjectName(key.Namespace, key.Name).String())
		return err
	})
	obj, _ := found.(client.Object)
	return obj, err
}

// with reads from the cache of a kind, unless its API is absent.
func (w *writer) with(ctx context.Context, k childKind, read func(toolscache.Indexer) error) error {
	if w.apis.absent(k.gvk) {
		return nil
	}
	i, err := w.caches.indexer(ctx, k.gvk, k.form)
	if err == nil {
		err = read(i)
	}
	if err != nil && w.apis.absent(k.gvk) {
		return nil // gone while we looked
	}
	return err
}
