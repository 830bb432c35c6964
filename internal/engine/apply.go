// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
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
	optOut     string // as in Spec
	second     bool   // another controller looks after the same kind
	kinds      []childKind
	sharing    *sharing
	blockers   *blockers
	rivals     *rivals
	waker      *waker
	clock      clock.PassiveClock
	// oldManagers, formerOwners and unwritten as in Spec.
	oldManagers  []string
	formerOwners []FormerOwner
	unwritten    map[string]string
}

// outcome is what Apply has to tell.
type outcome struct {
	problems []*Problem
	events   []Event
	wrote    int
	// unseen is set while the cache lacks a write of ours, so that what was
	// observed is of the time before it. The cache's event follows.
	unseen bool
	// blockers are the objects in the way of children, as they were seen.
	blockers map[childKey]string
	// again is when to look once more at the latest, zero if the watches tell.
	again time.Duration
}

// block notes what is in the way of a child, so that its end wakes the owner.
func (out *outcome) block(key childKey, state string) {
	if out.blockers == nil {
		out.blockers = map[childKey]string{}
	}
	out.blockers[key] = state
}

func (out *outcome) fail(p *Problem) { out.problems = append(out.problems, p) }

// children are the live children of one owner, as the cache has them.
type children map[childKey]client.Object

// apply writes what differs, stage by stage, and then removes what the plan no
// longer names. Nothing is removed while something could not be written: the
// old child may be what still serves.
func (w *writer) apply(ctx context.Context, o owner, intents []*intent) outcome {
	out := outcome{}
	w.noteReached(intents)
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
		if in.Unmanaged || in.Delete {
			continue
		}
		w.applyOne(ctx, o, in, have[in.key], &out)
		if w.unseen(in, have[in.key]) {
			out.unseen, out.again = true, soonest(out.again, unseenPause)
		}
	}
	w.untieRetained(ctx, o, have, &out)
	if len(out.problems) == 0 {
		w.prune(ctx, o, have, intents, &out)
		w.removeNamed(ctx, o, intents, &out)
	}
	w.calmUnplanned(o, have, intents)
	if p := w.removeUnshared(ctx); p != nil {
		out.fail(p)
	}
	return out
}

// calmUnplanned ends the contests about children that the plan does not name: those
// that are gone for good, and those that outlive their owner and are left in peace.
func (w *writer) calmUnplanned(o owner, have children, intents []*intent) {
	w.rivals.calmOthers(o.GetUID(), func(key childKey) bool {
		if slices.ContainsFunc(intents, func(in *intent) bool { return in.key == key }) {
			return false
		}
		live := have[key]
		return live == nil || retained(live) && len(live.GetOwnerReferences()) == 0
	})
}

func (w *writer) applyOne(ctx context.Context, o owner, in *intent, live client.Object, out *outcome) {
	if err := w.apis.served(in.key.gvk); err != nil {
		out.fail(WaitFor("APIMissing", "%s is wanted, but the cluster does not serve %s. Install that API; nothing needs a restart.",
			in.key, in.key.gvk.GroupVersion()))
		return
	}
	if there, err := w.leftAlone(ctx, o, in, live, out); err != nil {
		out.fail(problemOf(err, "Looking for "+in.key.String()))
		return
	} else if there {
		w.metrics.count(in.key.gvk, "skip")
		return
	}
	if w.unfinished(in, live) {
		if err := w.inherit(ctx, in, nil); err != nil {
			out.fail(problemOf(err, "Taking over "+in.key.String()))
		}
		return
	}
	w.lookForLost(ctx, in, live)
	if w.goes(in, live) {
		out.unseen, out.again = true, soonest(out.again, unseenPause)
		return
	}
	verdict := w.judge(o, in, live)
	if verdict != intact && in.Shared { // whoever comes second finds it done
		defer w.sharing.alone()()
		verdict = w.judge(o, in, live)
	}
	if verdict == intact {
		w.metrics.count(in.key.gvk, "skip")
		w.rivals.calm(o.GetUID(), in.key)
		return
	}
	if verdict != changed && w.rivals.held(o.GetUID(), in.key) {
		w.metrics.count(in.key.gvk, "hold")
		return
	}
	if live != nil && live.GetDeletionTimestamp() != nil {
		out.fail(terminating(in.key))
		return
	}
	if maker := makerOf(live, w.fieldOwner); maker != "" && maker != w.fieldOwner && !in.Shared && !w.handed(in, live) {
		out.fail(madeByAnother(in.key, maker))
		return
	}
	done, err := w.write(ctx, o, in, written{verdict: verdict, live: live}, out)
	if err != nil {
		w.ledger.tried(in.holder, in.key)
		p := w.explain(ctx, o, in, err)
		if withoutNamespace(err) && in.key.Namespace != o.GetNamespace() { // else the owner goes with it
			out.block(childKey{gvk: namespaceKind, NamespacedName: metav1Key(in.key.Namespace)}, "")
		}
		p.Reason = cmp.Or(w.unwritten[in.key.gvk.Kind], w.unwritten[""], p.Reason)
		out.fail(p)
		return
	}
	out.wrote++
	w.sharing.say(o, in)
	w.tell(ctx, o, in, done, out)
}

