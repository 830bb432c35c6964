// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// noVersion is a resource version that no object has: the first write to a new
// cluster's storage has a higher one. To apply with it makes an object, or fails with
// a conflict and changes nothing if there is one.
const noVersion = "1"

// make writes a child that is not there as far as we know. It costs one request;
// only if the name is taken it costs a look at whose the object is.
func (w *writer) make(ctx context.Context, o owner, in *intent, why written, out *outcome) (written, error) {
	body, err := in.complete()
	if err != nil {
		return why, err
	}
	body.SetResourceVersion(noVersion)
	body.SetUID(in.uid) // if that object is gone, no other is made for it
	err = w.put(ctx, body, client.ForceOwnership)
	for try := 1; apierrors.IsConflict(err) && try <= 3; try++ {
		if why, err = w.takeOver(ctx, o, in, out); err == nil || !apierrors.IsConflict(err) {
			return why, err
		}
	}
	if err == nil {
		w.wrote(in, body)
	}
	return why, err
}

// takeOver makes an object ours that exists already, if it may be. What an
// earlier controller set in it is inherited this once.
func (w *writer) takeOver(ctx context.Context, o owner, in *intent, out *outcome) (written, error) {
	why := written{verdict: absent}
	live, err := w.found(ctx, in)
	if apierrors.IsNotFound(err) {
		return why, apierrors.NewConflict(schema.GroupResource{Group: in.key.gvk.Group, Resource: in.key.gvk.Kind}, in.key.Name, err)
	}
	if err != nil {
		return why, err
	}
	if p := w.mayTake(o, in, live); p != nil {
		out.block(in.key, stateOf(in.key, live))
		return why, p
	}
	labelled := live.GetLabels()[LabelOwner] != ""
	if maker := makerOf(live, w.fieldOwner); maker != "" && maker != w.fieldOwner && live.GetLabels()[LabelOwner] == string(o.GetUID()) {
		return why, madeByAnother(in.key, maker)
	}
	if live.GetDeletionTimestamp() != nil {
		out.block(in.key, stateOf(in.key, live))
		return why, terminating(in.key)
	}
	last, _ := w.ledger.get(in.holder, in.key)
	if last.gone && !labelled {
		why = written{verdict: edited, live: live} // somebody took our labels off
	}
	marked := in
	if !last.gone && !labelled && w.leftBy(live.GetManagedFields()) {
		marked = in.marked()
	}
	err = w.take(ctx, in, marked, live)
	if last, _ := w.ledger.get(in.holder, in.key); last.deleted { // replaced; none of our watches has seen it
		out.block(in.key, stateOf(in.key, live))
	}
	return why, err
}

// take applies by force to the very object that was looked at.
func (w *writer) take(ctx context.Context, in, marked *intent, live client.Object) error {
	if err := w.release(ctx, in, live); err != nil {
		return err
	}
	live, err := w.succeed(ctx, in, live)
	if err != nil {
		return err
	}
	body := marked.body.DeepCopy()
	body.SetUID(live.GetUID())
	if u, whole := live.(*unstructured.Unstructured); whole {
		if body, err = marked.besides(u, w.fieldOwner); err != nil {
			return err
		}
	}
	err = w.put(ctx, body, client.ForceOwnership)
	if in.Replace && immutable(err) {
		return w.replace(ctx, in, live)
	}
	if err != nil {
		return err
	}
	var now client.Object = body
	if in.Retain && len(body.GetOwnerReferences()) > 0 {
		if now, err = w.untie(ctx, in.key, body); err != nil {
			return err
		}
	}
	w.wrote(in, now)
	w.metrics.count(in.key.gvk, "adopt")
	log.FromContext(ctx).V(1).Info("Took over an object that was there", "child", in.key.String())
	if marked == in {
		return nil
	}
	return w.inherit(ctx, in, now)
}

// former tells whether a reference is one that a controller before us set.
func (w *writer) former(ref metav1.OwnerReference) bool { return IsFormer(w.formerOwners, ref) }

// release gives the very object that was looked at our owner in place of former ones. It is one write, because the API server
// wants one controller at a time, and the garbage collector must not find the object without any.
func (w *writer) release(ctx context.Context, in *intent, live client.Object) error {
	refs := slices.DeleteFunc(slices.Clone(live.GetOwnerReferences()), w.former)
	if len(refs) == len(live.GetOwnerReferences()) {
		return nil
	}
	for _, ours := range in.body.GetOwnerReferences() {
		if !slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool { return ref.UID == ours.UID }) {
			refs = append(refs, ours)
		}
	}
	_, err := w.patchHead(ctx, in.key, map[string]any{
		"uid": live.GetUID(), "resourceVersion": live.GetResourceVersion(), "ownerReferences": refs})
	return err
}

