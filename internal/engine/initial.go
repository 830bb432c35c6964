// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// initialField is a field that is ours only until somebody else wants it.
type initialField struct {
	path  []string
	value any
}

// setAside takes the initial fields out of the body, so that neither the digest
// nor the check for edits depends on them.
func (in *intent) setAside() error {
	for _, dotted := range in.Initial {
		path := strings.Split(dotted, ".")
		value, found, err := unstructured.NestedFieldNoCopy(in.body.Object, path...)
		if err != nil {
			return fmt.Errorf("the initial field %s of %s cannot be followed: %w", dotted, in.key, err)
		}
		if found {
			cut(in.body.Object, path)
			in.initial = append(in.initial, initialField{path: path, value: value})
		}
	}
	return nil
}

// cut removes a field, and what contains nothing else: an applied empty object
// would claim it.
func cut(m map[string]any, path []string) {
	if inner, ok := m[path[0]].(map[string]any); ok && len(path) > 1 {
		if cut(inner, path[1:]); len(inner) > 0 {
			return
		}
	}
	delete(m, path[0])
}

// exists tells whether the child is there, as far as the cache and our own
// writes say.
func (w *writer) exists(in *intent, live client.Object) bool {
	if live != nil {
		return true
	}
	last, known := w.ledger.get(in.holder, in.key)
	return known && last.uid != "" && !last.deleted && !last.gone
}

// complete is the body for a child that is not there yet.
func (in *intent) complete() (*unstructured.Unstructured, error) {
	body := in.body.DeepCopy()
	for _, f := range in.initial {
		if err := unstructured.SetNestedField(body.Object, f.value, f.path...); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// sendInitial writes a child with initial fields that exists.
func (w *writer) sendInitial(ctx context.Context, in *intent, live client.Object) (*unstructured.Unstructured, error) {
	if body, err := w.seenBeside(in, live); err == nil && body != nil {
		if err := w.put(ctx, body, client.ForceOwnership); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return body, err
		}
	}
	body, err := in.body.DeepCopy(), error(nil)
	for range 3 { // busy controllers write their status in between
		if body, err = w.sendBeside(ctx, in); !apierrors.IsConflict(err) {
			break
		}
	}
	return body, err
}

// seenBeside is the body for a child that exists, made of what the cache has; nil
// if that is not enough. The cache may be behind, so a field that it says is
// ours is sent with its version, and a change in between is a conflict.
func (w *writer) seenBeside(in *intent, live client.Object) (*unstructured.Unstructured, error) {
	last, known := w.ledger.get(in.holder, in.key)
	if live == nil || !known || last.uid != live.GetUID() || older(live.GetResourceVersion(), last.version) {
		return nil, nil
	}
	seen, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, err
	}
	body, ours := in.body.DeepCopy(), ownedFields(live.GetManagedFields(), w.fieldOwner)
	body.SetUID(live.GetUID())
	for _, f := range in.initial {
		if !ownsPath(ours, f.path) {
			continue
		}
		value, found, err := unstructured.NestedFieldNoCopy(seen, f.path...)
		if err != nil || !found { // the cache does not keep it
			return nil, err
		}
		if err := unstructured.SetNestedField(body.Object, value, f.path...); err != nil {
			return nil, err
		}
		body.SetResourceVersion(live.GetResourceVersion())
	}
	return body, nil
}

// sendBeside writes a child that exists.
func (w *writer) sendBeside(ctx context.Context, in *intent) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(in.key.gvk)
	if err := w.live.Get(ctx, in.key.NamespacedName, live); err != nil {
		return in.body.DeepCopy(), err
	}
	body, err := in.besides(live, w.fieldOwner)
	if err != nil {
		return body, err
	}
	return body, w.put(ctx, body, client.ForceOwnership)
}

// besides is the body for a child that exists. Server-side apply removes what
// its only owner no longer sends, so a field that is ours alone is sent with
// the value it has; then nobody may have changed it in between. One that
// somebody else owns is left to them.
func (in *intent) besides(live *unstructured.Unstructured, fieldOwner string) (*unstructured.Unstructured, error) {
	body := in.body.DeepCopy()
	body.SetUID(live.GetUID())
	managed := live.GetManagedFields()
	for _, f := range in.initial {
		value, found, err := unstructured.NestedFieldCopy(live.Object, f.path...)
		if err != nil {
			return body, err
		}
		if !found || !onlyOwner(managed, fieldOwner, f.path) {
			continue
		}
		if err := unstructured.SetNestedField(body.Object, value, f.path...); err != nil {
			return body, err
		}
		body.SetResourceVersion(live.GetResourceVersion())
	}
	return body, nil
}

// onlyOwner tells whether an applier owns a field and nobody else does.
func onlyOwner(managed []metav1.ManagedFieldsEntry, fieldOwner string, path []string) bool {
	ours := ownsPath(ownedFields(managed, fieldOwner), path)
	return ours && !slices.ContainsFunc(managed, func(m metav1.ManagedFieldsEntry) bool {
		own := m.Manager == fieldOwner && m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == ""
		return !own && m.FieldsV1 != nil && ownsPath(m.FieldsV1.GetRawBytes(), path)
	})
}

// ownsPath tells whether a managed-fields entry has a field, a part of it, or
// something that contains it as a whole.
func ownsPath(raw []byte, path []string) bool {
	var node map[string]any
	if len(raw) == 0 || json.Unmarshal(raw, &node) != nil {
		return false
	}
	for _, name := range path {
		next, ok := node["f:"+name].(map[string]any)
		if !ok {
			return false
		}
		if len(next) == 0 {
			return true
		}
		node = next
	}
	return true
}