// written is a child that is to be written, or was, and why.
type written struct {
	verdict verdict
	live    client.Object // as it was before, nil if it was not there
}

// write makes the child, or changes the one that is there.
func (w *writer) write(ctx context.Context, o owner, in *intent, why written, out *outcome) (written, error) {
	if !w.exists(in, why.live) || w.handed(in, why.live) {
		return w.make(ctx, o, in, why, out)
	}
	if why.live != nil && in.Shared {
		if p := w.mayTake(o, in, why.live); p != nil {
			return why, p
		}
	}
	err := w.send(ctx, in, why.live)
	if why.verdict == edited && apierrors.IsInvalid(err) && why.live != nil {
		err = w.reclaim(ctx, in, why.live, err)
	}
	return why, err
}

// goes tells whether we have deleted a child and the cache does not know of it: it is
// wanted again, and nothing can be done until it is gone.
func (w *writer) goes(in *intent, live client.Object) bool {
	last, known := w.ledger.get(in.holder, in.key)
	return live != nil && known && last.deleted && last.uid == live.GetUID() && live.GetDeletionTimestamp() == nil
}

// unseen tells whether the cache, which has this of a child, lacks our last
// change of it. A repair does not count: it makes the child what it was.
func (w *writer) unseen(in *intent, live client.Object) bool {
	last, known := w.ledger.get(in.holder, in.key)
	if !known || in.Shared || in.CreateOnly || last.deleted || last.gone || last.digest != in.digest {
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
	case live == nil && known && in.passed(last.version):
		w.ledger.put(in.holder, in.key, entry{gone: true}) // no event told, because of a relist
		return deleted
	case live == nil && known && last.digest == in.digest:
		return intact // written, not yet in the cache
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
		w.ledger.put(in.holder, in.key, entry{uid: live.GetUID(), digest: in.digest, version: live.GetResourceVersion(), fields: hash})
		return intact
	}
	return edited
}

// madeByAnother is a mistake of two of our plans, of which neither may win.
func madeByAnother(key childKey, maker string) *Problem {
	return &Problem{Family: Invalid, Reason: "OwnedByAnother", visible: true,
		Message: fmt.Sprintf("%s is already made by the controller %s. Please report this.", key, strings.TrimPrefix(maker, fieldOwnerPrefix))}
}

// send writes a child that exists.
func (w *writer) send(ctx context.Context, in *intent, live client.Object) error {
	body := in.body.DeepCopy()
	body.SetUID(w.known(in, live))
	var err error
	if len(in.initial) > 0 {
		body, err = w.sendInitial(ctx, in, live)
	} else {
		err = w.put(ctx, body, client.ForceOwnership)
	}
	if in.Replace && immutable(err) {
		return w.replace(ctx, in, live) // the deletion's watch event makes it anew
	}
	if apierrors.IsNotFound(err) || anotherObject(err) { // deleted just now, and perhaps made by somebody else
		w.ledger.forget(in.holder, in.key)
		return apierrors.NewConflict(schema.GroupResource{Group: in.key.gvk.Group, Resource: in.key.gvk.Kind}, in.key.Name, err)
	}
	if err == nil {
		w.wrote(in, body)
	}
	return err
}

// known is the UID of the child that is to be changed: not of one that somebody
// else made under its name meanwhile.
func (w *writer) known(in *intent, live client.Object) types.UID {
	last, known := w.ledger.get(in.holder, in.key)
	if live == nil || known && !last.deleted && !last.gone && older(live.GetResourceVersion(), last.version) {
		return last.uid
	}
	return live.GetUID()
}

