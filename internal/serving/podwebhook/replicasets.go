// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

const (
	// patienceForSet is how long a pod waits for its ReplicaSet to be seen: the controller that made the pod has seen it a
	// moment ago.
	patienceForSet = time.Second
	// mostKept bounds what is kept of the annotations of a template. One with more is read when it is needed.
	mostKept = 4 << 10
)

// replicaSets follows the ReplicaSets of InferenceServices on every replica of the manager, so that where a pod comes from
// is known without a request. Of each that makes pods now only what is compared is kept, and nothing of the others, such
// as those of earlier revisions: a whole cache of them would grow with the history of every service.
type replicaSets struct {
	api client.WithWatch
	// of are those of one namespace each, or of all under the empty name.
	of map[string]*setsOf
}

// followReplicaSets prepares to follow those of some namespaces, or of all.
func followReplicaSets(api client.WithWatch, namespaces []string) *replicaSets {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	r := &replicaSets{api: api, of: map[string]*setsOf{}}
	for _, n := range namespaces {
		r.of[n] = &setsOf{by: map[types.UID]madeFrom{}, came: make(chan struct{})}
	}
	return r
}

// NeedLeaderElection is false: webhooks are served by every replica.
func (r *replicaSets) NeedLeaderElection() bool { return false }

// Start follows them until the context ends.
func (r *replicaSets) Start(ctx context.Context) error {
	var done sync.WaitGroup
	for namespace, sets := range r.of {
		reflector := toolscache.NewReflectorWithOptions(r.source(namespace), &appsv1.ReplicaSet{}, sets,
			toolscache.ReflectorOptions{Name: "replicasets of InferenceServices"})
		done.Go(func() { reflector.RunWithContext(ctx) })
	}
	done.Wait()
	return nil
}

func (r *replicaSets) source(namespace string) toolscache.ListerWatcher {
	selected := func(o metav1.ListOptions) *client.ListOptions {
		list := &client.ListOptions{Namespace: namespace, Limit: o.Limit, Continue: o.Continue, Raw: &o}
		client.HasLabels{v1beta1.LabelInferenceService}.ApplyToList(list)
		return list
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &appsv1.ReplicaSetList{}
			return list, r.api.List(ctx, list, selected(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return r.api.Watch(ctx, &appsv1.ReplicaSetList{}, selected(o))
		},
	}
}

// made tells whether a ReplicaSet that is known made the pod from its template. If not, this says nothing: it may be
// unknown, or known as it was before.
func (r *replicaSets) made(ctx context.Context, pod *corev1.Pod, namespace string, owner metav1.OwnerReference, cfg *config.Config) bool {
	if r == nil || owner.Kind != "ReplicaSet" {
		return false
	}
	sets, ok := r.of[namespace]
	if !ok {
		sets, ok = r.of[metav1.NamespaceAll]
	}
	if !ok {
		return false
	}
	from, ok := sets.find(ctx, owner.UID)
	return ok && from.set == (types.NamespacedName{Namespace: namespace, Name: owner.Name}) && from.what.same(compared(&pod.ObjectMeta, &pod.Spec), cfg)
}

// madeFrom is what is kept of a ReplicaSet.
type madeFrom struct {
	set  types.NamespacedName
	what origin
}

// setsOf are the ReplicaSets of a namespace, or of all, by their UID.
type setsOf struct {
	mu     sync.Mutex
	by     map[types.UID]madeFrom
	synced bool
	came   chan struct{} // closed when another one is known
}

// find waits a moment for a ReplicaSet that is not known yet, but not before the others are.
func (s *setsOf) find(ctx context.Context, uid types.UID) (madeFrom, bool) {
	ctx, cancel := context.WithTimeout(ctx, patienceForSet)
	defer cancel()
	for {
		s.mu.Lock()
		from, ok := s.by[uid]
		synced, came := s.synced, s.came
		s.mu.Unlock()
		if ok || !synced {
			return from, ok
		}
		select {
		case <-came:
		case <-ctx.Done():
			return madeFrom{}, false
		}
	}
}

// Add is called by the reflector, like those that follow.
func (s *setsOf) Add(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(obj)
	return nil
}

// Update is called when a ReplicaSet changed.
func (s *setsOf) Update(obj any) error { return s.Add(obj) }

// Delete is called when a ReplicaSet has gone.
func (s *setsOf) Delete(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if set, ok := obj.(metav1.Object); ok {
		delete(s.by, set.GetUID())
	}
	return nil
}

// Replace is called with all there are, in the beginning and after an interruption.
func (s *setsOf) Replace(all []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.by)
	for _, obj := range all {
		s.take(obj)
	}
	s.synced = true
	return nil
}

// Resync has nothing to do.
func (s *setsOf) Resync() error { return nil }

// Transformer makes a ReplicaSet small as soon as it is read, when many come at once.
func (s *setsOf) Transformer() toolscache.TransformFunc {
	return func(obj any) (any, error) {
		if set, ok := obj.(*appsv1.ReplicaSet); ok {
			return trimSet(set), nil
		}
		return obj, nil
	}
}

// trimSet keeps of a ReplicaSet what take looks at.
func trimSet(set *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	out := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Name: set.Name, Namespace: set.Namespace, UID: set.UID, ResourceVersion: set.ResourceVersion}}
	out.Spec.Replicas = set.Spec.Replicas
	out.Spec.Template.Labels, out.Spec.Template.Annotations = set.Spec.Template.Labels, set.Spec.Template.Annotations
	out.Spec.Template.Spec.ServiceAccountName = set.Spec.Template.Spec.ServiceAccountName
	return out
}

// take notes a ReplicaSet that makes pods.
func (s *setsOf) take(obj any) {
	set, ok := obj.(*appsv1.ReplicaSet)
	if !ok {
		return
	}
	from := madeFrom{set: client.ObjectKeyFromObject(set), what: compared(&set.Spec.Template.ObjectMeta, &set.Spec.Template.Spec)}
	if set.Spec.Replicas != nil && *set.Spec.Replicas == 0 {
		delete(s.by, set.UID)
		return
	}
	if from.what.size() > mostKept {
		from = madeFrom{} // no pod is like it, and none waits for it
	}
	if _, known := s.by[set.UID]; !known {
		close(s.came)
		s.came = make(chan struct{})
	}
	s.by[set.UID] = from
}
