// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"

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

// estate lists the fields of a child so that those which earlier controllers
// applied can be folded in like those which they updated, and whose they are.
func (w *writer) estate(live client.Object) (*metav1.PartialObjectMetadata, sets.Set[string]) {
	estate, names := &metav1.PartialObjectMetadata{}, sets.New(w.oldManagers...)
	estate.SetResourceVersion(live.GetResourceVersion())
	managed := slices.Clone(live.GetManagedFields())
	for i := range managed {
		m := &managed[i]
		if m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == "" && slices.Contains(w.oldManagers, m.Manager) {
			m.Operation, m.Manager = metav1.ManagedFieldsOperationUpdate, m.Manager+applied
			names.Insert(m.Manager)
		}
	}
	estate.SetManagedFields(managed)
	return estate, names
}

// inherit makes the fields of earlier controllers ours, in one write that
// changes who owns them and nothing else. They go with the next plan that
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
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(in.key.gvk)
	if live == nil {
		if err := w.live.Get(ctx, in.key.NamespacedName, head); err != nil {
			return err
		}
		live = head
	}
	head.SetNamespace(in.key.Namespace)
	head.SetName(in.key.Name)
	estate, names := w.estate(live)
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(estate, names, w.fieldOwner)
	if err != nil {
		return fmt.Errorf("read who owns the fields: %w", err)
	}
	if patch == nil {
		return nil
	}
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
