// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
)

// HomeInput is what KuadrantHome reads.
func HomeInput() engine.Input {
	return engine.Input{Object: kuadrant.New(kuadrant.Kuadrant), Resource: "kuadrants", Optional: true, MetadataOnly: true}
}

// KuadrantHome is the namespace of Kuadrant's own objects, which is where those look for Secrets that a policy names; empty where
// there is none. Of several, the oldest is the one that counts.
func KuadrantHome(ctx context.Context, r engine.Reader) (string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kuadrant.Kuadrant.GroupVersion().WithKind(kuadrant.Kuadrant.Kind + "List"))
	if err := r.List(ctx, list); err != nil {
		if meta.IsNoMatchError(err) {
			return "", nil
		}
		return "", err
	}
	var oldest *metav1.PartialObjectMetadata
	for i := range list.Items {
		k := &list.Items[i]
		if k.DeletionTimestamp == nil && (oldest == nil || k.CreationTimestamp.Before(&oldest.CreationTimestamp)) {
			oldest = k
		}
	}
	if oldest == nil {
		return "", nil
	}
	return oldest.Namespace, nil
}
