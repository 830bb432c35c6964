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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// leftBy tells whether an earlier controller still owns fields of a child. They
// would stay for ever, because server-side apply removes only what is ours.
func (w *writer) leftBy(managed []metav1.ManagedFieldsEntry) bool {
	return len(w.oldManagers) > 0 && slices.ContainsFunc(managed, func(m metav1.ManagedFieldsEntry) bool {
		return m.Subresource == "" && slices.Contains(w.oldManagers, m.Manager)
	})
}

// applied marks what an earlier controller applied, until it is ours.
const applied = " (applied)"

// estateOf lists the fields of a child so that those which earlier controllers
// applied can be folded in like those which they updated, and whose they are.
func estateOf(live client.Object, managers []string) (*metav1.PartialObjectMetadata, sets.Set[string]) {
	estate, names := &metav1.PartialObjectMetadata{}, sets.New(managers...)
	estate.SetResourceVersion(live.GetResourceVersion())
	managed := slices.Clone(live.GetManagedFields())
	for i := range managed {
		m := &managed[i]
		if m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == "" && slices.Contains(managers, m.Manager) {
			m.Operation, m.Manager = metav1.ManagedFieldsOperationUpdate, m.Manager+applied
			names.Insert(m.Manager)
		}
	}
	estate.SetManagedFields(managed)
	return estate, names
}

// inherit makes the fields of earlier controllers ours, in one write that
// changes who owns them and nothing else. It follows the apply that made the child
// ours and marked it: before it, the apply would remove what we do not plan, and
// without the mark what other operators set later would be taken for an estate. They go with the next plan that
// differs, and not before: taking over must not restart what runs. live is the
// child with all its managed fields, nil to look at it first.
func (w *writer) inherit(ctx context.Context, in *intent, live client.Object) error {
	for try := 1; ; try++ {
		err := w.fold(ctx, in, live)
		if err == nil || try == 3 || !apierrors.IsConflict(err) {
			return err
		}
		live = nil
	}
}

func (w *writer) fold(ctx context.Context, in *intent, live client.Object) error {
	if live == nil {
		head, err := w.look(ctx, in.key)
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		live = head
	}
	if live.GetLabels()[LabelTakingOver] == "" {
		return nil // done already, the cache is behind
	}
	patch, err := w.foldPatch(live)
	if err != nil {
		return err
	}
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(in.key.gvk)
	head.SetNamespace(in.key.Namespace)
	head.SetName(in.key.Name)
	err = w.client.Patch(ctx, head, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(w.fieldOwner))
	if err != nil {
		return err
	}
	w.metrics.count(in.key.gvk, "inherit")
	log.FromContext(ctx).V(1).Info("Took over the fields of an earlier controller", "child", in.key.String())
	if covers(ownedFields(head.GetManagedFields(), w.fieldOwner), in.body.Object) { // or else it was edited meanwhile
		w.wrote(in, head)
	}
	return nil
}

// foldPatch changes who owns the fields, and takes off the mark of a take-over
// that is not finished.
func (w *writer) foldPatch(live client.Object) ([]byte, error) {
	estate, names := estateOf(live, w.oldManagers)
	raw, err := csaupgrade.UpgradeManagedFieldsPatch(estate, names, w.fieldOwner)
	if err != nil {
		return nil, fmt.Errorf("read who owns the fields: %w", err)
	}
	var patch []map[string]any
	if raw != nil {
		if err := json.Unmarshal(raw, &patch); err != nil {
			return nil, err
		}
	}
	return json.Marshal(append(patch, map[string]any{
		"op": "remove", "path": "/metadata/labels/" + strings.ReplaceAll(LabelTakingOver, "/", "~1"),
	}))
}

// unfinished tells whether a child is ours but the fields of its earlier controller
// are not, because we were interrupted in between.
func (w *writer) unfinished(in *intent, live client.Object) bool {
	if live == nil || live.GetLabels()[LabelTakingOver] == "" {
		return false
	}
	last, known := w.ledger.get(in.holder, in.key)
	return !known || !older(live.GetResourceVersion(), last.version)
}
