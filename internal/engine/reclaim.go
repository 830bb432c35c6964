// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// reclaim repairs an edit that the API server does not let us repair by applying
// alone. Who changes the key of a list item (a Service's port) makes another item,
// which is theirs; ours is put beside it, and the two may not stand together.
// The lists that were refused are made ours as a whole, so that the next apply
// leaves in them what we want and nothing else. refused comes back where that
// does not help.
func (w *writer) reclaim(ctx context.Context, in *intent, live client.Object, refused error) error {
	lists := refusedLists(refused, in.body.Object)
	if len(lists) == 0 {
		return refused
	}
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(in.key.gvk)
	if err := w.live.Get(ctx, in.key.NamespacedName, head); err != nil {
		return err
	}
	managed, err := w.withLists(head.GetManagedFields(), in.key.gvk.GroupVersion().String(), lists)
	if err != nil {
		return fmt.Errorf("read who owns the fields: %w", err)
	}
	if managed == nil {
		return refused
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": managed},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": head.GetResourceVersion()},
	})
	if err != nil {
		return err
	}
	if err := w.client.Patch(ctx, head, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(w.fieldOwner)); err != nil {
		return err
	}
	w.metrics.count(in.key.gvk, "inherit")
	log.FromContext(ctx).V(1).Info("Took back lists that somebody had edited", "child", in.key.String(), "lists", lists)
	return w.send(ctx, in, live)
}

// refusedLists names the lists of an intent in which the API server found fault.
func refusedLists(err error, body map[string]any) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var out []string
	for _, cause := range status.Status().Details.Causes {
		list, _, inList := strings.Cut(cause.Field, "[")
		if inList && isList(body, strings.Split(list, ".")) {
			out = append(out, list)
		}
	}
	return out
}

func isList(body map[string]any, path []string) bool {
	var at any = body
	for _, name := range path {
		m, _ := at.(map[string]any)
		at = m[name]
	}
	_, ok := at.([]any)
	return ok
}

// withLists gives us the items that others own in lists of one version of the
// API; nil if there are none.
func (w *writer) withLists(managed []metav1.ManagedFieldsEntry, version string, lists []string) ([]metav1.ManagedFieldsEntry, error) {
	at := slices.IndexFunc(managed, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == w.fieldOwner && m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == "" && m.APIVersion == version
	})
	if at < 0 {
		return nil, nil
	}
	trees := make([]map[string]any, len(managed))
	for i, m := range managed {
		var err error
		if trees[i], err = fieldTree(m); err != nil {
			return nil, err
		}
	}
	taken := false
	for i, m := range managed {
		if i == at || m.Subresource != "" || m.APIVersion != version {
			continue
		}
		for _, list := range lists {
			taken = moveFields(trees[i], trees[at], strings.Split(list, ".")) || taken
		}
	}
	if !taken {
		return nil, nil
	}
	return withFields(managed, trees)
}

func fieldTree(m metav1.ManagedFieldsEntry) (map[string]any, error) {
	tree := map[string]any{}
	if m.FieldsV1 == nil {
		return tree, nil
	}
	err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &tree)
	return tree, err
}

// withFields writes the trees back; who owns nothing any more is left out.
func withFields(managed []metav1.ManagedFieldsEntry, trees []map[string]any) ([]metav1.ManagedFieldsEntry, error) {
	var out []metav1.ManagedFieldsEntry
	for i, m := range managed {
		if len(trees[i]) == 0 {
			continue
		}
		raw, err := json.Marshal(trees[i])
		if err != nil {
			return nil, err
		}
		m.FieldsV1 = metav1.NewFieldsV1(string(raw))
		out = append(out, m)
	}
	return out, nil
}

// moveFields moves what lies below a path from one tree of owned fields to
// another, and tells whether there was anything.
func moveFields(from, to map[string]any, path []string) bool {
	name := "f:" + path[0]
	below, ok := from[name].(map[string]any)
	if !ok {
		return false
	}
	there, ok := to[name].(map[string]any)
	if !ok {
		there = map[string]any{}
	}
	moved := true
	if len(path) > 1 {
		moved = moveFields(below, there, path[1:])
	} else {
		mergeFields(there, below)
		clear(below)
	}
	if moved {
		to[name] = there
	}
	if len(below) == 0 {
		delete(from, name)
	}
	return moved
}

func mergeFields(to, from map[string]any) {
	for name, below := range from {
		sub, deep := below.(map[string]any)
		there, both := to[name].(map[string]any)
		if deep && both {
			mergeFields(there, sub)
			continue
		}
		to[name] = below
	}
}
