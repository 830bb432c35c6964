// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Reader is what Observe reads through. Everything comes from caches, and
// whatever is asked for, found or not, wakes the object again when it changes.
type Reader interface {
	// Get reads one input. NotFound is the caller's to judge.
	Get(ctx context.Context, key client.ObjectKey, obj client.Object) error
	// List reads inputs. Give InNamespace where it applies, so that the others
	// do not wake the object, and Indexed or MatchingFunc where only some concern it.
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
	// Child reads a live child of ours by the name and namespace in obj; of a kind
	// that is kept as metadata only, into *metav1.PartialObjectMetadata.
	Child(ctx context.Context, obj client.Object) error
	// GetUncached reads an input that is kept in memory as metadata only (a
	// Secret), in full. It costs an API call once per version of it.
	GetUncached(ctx context.Context, key client.ObjectKey, obj client.Object) error
	// HasAPI tells whether the cluster serves an optional API now.
	HasAPI(gk schema.GroupKind) bool
	// Answer is what came of a call that the last plan named; nothing yet if zero.
	Answer(name, key string) Answer
}

// MatchingFunc limits what a List depends on: only objects that match, before or
// after a change, wake the one that listed. It does not filter the result. It is
// kept until the next look, with everything that it refers to: let it refer to
// names, never to an object or to what was seen, or each object keeps a copy of its
// world in memory. domaintest.KeepsNothing finds it out.
type MatchingFunc func(client.Object) bool

// ApplyToList makes MatchingFunc a ListOption; it leaves the request alone.
func (MatchingFunc) ApplyToList(*client.ListOptions) {}

// Indexed limits a List to the inputs for which Input.Index gives this value.
// Only these wake the object.
type Indexed string

// ApplyToList makes Indexed a ListOption; the Reader itself gives it a meaning.
func (Indexed) ApplyToList(*client.ListOptions) {}

// indexes are the Index functions of a controller's inputs.
type indexes map[schema.GroupKind]func(client.Object) []string

// asked finds out which value a List is limited to.
func (x indexes) asked(gk schema.GroupKind, opts []client.ListOption) (value string, asked bool, err error) {
	for _, opt := range opts {
		if v, ok := opt.(Indexed); ok {
			value, asked = string(v), true
		}
	}
	if asked && x[gk] == nil {
		return "", false, fmt.Errorf("%s is asked for by an index, but its Input has no Index", gk.Kind)
	}
	return value, asked, nil
}

// sources are the caches behind every Reader of a controller.
type sources struct {
	scheme   *runtime.Scheme
	inputs   client.Reader
	selected map[any]client.Reader     // by form, and by kind
	home     map[schema.GroupKind]bool // of which those at home are seen, too
	indexes  indexes
	field    string // that the inputs are indexed as
	owned    client.Reader
	heads    map[schema.GroupKind]bool // children that are kept as metadata only
	live     client.Reader
	apis     *apis
	contents *contents
	scope    Scope
	calls    *caller
}

// recorder is the Reader of one reconcile. A need is made known before the
// read, so that a change right after the read is not missed.
type recorder struct {
	*sources
	who     types.NamespacedName
	tracker *tracker
	needs   map[need]func(client.Object) bool
}

func (s *sources) recorder(who types.NamespacedName, t *tracker) *recorder {
	return &recorder{sources: s, who: who, tracker: t, needs: map[need]func(client.Object) bool{}}
}

// done forgets what earlier reconciles asked for and this one did not.
func (r *recorder) done() { r.tracker.replace(r.who, r.needs) }

func (r *recorder) need(n need, match func(client.Object) bool) {
	earlier, asked := r.needs[n]
	switch {
	case asked && earlier == nil:
		return // already depends on all of it
	case asked && match != nil:
		later := match
		match = func(o client.Object) bool { return earlier(o) || later(o) }
	}
	r.needs[n] = match
	r.tracker.add(r.who, n, match)
}

// cacheOf is where a kind is read, in the form that is asked for.
func (r *recorder) cacheOf(gvk schema.GroupVersionKind, asked runtime.Object) client.Reader {
	if c, ok := r.selected[formFor(gvk, asked, r.scheme)]; ok {
		return c
	}
	if c, ok := r.selected[gvk.GroupKind()]; ok { // in another form than is declared
		return c
	}
	return r.inputs
}

// formFor is the form in which a cache has what an object or a list asks for.
func formFor(gvk schema.GroupVersionKind, asked runtime.Object, scheme *runtime.Scheme) any {
	switch asked.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return headOf(gvk)
	case runtime.Unstructured:
		return gvk
	}
	obj, err := scheme.New(gvk)
	if err != nil {
		return nil
	}
	return formOf(obj)
}

// several reads what more than one selection of a kind has. An object may be in many.
type several []client.Reader

// with adds a cache to where a kind is read already.
func (s several) with(have client.Reader, more client.Reader) client.Reader {
	if have == nil {
		return more
	}
	if all, ok := have.(several); ok {
		s = all
	} else {
		s = several{have}
	}
	if slices.Contains(s, more) {
		return have
	}
	return append(slices.Clone(s), more)
}

