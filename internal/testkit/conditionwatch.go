// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// ConditionWatcher looks at every version of the objects of a kind and
// remembers the lies that their conditions told, also those that were corrected
// soon after.
type ConditionWatcher struct {
	linter  *linter
	objects dynamic.ResourceInterface
	watch   watch.Interface
	ended   chan struct{}
	stop    sync.Once

	mu    sync.Mutex
	lives map[string]*life
	lies  []string
	seen  int
	// broken is the last word of a watch that broke off.
	broken error
}

// life is what is remembered of one object.
type life struct {
	last    observation
	gone    bool
	history map[string][]step
}

// step is a status that a condition had, and why, within one generation.
type step struct{ status, reason string }

// WatchConditions watches the objects of a kind in a namespace (in all of them
// if it is empty) until the end of the test, and then fails the test for each
// lie. Call Stop to have that happen earlier.
func (c *Cluster) WatchConditions(t testing.TB, kind schema.GroupVersionKind, namespace string, options ...LintOption) *ConditionWatcher {
	t.Helper()
	w, err := c.watchConditions(kind, namespace, options)
	if err != nil {
		t.Fatalf("watching the conditions of %s: %v", kind, err)
	}
	t.Cleanup(func() { w.Stop(t) })
	return w
}

func (c *Cluster) watchConditions(kind schema.GroupVersionKind, namespace string, options []LintOption) (*ConditionWatcher, error) {
	mapping, err := c.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	all, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	w := &ConditionWatcher{
		linter: newLinter(options), objects: all.Resource(mapping.Resource).Namespace(namespace),
		ended: make(chan struct{}), lives: map[string]*life{},
	}
	list, err := w.objects.List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		w.look(&list.Items[i])
	}
	w.watch, err = w.objects.Watch(context.Background(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return nil, err
	}
	go w.follow()
	return w, nil
}

func (w *ConditionWatcher) follow() {
	defer close(w.ended)
	for event := range w.watch.ResultChan() {
		obj, ok := event.Object.(*unstructured.Unstructured)
		switch {
		case event.Type == watch.Error:
			w.mu.Lock()
			w.broken = apierrors.FromObject(event.Object)
			w.mu.Unlock()
		case ok && event.Type == watch.Deleted:
			w.forget(obj)
		case ok:
			w.look(obj)
		}
	}
}

func (w *ConditionWatcher) forget(obj *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if life := w.lives[string(obj.GetUID())]; life != nil {
		life.gone = true
	}
}

// look takes in one version of an object.
func (w *ConditionWatcher) look(obj *unstructured.Unstructured) {
	now := observe(obj)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen++
	known := w.lives[now.uid]
	if known == nil {
		known = &life{history: map[string][]step{}}
		w.lives[now.uid] = known
	}
	var lies []string
	// What was said before and is still there has been reported already.
	for _, lie := range w.linter.statics(now) {
		if !slices.Contains(w.lies, lie) {
			lies = append(lies, lie)
		}
	}
	lies = append(lies, changes(known.last, now, time.Now())...)
	if now.generation != known.last.generation {
		clear(known.history)
	}
	lies = append(lies, w.linter.flaps(known, now)...)
	known.last = now
	w.lies = append(w.lies, lies...)
}

// changes finds transition times that do not belong to a transition, and
// transitions without one.
func changes(before, now observation, clock time.Time) (lies []string) {
	const lag = 10 * time.Second
	for _, c := range now.conditions {
		old, known := before.find(c.Type)
		if !known {
			continue
		}
		then, err1 := time.Parse(time.RFC3339, old.Transition)
		at, err2 := time.Parse(time.RFC3339, c.Transition)
		if err1 != nil || err2 != nil {
			continue
		}
		switch {
		case c.Status == old.Status && !at.Equal(then):
			lies = append(lies, now.lie(c, "lastTransitionTime went from %s to %s without a transition", old.Transition, c.Transition))
		case c.Status != old.Status && at.Before(then):
			lies = append(lies, now.lie(c, "lastTransitionTime went back from %s to %s", old.Transition, c.Transition))
		case c.Status != old.Status && at.Equal(then) && clock.Sub(at) > lag:
			lies = append(lies, now.lie(c, "it was %s before, and lastTransitionTime is still %s", old.Status, c.Transition))
		}
	}
	return lies
}

// flaps finds conditions that return to a status they had left while nobody
// changed the object.
func (l *linter) flaps(known *life, now observation) (lies []string) {
	for _, c := range now.conditions {
		past := known.history[c.Type]
		if n := len(past); n > 0 && past[n-1].status == c.Status {
			past[n-1].reason = c.Reason
			continue
		}
		past = append(past, step{c.Status, c.Reason})
		from := slices.IndexFunc(past[:len(past)-1], func(s step) bool { return s.status == c.Status })
		if from >= 0 {
			if !slices.ContainsFunc(past[from:], func(s step) bool { return l.flap[s.reason] }) {
				lies = append(lies, now.lie(c, "it flapped within generation %d: %s", now.generation, route(past[from:])))
			}
			past = past[len(past)-1:]
		}
		known.history[c.Type] = past
	}
	return lies
}

func route(steps []step) string {
	var words []string
	for _, s := range steps {
		words = append(words, fmt.Sprintf("%s (%s)", s.status, s.reason))
	}
	return strings.Join(words, " → ")
}

// Seen is the number of versions of objects that the watcher looked at.
func (w *ConditionWatcher) Seen() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// Lies are the findings so far.
func (w *ConditionWatcher) Lies() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lies)
}

// Stop waits until the watcher has seen what is on the server now, ends it and
// fails the test for each lie, once. What it sees last counts as being at rest.
func (w *ConditionWatcher) Stop(t testing.TB) {
	t.Helper()
	w.stop.Do(func() {
		unseen := w.catchUp()
		w.watch.Stop()
		<-w.ended
		w.mu.Lock()
		defer w.mu.Unlock()
		if unseen != nil {
			w.lies = append(w.lies, fmt.Sprintf("the watch on conditions did not see everything: %v", unseen))
		}
		for _, life := range w.lives {
			if !life.gone {
				w.lies = append(w.lies, w.linter.stale(life.last)...)
			}
		}
		for _, lie := range w.lies {
			t.Error(lie)
		}
	})
}

// catchUp waits for the versions that the server has now. A kind that was
// removed meanwhile has none.
func (w *ConditionWatcher) catchUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	list, err := w.objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	var missing error
	err = poll(ctx, func() (bool, error) {
		select {
		case <-w.ended:
			w.mu.Lock()
			defer w.mu.Unlock()
			return false, errors.Join(errors.New("it ended early"), w.broken)
		default:
		}
		missing = w.behind(list.Items)
		return missing == nil, nil
	})
	if missing != nil {
		return missing
	}
	return err
}

func (w *ConditionWatcher) behind(items []unstructured.Unstructured) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range items {
		known := w.lives[string(items[i].GetUID())]
		if known == nil || !known.gone && older(known.last.version, items[i].GetResourceVersion()) {
			return fmt.Errorf("%s at resource version %s", items[i].GetName(), items[i].GetResourceVersion())
		}
	}
	return nil
}

// older compares resource versions, which are numbers of growing length.
func older(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }
