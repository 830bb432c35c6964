// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// stored brings objects that are kept in a former version of their kind into the present one, so that a later release may drop
// the former. It is asked for by the definition alone: where that names no other version than the one of storage, nothing is read
// or written. The leader does it once, after each start.
type stored struct {
	client client.Client
	live   client.Reader
	kinds  []schema.GroupVersionKind
	log    logr.Logger
	// pause before the first look: API servers hear of a new definition one after the other.
	pause time.Duration
}

// addStored finds the kinds of controllers that have several versions. Who sees only some namespaces cannot speak for all objects.
func addStored(mgr ctrl.Manager, opts Options, domains []Domain) error {
	s := &stored{client: mgr.GetClient(), live: mgr.GetAPIReader(), log: opts.Log.WithName("stored-versions"), pause: 30 * time.Second}
	for _, d := range domains {
		for _, c := range d.Controllers {
			if err := s.add(mgr.GetScheme(), c.Object()); err != nil {
				return err
			}
		}
	}
	if len(s.kinds) == 0 || len(opts.Scope().Namespaces) > 0 {
		return nil
	}
	return mgr.Add(s)
}

func (s *stored) add(scheme *runtime.Scheme, obj client.Object) error {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err == nil && len(scheme.VersionsForGroupKind(gvk.GroupKind())) > 1 && !slices.Contains(s.kinds, gvk) {
		s.kinds = append(s.kinds, gvk)
	}
	return err
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *stored) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. A failure is tried again a few times, and else with the next start: nothing depends on it.
func (s *stored) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(s.pause):
	}
	for _, kind := range s.kinds {
		var last error
		tries := wait.Backoff{Duration: time.Second, Factor: 3, Jitter: 0.1, Steps: 6}
		err := wait.ExponentialBackoffWithContext(ctx, tries, func(ctx context.Context) (bool, error) {
			last = s.migrate(ctx, kind)
			return last == nil, nil
		})
		if err != nil && ctx.Err() == nil {
			s.log.Error(last, "Objects are still stored in a former version; the next start tries again", "kind", kind.Kind)
		}
	}
	return nil
}

// migrate writes every object of a kind as it is, which stores it in the present version, and then says so in the definition. The
// latter fails, and all of it begins anew, if the definition was changed meanwhile.
func (s *stored) migrate(ctx context.Context, kind schema.GroupVersionKind) error {
	crd, err := s.definition(ctx, kind)
	if err != nil || crd == nil {
		return err
	}
	storage := storageVersion(crd)
	if len(crd.Status.StoredVersions) < 2 || !slices.Contains(crd.Status.StoredVersions, storage) {
		return nil
	}
	n, err := s.rewrite(ctx, kind.GroupKind().WithVersion(storage))
	if err != nil {
		return err
	}
	patch := client.MergeFromWithOptions(crd.DeepCopy(), client.MergeFromWithOptimisticLock{})
	crd.Status.StoredVersions = []string{storage}
	if err := s.client.Status().Patch(ctx, crd, patch); err != nil {
		return fmt.Errorf("note in %s that all objects are stored in %s: %w", crd.Name, storage, err)
	}
	s.log.Info("Objects are stored in the present version", "kind", kind.Kind, "version", storage, "objects", n)
	return nil
}

// definition of a kind; nil if it has none.
func (s *stored) definition(ctx context.Context, kind schema.GroupVersionKind) (*apiextensionsv1.CustomResourceDefinition, error) {
	mapping, err := s.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the API of %s: %w", kind.Kind, err)
	}
	found := &apiextensionsv1.CustomResourceDefinitionList{}
	err = s.live.List(ctx, found, client.MatchingFields{"metadata.name": mapping.Resource.Resource + "." + kind.Group})
	if err != nil || len(found.Items) == 0 {
		return nil, err
	}
	return &found.Items[0], nil
}

func storageVersion(crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// rewrite changes nothing of the objects of a kind, page by page. The API server writes those that it would store otherwise now.
func (s *stored) rewrite(ctx context.Context, gvk schema.GroupVersionKind) (n int, err error) {
	const page = 200
	list := &metav1.PartialObjectMetadataList{}
	for {
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := s.live.List(ctx, list, client.Limit(page), client.Continue(list.Continue)); err != nil {
			return n, fmt.Errorf("list objects of %s: %w", gvk.Kind, err)
		}
		for i := range list.Items {
			head := &list.Items[i]
			head.SetGroupVersionKind(gvk)
			err := s.client.Patch(ctx, head, client.RawPatch(types.MergePatchType, []byte("{}")))
			if client.IgnoreNotFound(err) != nil {
				return n, fmt.Errorf("write %s %s/%s as it is: %w", gvk.Kind, head.Namespace, head.Name, err)
			}
			n++
		}
		if list.Continue == "" {
			return n, nil
		}
	}
}
