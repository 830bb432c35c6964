// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/modelplane/modelplane/internal/kube"
)

// World stands in for a cluster: the objects that a decision may look at.
type World struct {
	Scheme  *runtime.Scheme
	Objects []*unstructured.Unstructured
	// Without are API groups that the cluster does not serve. All others that
	// are optional count as served.
	Without []string
	// Listed, if set, is told the options of each List.
	Listed func(opts []client.ListOption)

	indexes indexes
}

// seenBy is the same world with what a controller says of its inputs.
func (w *World) seenBy(s Spec) (*World, error) {
	out := *w
	out.indexes = indexes{}
	for _, in := range s.Inputs {
		if in.Index == nil {
			continue
		}
		gvk, err := apiutil.GVKForObject(in.Object, w.Scheme)
		if err != nil {
			return nil, err
		}
		out.indexes[gvk.GroupKind()] = in.Index
	}
	return &out, nil
}

// Decision is what was decided about one object, for people and tests.
type Decision struct {
	// Children in the order they would be written, as the plan names them.
	Children []*unstructured.Unstructured
	// KeepChildren says that existing children would be left as they are.
	KeepChildren bool
	// DeleteSelf says that the object itself would be deleted, and why.
	DeleteSelf *Event
	// Status is the complete status, without transition times.
	Status map[string]any
	// Conditions are those of the status.
	Conditions kube.Conditions
	Problem    *Problem
	Events     []Event
	// Calls are what other systems would be asked to do.
	Calls []Call
}

func (c *controllerOf[T, Seen]) Decide(ctx context.Context, obj client.Object, world *World) (Decision, error) {
	typed, ok := obj.(T)
	if !ok {
		return Decision{}, fmt.Errorf("the controller %s does not look after %T", c.spec.Name, obj)
	}
	world, err := world.seenBy(c.spec)
	if err != nil {
		return Decision{}, err
	}
	seen, err := c.kind.Observe(ctx, world, typed)
	if err != nil {
		return Decision{}, fmt.Errorf("read what the decision depends on: %w", err)
	}
	plan := c.kind.Plan(typed, seen)
	if plan.DeleteSelf != nil {
		return Decision{DeleteSelf: plan.DeleteSelf}, nil
	}
	d := Decision{KeepChildren: plan.KeepChildren, Problem: plan.Problem, Events: plan.Events, Calls: plan.Calls}
	if d.Children, err = world.render(plan); err != nil {
		return Decision{}, err
	}
	if d.Status, err = encodeStatus(plan.Status); err != nil {
		return Decision{}, err
	}
	if d.Problem != nil && d.Status != nil {
		(&reporter{ready: c.spec.readyType(), blocked: c.spec.Blocked}).put(part{}, d.Status, d.Problem)
	}
	for _, raw := range rawConditions(d.Status) {
		delete(raw, "lastTransitionTime")
	}
	d.Conditions = conditionsOf(d.Status)
	return d, nil
}

// Together is what several controllers of one kind have decided about an object: each has the word on its own part of the
// status, as in a cluster. The decisions are in the order of the controllers.
func Together(obj client.Object, controllers []Controller, decisions []Decision) (Decision, error) {
	out := decisions[0]
	if len(decisions) == 1 {
		return out, nil
	}
	status, err := statusOf(obj)
	if err != nil {
		return out, err
	}
	all := &lookers{}
	for _, c := range controllers {
		all.specs = append(all.specs, c.Spec())
	}
	for i, d := range decisions {
		if d.Status != nil {
			status = part{owns: all.specs[i].Status, all: all}.on(obj).merge(status, d.Status)
		}
		if i > 0 {
			out.Children, out.Events, out.Calls = slices.Concat(out.Children, d.Children), slices.Concat(out.Events, d.Events), slices.Concat(out.Calls, d.Calls)
			out.Problem = cmp.Or(out.Problem, d.Problem)
		}
	}
	out.Status = inOrderOf(decisions[0].Conditions, status)
	out.Conditions = conditionsOf(status)
	return out, nil
}

