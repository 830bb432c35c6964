// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=inferenceservice-config,verbs=get;list;watch,namespace=system

// Reasons of the events that a Watcher writes about the ConfigMap.
const (
	ReasonInvalid = "InvalidConfiguration"
	ReasonUnknown = "UnknownConfiguration"
)

// Watcher is the source for everything that does not run in the engine, such as webhooks. It watches exactly one
// ConfigMap, on every replica, and says what is wrong with it in events, metrics and the log.
type Watcher struct {
	cache    cache.Cache
	recorder events.EventRecorder
	lastGood *LastGood
	current  atomic.Pointer[Config]
	synced   chan struct{}

	mu  sync.Mutex
	log logr.Logger
	// said are the problems that were reported and still stand.
	said map[Problem]bool
}

// NewWatcher prepares a watcher; add it to the manager. The recorder may be nil.
func NewWatcher(cfg *rest.Config, namespace string, recorder events.EventRecorder) (*Watcher, error) {
	if namespace == "" {
		return nil, errors.New("watch the configuration: the manager's own namespace is not known")
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	// The one kind is known without asking the API server.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
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
		return nil, fmt.Errorf("make the cache for the configuration: %w", err)
	}
	w := &Watcher{
		cache: cached, recorder: recorder, lastGood: NewLastGood(), synced: make(chan struct{}), log: log.Log, said: map[Problem]bool{},
	}
	w.current.Store(Default())
	return w, nil
}

// Current is what holds now. Before the ConfigMap was seen for the first time these are the defaults; whoever must not
// act on them calls WaitForSync first.
func (w *Watcher) Current() *Config { return w.current.Load() }

// WaitForSync waits until the ConfigMap has been read, or is known to be absent.
func (w *Watcher) WaitForSync(ctx context.Context) error {
	select {
	case <-w.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the ConfigMap %s has not been read yet: %w", Name, context.Cause(ctx))
	}
}

// Check is a readiness check: a replica that does not know the configuration must not answer webhooks with defaults.
func (w *Watcher) Check(*http.Request) error {
	select {
	case <-w.synced:
		return nil
	default:
		return fmt.Errorf("the ConfigMap %s has not been read yet", Name)
	}
}

// NeedLeaderElection is false: webhooks are served by every replica.
func (w *Watcher) NeedLeaderElection() bool { return false }

// Start watches until the context ends.
func (w *Watcher) Start(ctx context.Context) error {
	w.log = log.FromContext(ctx).WithName("config")
	informer, err := w.cache.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch ConfigMap %s: %w", Name, err)
	}
	handled, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { w.take(obj) },
		UpdateFunc: func(_, obj any) { w.take(obj) },
		DeleteFunc: func(any) { w.take(nil) },
	})
	if err != nil {
		return fmt.Errorf("watch ConfigMap %s: %w", Name, err)
	}
	var done sync.WaitGroup
	defer done.Wait()
	done.Go(func() {
		if toolscache.WaitForCacheSync(ctx.Done(), handled.HasSynced) {
			w.markSynced()
		}
	})
	return w.cache.Start(ctx)
}

// take makes a version of the ConfigMap, or its absence, the one that holds.
func (w *Watcher) take(obj any) {
	cm, _ := obj.(*corev1.ConfigMap)
	config, problems := w.lastGood.Read(cm)
	w.current.Store(config)
	w.report(cm, problems)
}

// markSynced ends the waiting. Without a ConfigMap nothing has been reported so far.
func (w *Watcher) markSynced() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.said) == 0 {
		measure(nil)
	}
	close(w.synced)
}

// report tells of every problem once, when it appears.
func (w *Watcher) report(cm *corev1.ConfigMap, problems []Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	measure(problems)
	stand := make(map[Problem]bool, len(problems))
	for _, p := range problems {
		stand[p] = true
		if !w.said[p] {
			w.say(cm, p)
		}
	}
	if len(w.said) > 0 && len(stand) == 0 {
		w.log.Info("The configuration is in order again")
	}
	w.said = stand
}

func (w *Watcher) say(cm *corev1.ConfigMap, p Problem) {
	reason := ReasonInvalid
	if p.Warning {
		reason = ReasonUnknown
	}
	w.log.Info("The configuration needs a correction", "reason", reason, "key", p.Key, "problem", p.Message)
	if w.recorder != nil && cm != nil {
		w.recorder.Eventf(cm, nil, corev1.EventTypeWarning, reason, "ReadConfiguration", "%s", bound(p.Message))
	}
}

// longestNote is the most that the API server takes for the text of an event.
const longestNote = 1024

func bound(s string) string {
	if len(s) <= longestNote {
		return s
	}
	const more = " …"
	return strings.ToValidUTF8(s[:longestNote-len(more)], "") + more
}
