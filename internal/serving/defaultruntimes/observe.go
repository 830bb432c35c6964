// SPDX-License-Identifier: Apache-2.0

package defaultruntimes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
)

// Seen is what there is of the kinds that may be brought, whoever made it.
type Seen map[id]live

// live is an object that is there.
type live struct {
	metav1.ObjectMeta
	// spec is as it is stored, for those that the engine wrote and that do not say
	// what was asked for.
	spec any
}

// ours tells whether a release brought an object, this one or an earlier one.
func (l live) ours() bool { return l.Labels[Label] != "" }

// applied tells whether it was the engine that wrote it.
func (l live) applied() bool { return l.Labels[engine.LabelOwner] != "" }

// Observe implements engine.Kind.
func (Kind) Observe(ctx context.Context, r engine.Reader, _ *corev1.ConfigMap) (Seen, error) {
	runtimes, containers := &v1alpha1.ClusterServingRuntimeList{}, &v1alpha1.ClusterStorageContainerList{}
	for _, list := range []client.ObjectList{runtimes, containers} {
		if err := r.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list what a release may bring: %w", err)
		}
	}
	seen := Seen{}
	for i := range runtimes.Items {
		seen[id{kinds[0].Kind, runtimes.Items[i].Name}] = live{ObjectMeta: runtimes.Items[i].ObjectMeta}
	}
	for i := range containers.Items {
		seen[id{kinds[1].Kind, containers.Items[i].Name}] = live{ObjectMeta: containers.Items[i].ObjectMeta}
	}
	for key, l := range seen {
		if !l.ours() || !l.applied() || l.Annotations[Asked] != "" {
			continue
		}
		child := key.object()
		if err := r.Child(ctx, child); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		l.spec = child.Object["spec"]
		seen[key] = l
	}
	return seen, nil
}

// object is an empty object of the name.
func (i id) object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(i.kind))
	o.SetName(i.name)
	return o
}
