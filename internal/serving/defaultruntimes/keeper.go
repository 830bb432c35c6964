// SPDX-License-Identifier: Apache-2.0

package defaultruntimes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
)

// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=modelplane-shipped,verbs=get;list;watch,namespace=system
// +kubebuilder:rbac:groups=serving.kserve.io,resources=clusterservingruntimes;clusterstoragecontainers,verbs=list;create;update;delete

const fieldOwner = client.FieldOwner("modelplane-shipped")

// Keeper follows the ConfigMap as long as its replica leads. Add it to the
// manager.
type Keeper struct {
	cache  cache.Cache
	client client.Client

	latest  atomic.Pointer[corev1.ConfigMap]
	changed chan struct{}
}

// New prepares a keeper for the manager in a namespace.
func New(cfg *rest.Config, namespace string) (*Keeper, error) {
	if namespace == "" {
		return nil, errors.New("bring what the release ships: the manager's own namespace is not known")
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	// The few kinds are known without asking the API server.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	for _, kind := range kinds {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	writer, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make the client for what the release ships: %w", err)
	}
	cached, err := cache.New(cfg, cache.Options{
		Scheme: scheme,
		Mapper: mapper,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{namespace: {
				FieldSelector: fields.OneTermEqualSelector("metadata.name", Name),
				Transform:     cache.TransformStripManagedFields(),
			}}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache for what the release ships: %w", err)
	}
	return &Keeper{cache: cached, client: writer, changed: make(chan struct{}, 1)}, nil
}

// NeedLeaderElection is true: one replica writes.
func (k *Keeper) NeedLeaderElection() bool { return true }

// Start follows the ConfigMap until the context ends.
func (k *Keeper) Start(ctx context.Context) error {
	informer, err := k.cache.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch ConfigMap %s: %w", Name, err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    k.take,
		UpdateFunc: func(_, obj any) { k.take(obj) },
		DeleteFunc: func(any) { k.latest.Store(nil) },
	}); err != nil {
		return fmt.Errorf("watch ConfigMap %s: %w", Name, err)
	}
	var done sync.WaitGroup
	defer done.Wait()
	done.Go(func() { k.follow(ctx) })
	return k.cache.Start(ctx)
}

func (k *Keeper) take(obj any) {
	cm, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return
	}
	k.latest.Store(cm)
	select {
	case k.changed <- struct{}{}:
	default: // somebody is on the way and will find the newest
	}
}

// follow settles every version of the ConfigMap, and tries again what failed: at
// the start the webhooks may not answer yet, or the definitions not be there.
func (k *Keeper) follow(ctx context.Context) {
	fresh := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 1000, Cap: time.Minute}
	backoff := fresh
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.changed:
			backoff = fresh
		case <-timer.C:
		}
		if err := k.settle(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Info("What comes with the release is not all there yet; trying again", "reason", err.Error())
			timer.Reset(backoff.Step())
		}
	}
}

// settle makes the cluster hold what the ConfigMap lists. Without the ConfigMap
// nothing is touched: it goes first when the release is uninstalled, and what it
// brought stays.
func (k *Keeper) settle(ctx context.Context) error {
	cm := k.latest.Load()
	if cm == nil {
		return nil
	}
	want, unread := wanted(cm)
	have, err := k.present(ctx)
	if err != nil {
		return err
	}
	problems := []error{unread}
	for key, o := range want {
		problems = append(problems, k.put(ctx, o, have[key]))
	}
	if unread != nil {
		return errors.Join(problems...) // what cannot be read must not be taken for removed
	}
	for key, live := range have {
		if want[key] == nil && ours(live) {
			problems = append(problems, k.remove(ctx, key, live))
		}
	}
	return errors.Join(problems...)
}

// present are all objects of the kinds, as far as their metadata tells.
func (k *Keeper) present(ctx context.Context) (map[id]*metav1.PartialObjectMetadata, error) {
	have := map[id]*metav1.PartialObjectMetadata{}
	for _, kind := range kinds {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := k.client.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("list the %ss: %w", kind.Kind, err)
		}
		for i := range list.Items {
			have[id{kind.Kind, list.Items[i].Name}] = &list.Items[i]
		}
	}
	return have, nil
}

func ours(live *metav1.PartialObjectMetadata) bool { return live.Labels[Label] != "" }

// put brings an object that is not there or is there in another version.
func (k *Keeper) put(ctx context.Context, o *unstructured.Unstructured, live *metav1.PartialObjectMetadata) error {
	logger := log.FromContext(ctx).WithValues("object", idOf(o).String())
	switch {
	case live == nil:
		if err := k.client.Create(ctx, o.DeepCopy(), fieldOwner); err != nil {
			return fmt.Errorf("create %s: %w", idOf(o), err)
		}
		logger.Info("Created what comes with the release")
		return nil
	case !ours(live):
		logger.V(1).Info("Left alone what somebody else made under the name of something that comes with the release")
		return nil
	case live.Annotations[digestKey] == o.GetAnnotations()[digestKey]:
		return nil
	case o.GetAnnotations()[Asked] != "" && live.Annotations[Asked] == "":
		return k.note(ctx, o)
	case o.GetAnnotations()[Asked] != "" && live.Annotations[Asked] == o.GetAnnotations()[Asked]:
		logger.V(1).Info("Left as it is what the release brings in another version, since nobody asked for that")
		return nil
	}
	next := o.DeepCopy()
	next.SetResourceVersion(live.ResourceVersion)
	next.SetUID(live.UID)
	next.SetLabels(over(live.Labels, o.GetLabels()))
	next.SetAnnotations(over(live.Annotations, o.GetAnnotations()))
	if err := k.client.Update(ctx, next, fieldOwner); err != nil {
		return fmt.Errorf("update %s: %w", idOf(o), err)
	}
	logger.Info("Updated what comes with the release")
	return nil
}

// note writes into an object of a release that did not do so yet what was asked
// for, and changes nothing else.
func (k *Keeper) note(ctx context.Context, o *unstructured.Unstructured) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(o.GroupVersionKind().GroupVersion().WithKind(o.GetKind() + "List"))
	if err := k.client.List(ctx, list, client.MatchingFields{"metadata.name": o.GetName()}); err != nil {
		return fmt.Errorf("read %s: %w", idOf(o), err)
	}
	for i := range list.Items {
		live := &list.Items[i]
		live.SetAnnotations(with(live.GetAnnotations(), Asked, o.GetAnnotations()[Asked]))
		if err := k.client.Update(ctx, live, fieldOwner); err != nil {
			return fmt.Errorf("update %s: %w", idOf(o), err)
		}
	}
	return nil
}

// remove takes away what the release no longer brings.
func (k *Keeper) remove(ctx context.Context, key id, live *metav1.PartialObjectMetadata) error {
	live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(key.kind))
	if err := k.client.Delete(ctx, live, client.Preconditions{UID: &live.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove %s: %w", key, err)
	}
	log.FromContext(ctx).Info("Removed what no longer comes with the release", "object", key.String())
	return nil
}

// over lays ours over what others added.
func over(m, more map[string]string) map[string]string {
	out := maps.Clone(m)
	maps.Copy(out, more)
	return out
}