// inOrderOf puts the conditions of a status into the order in which others are, and takes the times off that it was stored
// with.
func inOrderOf(order kube.Conditions, status map[string]any) map[string]any {
	all, _ := status[conditionsField].([]any)
	place := func(c any) int {
		typ := typeOf(c.(map[string]any))
		if i := slices.IndexFunc(order, func(o kube.Condition) bool { return o.Type == typ }); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(all, func(a, b any) int { return place(a) - place(b) })
	for _, raw := range rawConditions(status) {
		delete(raw, "lastTransitionTime")
	}
	return status
}

func (w *World) render(plan Plan) ([]*unstructured.Unstructured, error) {
	if plan.KeepChildren {
		return nil, nil
	}
	ordered := slices.Clone(plan.Children)
	slices.SortStableFunc(ordered, func(a, b Child) int { return a.Stage - b.Stage })
	out := make([]*unstructured.Unstructured, 0, len(ordered))
	for _, c := range ordered {
		if c.Unmanaged || c.Delete {
			continue
		}
		body, gvk, err := bodyOf(w.Scheme, c.Object)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{Object: body}
		u.SetGroupVersionKind(gvk)
		out = append(out, u)
	}
	return out, nil
}

// Get implements Reader.
func (w *World) Get(_ context.Context, key client.ObjectKey, obj client.Object) error {
	gvk, err := w.kindOf(obj)
	if err != nil {
		return err
	}
	for _, u := range w.Objects {
		if u.GroupVersionKind() == gvk && client.ObjectKeyFromObject(u) == key {
			return runtime.DefaultUnstructuredConverter.FromUnstructured(u.DeepCopy().Object, obj)
		}
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return apierrors.NewNotFound(plural.GroupResource(), key.Name)
}

// List implements Reader.
func (w *World) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := w.kindOf(list)
	if err != nil {
		return err
	}
	if w.Listed != nil {
		w.Listed(opts)
	}
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	found := &unstructured.UnstructuredList{}
	for _, u := range w.Objects {
		inNamespace := o.Namespace == "" || o.Namespace == u.GetNamespace()
		selected := o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(u.GetLabels()))
		if u.GroupVersionKind() == itemKind(gvk) && inNamespace && selected {
			found.Items = append(found.Items, *u.DeepCopy())
		}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.UnstructuredContent(), list); err != nil {
		return err
	}
	gk := itemKind(gvk).GroupKind()
	value, indexed, err := w.indexes.asked(gk, opts)
	if err != nil || !indexed {
		return err
	}
	return keep(list, func(o client.Object) bool { return slices.Contains(w.indexes[gk](o), value) })
}

// keep filters a list in place.
func keep(list client.ObjectList, match func(client.Object) bool) error {
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	return meta.SetList(list, slices.DeleteFunc(items, func(o runtime.Object) bool {
		obj, ok := o.(client.Object)
		return !ok || !match(obj)
	}))
}

// Child implements Reader: a child that is among the objects counts as live.
func (w *World) Child(ctx context.Context, obj client.Object) error {
	return w.Get(ctx, client.ObjectKeyFromObject(obj), obj)
}

// GetUncached implements Reader.
func (w *World) GetUncached(ctx context.Context, key client.ObjectKey, obj client.Object) error {
	return w.Get(ctx, key, obj)
}

// HasAPI implements Reader.
func (w *World) HasAPI(gk schema.GroupKind) bool { return !slices.Contains(w.Without, gk.Group) }

// Answer implements Reader: nobody was called.
func (w *World) Answer(string, string) Answer { return Answer{} }

func (w *World) kindOf(obj runtime.Object) (schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(obj, w.Scheme)
	if err == nil && slices.Contains(w.Without, gvk.Group) {
		return gvk, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	return gvk, err
}
