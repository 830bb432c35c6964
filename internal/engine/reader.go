// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	selected map[schema.GroupKind]client.Reader
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
	if earlier, ok := r.needs[n]; ok && earlier == nil {
		return // already depends on all of it
	}
	r.needs[n] = match
	r.tracker.add(r.who, n, match)
}

func (r *recorder) cacheOf(gk schema.GroupKind) client.Reader {
	if c, ok := r.selected[gk]; ok {
		return c
	}
	return r.inputs
}

func (r *recorder) Get(ctx context.Context, key client.ObjectKey, obj client.Object) error {
	gk, err := r.ask(key, obj)
	if err != nil {
		return err
	}
	if !r.scope.sees(gk, key.Namespace) && (!r.home[gk] || key.Namespace != r.scope.Home) {
		// What the manager may not look at is not there for it.
		return outOfSight{apierrors.NewNotFound(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, key.Name)}
	}
	return r.cacheOf(gk).Get(ctx, key, obj)
}

// outOfSight is the answer to a question that the manager may not ask.
type outOfSight struct{ *apierrors.StatusError }

// OutOfSight tells whether an object was not found because it lies in a namespace that the manager does not look at: it
// may well exist.
func OutOfSight(err error) bool {
	var out outOfSight
	return errors.As(err, &out)
}

func (r *recorder) ask(key client.ObjectKey, obj runtime.Object) (schema.GroupKind, error) {
	gvk, err := apiutil.GVKForObject(obj, r.scheme)
	if err != nil {
		return schema.GroupKind{}, err
	}
	r.need(need{gk: gvk.GroupKind(), namespace: key.Namespace, name: key.Name}, nil)
	return gvk.GroupKind(), r.served(gvk)
}

// served asks whether an API is there, and makes the object wake when it comes.
func (r *recorder) served(gvk schema.GroupVersionKind) error {
	err := r.apis.served(gvk)
	if err != nil {
		r.need(need{gk: gvk.GroupKind(), api: true}, nil)
	}
	return err
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
	return r.cacheOf(gk).List(ctx, list, opts...)
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
	return r.owned.Get(ctx, client.ObjectKeyFromObject(obj), obj)
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