// handed tells whether a child that has our label belongs to a former owner, because a take-over was interrupted.
func (w *writer) handed(in *intent, live client.Object) bool {
	if live == nil || !in.Adopt {
		return false
	}
	ref := metav1.GetControllerOfNoCopy(live)
	return ref != nil && w.former(*ref)
}

// succeed makes the fields ours that another controller of ours has applied, before ours are applied: what that one planned
// and we do not then goes at once, as with any change of a plan. It returns the object as it then is.
func (w *writer) succeed(ctx context.Context, in *intent, live client.Object) (client.Object, error) {
	maker := makerOf(live, w.fieldOwner)
	if maker == "" || maker == w.fieldOwner {
		return live, nil
	}
	head, err := w.look(ctx, in.key) // its owner has just changed
	if err != nil {
		return live, err
	}
	estate, names := estateOf(head, []string{maker})
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(estate, names, w.fieldOwner)
	if err == nil && patch != nil {
		err = w.client.Patch(ctx, head, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(w.fieldOwner))
	}
	if err != nil {
		return live, err
	}
	now, err := w.found(ctx, in)
	if err == nil && now.GetUID() != live.GetUID() {
		err = apierrors.NewConflict(schema.GroupResource{Group: in.key.gvk.Group, Resource: in.key.gvk.Kind}, in.key.Name, errors.New("it is another one by now"))
	}
	return now, err
}

// marked is the intent with the mark of a take-over that is not finished.
func (in *intent) marked() *intent {
	out := *in
	out.body = in.body.DeepCopy()
	labels := out.body.GetLabels()
	labels[LabelTakingOver] = "true"
	out.body.SetLabels(labels)
	return &out
}

// found reads the object that has the child's name: as a whole where initial
// fields depend on it, else its metadata.
func (w *writer) found(ctx context.Context, in *intent) (client.Object, error) {
	if len(in.initial) == 0 {
		return w.look(ctx, in.key)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(in.key.gvk)
	return u, w.live.Get(ctx, in.key.NamespacedName, u)
}

// mayTake refuses what belongs to somebody else. Ours is what refers to our
// owner, in whichever way: this is how children of an earlier controller of
// the same objects are taken over, and orphans of an earlier release of ours.
// What refers to nobody is ours only where the plan says so.
func (w *writer) mayTake(o owner, in *intent, head client.Object) *Problem {
	uid, named := head.GetLabels()[LabelOwner], head.GetAnnotations()[AnnotationOwner]
	if ref := metav1.GetControllerOfNoCopy(head); ref != nil && ref.UID != o.GetUID() {
		if previous(o, ref) && (uid == string(ref.UID) || in.Retain) {
			return nil // the garbage collector need not come first, and must not where it would take data
		}
		if in.Adopt && (in.uid == "" || in.uid == head.GetUID()) && w.former(*ref) {
			return nil
		}
		return controlledBy(o, in.key, ref)
	}
	if slices.ContainsFunc(head.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == o.GetUID() }) {
		return nil
	}
	orphan := uid != "" && uid != OwnerShared && named == "" && !in.Shared
	switch {
	case uid == string(o.GetUID()), uid == string(in.holder), named == o.ref(), orphan:
		return nil
	case uid != "" || named != "":
		return WaitFor("OwnedByAnother", "%s already belongs to %s. Rename one of the two, or remove the other.", in.key, first(named, "somebody else"))
	case in.Adopt && (in.uid == "" || in.uid == head.GetUID()):
		return nil
	}
	return WaitFor("NameTaken", "%s exists already and was not made for %s %s. Rename or remove one of the two; it is made as soon as the name is free.",
		in.key, o.gvk.Kind, o.GetName())
}

// controlledBy words whose an object is.
func controlledBy(o owner, key childKey, ref *metav1.OwnerReference) *Problem {
	if previous(o, ref) {
		return WaitFor("PreviousOwnerGone",
			"%s belongs to a %s of the same name that was deleted. Waiting for the garbage collector to remove it.", key, ref.Kind)
	}
	return WaitFor("OwnedByAnother", "%s already exists and is controlled by %s %s. Rename one of the two, or remove the other.",
		key, ref.Kind, ref.Name)
}

// previous tells whether a reference means an object of the owner's name that was
// there before it.
func previous(o owner, ref *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == o.gvk.Group && ref.Kind == o.gvk.Kind && ref.Name == o.GetName() && ref.UID != o.GetUID()
}

func terminating(key childKey) *Problem {
	return WaitFor("ChildTerminating", "%s is being deleted and will be made again when it is gone. If it stays, look at its finalizers.", key).passes()
}