// wrote notes what the API server answered to a write.
func (w *writer) wrote(in *intent, answer client.Object) {
	w.ledger.put(in.holder, in.key, entry{
		uid: answer.GetUID(), digest: in.digest, version: answer.GetResourceVersion(), at: w.clock.Now().Unix(),
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
		return WaitFor("ChildNotSeen", "%s exists but is not seen yet. It is replaced as soon as it is.", in.key).passes()
	}
	uid := live.GetUID()
	last, known := w.ledger.get(in.holder, in.key)
	w.ledger.put(in.holder, in.key, entry{uid: uid, deleted: true})
	err := w.client.Delete(ctx, in.body.DeepCopy(),
		client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		w.ledger.restore(in.holder, in.key, last, known)
		return err
	}
	w.metrics.count(in.key.gvk, "replace")
	return nil
}

// explain turns a refused write into a problem, with the owner's name where
// ownership is the reason.
func (w *writer) explain(ctx context.Context, o owner, in *intent, err error) *Problem {
	if !controlledByAnother(err) {
		return problemOf(err, "Writing "+in.key.String())
	}
	head, getErr := w.look(ctx, in.key)
	if getErr != nil {
		return problemOf(getErr, "Looking for the owner of "+in.key.String())
	}
	if p := w.mayTake(o, in, head); p != nil {
		return p
	}
	return problemOf(err, "Writing "+in.key.String())
}

// look reads the metadata of an object that may be somebody else's.
func (w *writer) look(ctx context.Context, key childKey) (*metav1.PartialObjectMetadata, error) {
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(key.gvk)
	return head, w.live.Get(ctx, key.NamespacedName, head)
}

// tell counts a write, logs it, and says in an event what a person would want
// to know: that somebody else had changed or deleted the child, or keeps doing so.
func (w *writer) tell(ctx context.Context, o owner, in *intent, done written, out *outcome) {
	w.metrics.count(in.key.gvk, "apply")
	log.FromContext(ctx).V(1).Info("Applied a child", "child", in.key.String(), "because", string(done.verdict))
	switch done.verdict {
	case edited:
		w.repaired(o, in.key, lastEditor(done.live), taken, w.takenFields(in, done.live), out, Event{Reason: "ChildRepaired",
			Message: fmt.Sprintf("%s was edited%s and has been set back.", in.key, by(lastEditor(done.live)))})
	case deleted:
		w.repaired(o, in.key, "", removed, nil, out, Event{Reason: "ChildRecreated",
			Message: fmt.Sprintf("%s was deleted and has been made again.", in.key)})
	default:
		w.rivals.forget(o.GetUID(), in.key)
	}
}

// repaired counts a repair and tells of it, or of the rival who makes it vain.
func (w *writer) repaired(o owner, key childKey, rival, way string, fields []string, out *outcome, e Event) {
	w.metrics.count(key.gvk, "repair")
	on, begun := w.rivals.repaired(o.GetUID(), key, rival, way, fields)
	if on {
		countContested(w.metrics.kind, key.gvk.Kind, rival)
	}
	switch {
	case begun:
		out.events = append(out.events, Event{Warning: true, Reason: Contested, Message: w.rivals.problem(o.gvk.Kind, o.GetUID()).Message})
	case !on:
		out.events = append(out.events, e)
	}
}

// takenFields names what somebody took from us.
func (w *writer) takenFields(in *intent, live client.Object) []string {
	holder := string(in.holder)
	fields := uncovered(withHolder(ownedFields(live.GetManagedFields(), w.fieldOwner), holder), in.body.Object, mostFields)
	if len(fields) == 0 { // another one of us has the same name
		return []string{"metadata.labels." + LabelIntent}
	}
	return fields
}

// lastEditor names the last one who wrote to a child besides us, empty if that is
// not known.
func lastEditor(live client.Object) string {
	name, when := "", metav1.Time{}
	for _, m := range live.GetManagedFields() {
		if !IsOurs(m.Manager) && m.Subresource == "" && m.Time != nil && !m.Time.Before(&when) {
			name, when = m.Manager, *m.Time
		}
	}
	return name
}

func by(name string) string {
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
		err := w.with(ctx, k, func(i childIndex) (err error) {
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

// declared tells whether plans may name a kind.
func (w *writer) declared(gvk schema.GroupVersionKind) bool {
	return slices.ContainsFunc(w.kinds, func(k childKind) bool { return k.gvk == gvk })
}

// child finds one child in the cache, whoever's it is; nil if there is none.
func (w *writer) child(ctx context.Context, key childKey) (client.Object, error) {
	kind, ok := w.kindOf(key)
	if !ok {
		return nil, nil
	}
	var found any
	err := w.with(ctx, kind, func(i childIndex) (err error) {
		found, _, err = i.GetByKey(toolscache.NewObjectName(key.Namespace, key.Name).String())
		return err
	})
	obj, _ := found.(client.Object)
	return obj, err
}

func (w *writer) kindOf(key childKey) (childKind, bool) {
	at := slices.IndexFunc(w.kinds, func(k childKind) bool { return k.gvk == key.gvk })
	if at < 0 {
		return childKind{}, false
	}
	return w.kinds[at], true
}

// with reads from the cache of a kind, unless its API is absent.
func (w *writer) with(ctx context.Context, k childKind, read func(childIndex) error) error {
	err := w.apis.read(ctx, k.gvk, func(ctx context.Context) error {
		i, err := w.caches.indexer(ctx, k.gvk, k.form)
		if err != nil {
			return err
		}
		return read(i)
	})
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}