func (s several) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	var err error
	for _, c := range s {
		if err = c.Get(ctx, key, obj, opts...); !apierrors.IsNotFound(err) {
			return err
		}
	}
	return err
}

func (s several) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var all []runtime.Object
	seen := map[client.ObjectKey]bool{}
	for _, c := range s {
		if err := c.List(ctx, list, opts...); err != nil {
			return err
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return err
		}
		for _, item := range items {
			if key := client.ObjectKeyFromObject(item.(client.Object)); !seen[key] {
				seen[key], all = true, append(all, item)
			}
		}
	}
	return meta.SetList(list, all)
}

func (r *recorder) Get(ctx context.Context, key client.ObjectKey, obj client.Object) error {
	gvk, err := r.ask(key, obj)
	if err != nil {
		return err
	}
	gk := gvk.GroupKind()
	if !r.scope.sees(gk, key.Namespace) && (!r.home[gk] || key.Namespace != r.scope.Home) {
		// What the manager may not look at is not there for it.
		return outOfSight{apierrors.NewNotFound(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, key.Name)}
	}
	return r.apis.read(ctx, gvk, func(ctx context.Context) error { return r.cacheOf(gvk, obj).Get(ctx, key, obj) })
}

// outOfSight is the answer to a question that the manager may not ask.
type outOfSight struct{ *apierrors.StatusError }

// OutOfSight tells whether an object was not found because it lies in a namespace that the manager does not look at: it
// may well exist.
func OutOfSight(err error) bool {
	var out outOfSight
	return errors.As(err, &out)
}

func (r *recorder) ask(key client.ObjectKey, obj runtime.Object) (schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(obj, r.scheme)
	if err != nil {
		return gvk, err
	}
	r.need(need{gk: gvk.GroupKind(), namespace: key.Namespace, name: key.Name}, nil)
	return gvk, r.served(gvk)
}

// served asks whether an API is there, and makes the object wake when it comes. It
// asks again once that is noted: the API may have come in between.
func (r *recorder) served(gvk schema.GroupVersionKind) error {
	if !r.apis.absent(gvk) {
		return nil
	}
	r.need(need{gk: gvk.GroupKind(), api: true}, nil)
	return r.apis.served(gvk)
}

func (r *recorder) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, r.scheme)
	if err != nil {
		return err
	}
	gk := itemKind(gvk).GroupKind()
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	var match func(client.Object) bool
	for _, opt := range opts {
		if m, ok := opt.(MatchingFunc); ok {
			match = m
		}
	}
	value, indexed, err := r.indexes.asked(gk, opts)
	if err != nil {
		return err
	}
	r.need(need{gk: gk, namespace: o.Namespace, indexed: indexed, name: value}, match)
	if indexed {
		opts = append(slices.Clone(opts), client.MatchingFields{r.field: value})
	}
	if err := r.served(itemKind(gvk)); err != nil {
		return err
	}
	return r.apis.read(ctx, itemKind(gvk), func(ctx context.Context) error {
		return r.cacheOf(itemKind(gvk), list).List(ctx, list, opts...)
	})
}

func (r *recorder) Child(ctx context.Context, obj client.Object) error {
	gvk, err := apiutil.GVKForObject(obj, r.scheme)
	if err != nil {
		return err
	}
	if err := r.served(gvk); err != nil {
		return err
	}
	if _, head := obj.(*metav1.PartialObjectMetadata); !head && r.heads[gvk.GroupKind()] {
		return fmt.Errorf("of %s only the metadata is kept: read it as PartialObjectMetadata, or take MetadataOnly off its ChildKind", gvk.Kind)
	}
	return r.apis.read(ctx, gvk, func(ctx context.Context) error { return r.owned.Get(ctx, client.ObjectKeyFromObject(obj), obj) })
}

func (r *recorder) HasAPI(gk schema.GroupKind) bool {
	r.need(need{gk: gk, api: true}, nil)
	return r.apis.has(gk)
}

func (r *recorder) Answer(name, key string) Answer { return r.calls.answer(r.who, name, key) }

func (r *recorder) GetUncached(ctx context.Context, key client.ObjectKey, obj client.Object) error {
	gvk, err := apiutil.GVKForObject(obj, r.scheme)
	if err != nil {
		return err
	}
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(gvk)
	if err := r.Get(ctx, key, head); err != nil {
		return err
	}
	return r.contents.read(ctx, r.live, gvk, key, head.ResourceVersion, obj)
}

func itemKind(list schema.GroupVersionKind) schema.GroupVersionKind {
	const suffix = "List"
	if n := len(list.Kind) - len(suffix); n > 0 && list.Kind[n:] == suffix {
		list.Kind = list.Kind[:n]
	}
	return list
}

func copyInto(from, into client.Object) error {
	if reflect.TypeOf(from) == reflect.TypeOf(into) {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(from.DeepCopyObject()).Elem())
		return nil
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		return fmt.Errorf("copy %T: %w", from, err)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(raw, into)
}
